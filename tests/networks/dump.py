"""Builds the networks of this folder and writes their programs: `PYTHON dump.py PACKAGE FOLDER MODULE…`.

Runs under real Paddle (PACKAGE paddle.fluid, Python 3.7) and under fluidtool (fluidtool.fluid) alike. Each module becomes
FOLDER/<module>.zip with `<network>.main.pb` and `<network>.startup.pb`, or `<network>.error` with an exception's text.
"""

import collections
import importlib
import os
import sys
import warnings
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))


def modules():
    """The modules beside this file that hold networks."""
    return sorted(f[:-3] for f in os.listdir(HERE) if f.endswith(".py") and f not in ("dump.py", "__init__.py"))


def networks(module):
    """{name: function} of the `net_*` functions of a module."""
    if HERE not in sys.path:
        sys.path.insert(0, HERE)
    loaded = importlib.import_module("tests.networks." + module if "tests" in sys.modules else module)
    return {name[4:]: getattr(loaded, name) for name in sorted(vars(loaded)) if name.startswith("net_")}


def forget_name_scopes(fluid):
    """Name scopes are numbered within a process: start anew, so that no network depends on those built before."""
    if hasattr(fluid.framework, "NameScope"):
        fluid.framework._name_scope = fluid.framework.NameScope("", None)
    else:
        fluid.framework._Current.scope_counts = (collections.Counter(),)


def build(fluid, network):
    """The bytes of the main and the startup program, without call stacks."""
    forget_name_scopes(fluid)
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        network(fluid)
    for program in (main, startup):
        for block in program.blocks:
            for op in block.ops:
                if op.has_attr("op_callstack"):
                    op._set_attr("op_callstack", [""])  # real Paddle cannot store an empty list in a gradient operator
    return main.desc.serialize_to_string(), startup.desc.serialize_to_string()


def dump(fluid, folder, module):
    """Write one module's archive."""
    with zipfile.ZipFile(os.path.join(folder, module + ".zip"), "w", zipfile.ZIP_DEFLATED) as archive:

        def put(name, data):
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)

        for name, network in sorted(networks(module).items()):
            try:
                main, startup = build(fluid, network)
            except Exception as error:
                put(name + ".error", type(error).__name__ + ": " + str(error))
                continue
            put(name + ".main.pb", main)
            put(name + ".startup.pb", startup)


def main():
    """Write the archives named on the command line, or all."""
    warnings.simplefilter("ignore")
    fluid = importlib.import_module(sys.argv[1])
    for module in sys.argv[3:] or modules():
        dump(fluid, sys.argv[2], module)


if __name__ == "__main__":
    main()
