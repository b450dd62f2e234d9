"""Packs the programs that the samples build: `PYTHON pack.py PACKAGE FILE.zip`, run in the root of the repository.

Runs under real Paddle (PACKAGE paddle.fluid, Python 3.7) and under fluidtool (fluidtool.fluid) alike. FILE.zip gets for each
sample and network `<sample>.<network>.main.pb`, `.startup.pb` and `.model.pb`, the last as save_inference_model wrote it.
"""

import importlib
import os
import shutil
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SAMPLES = [
    ("fit_a_line", ""),
    ("image_classification", "resnet"),
    ("image_classification", "vgg"),
    ("label_semantic_roles", ""),
    ("machine_translation", ""),
    ("recognize_digits", "conv"),
    ("recognize_digits", "mlp"),
    ("recognize_digits", "softmax"),
    ("recommender_system", ""),
    ("understand_sentiment", "conv"),
    ("understand_sentiment", "lstm"),
    ("word2vec", ""),
]


def build(fluid, sample, network):
    """{"main": bytes, "startup": bytes, "model": bytes} of the programs of a sample in its full size, not trained."""
    from tests.networks.dump import forget_name_scopes

    forget_name_scopes(fluid)
    folder = tempfile.mkdtemp()
    main, startup = fluid.Program(), fluid.Program()
    arguments = ["--epochs", "0", "--out", folder] + (["--network", network] if network else [])
    try:
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
            run(fluid.__name__, sample, arguments)
        with open(os.path.join(folder, "__model__"), "rb") as stream:
            model = fluid.Program.parse_from_string(stream.read())
    finally:
        shutil.rmtree(folder)
    return {name: stripped(one) for name, one in (("main", main), ("startup", startup), ("model", model))}


def run(package, sample, arguments):
    """Run a sample with this package in place of fluidtool.fluid; an untrained one finds itself not good enough."""
    path = os.path.join(ROOT, "samples", sample + ".py")
    with open(path) as stream:
        source = stream.read().replace("fluidtool.fluid", package)
    before = sys.argv, sys.path
    sys.argv, sys.path = [path, *arguments], [os.path.dirname(path), *sys.path]
    try:
        exec(compile(source, path, "exec"), {"__name__": "__main__", "__file__": path})
    except SystemExit as error:
        if "not good enough" not in str(error):
            raise
    finally:
        sys.argv, sys.path = before


def stripped(program):
    """The bytes of a program without call stacks."""
    for block in program.blocks:
        for op in block.ops:
            if op.has_attr("op_callstack"):
                op._set_attr("op_callstack", [""])
    return program.desc.serialize_to_string()


def main():
    """Write the archive."""
    sys.path.insert(0, ROOT)
    fluid = importlib.import_module(sys.argv[1])
    with zipfile.ZipFile(sys.argv[2], "w", zipfile.ZIP_DEFLATED) as archive:
        for sample, network in SAMPLES:
            for which, data in sorted(build(fluid, sample, network).items()):
                name = ".".join([sample, network or "only", which, "pb"])
                archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
