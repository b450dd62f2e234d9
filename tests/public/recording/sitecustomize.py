"""Python imports this before a script runs: it writes down what the script fetches, from fluidtool and from Paddle alike.

FLUIDTOOL_RECORD names the file. So that both see the same: seeds are fixed, what initializers draw is drawn here, by the name of
the parameter, dropout leaves everything, programs that draw other numbers draw the same one each time, and data sets are
fluidtool's made-up ones, cut to their first samples, from a process of their own.
Runs on Python 3.7, too.
"""

import binascii
import builtins
import functools
import importlib
import io
import os
import pickle
import random
import subprocess
import sys
import tempfile

SAMPLES = int(os.environ.get("FLUIDTOOL_SAMPLES", "64"))
MOVED = int(os.environ.get("FLUIDTOOL_MOVED", "0"))
KEPT = 256  # numbers of each fetched value
DATA_SETS = "cifar conll05 flowers imdb imikolov mnist movielens mq2007 sentiment uci_housing voc2012 wmt14 wmt16"


class Answers(pickle.Unpickler):
    """Unpickles with the classes of this process in place of fluidtool's."""

    def find_class(self, module, name):
        return super().find_class(module.replace("fluidtool.compat.dataset", "paddle.dataset"), name)


def proxy(data_set, name):
    """A function of a data set that a fluidtool beside this process answers for."""

    def function(*args, **named):
        call = pickle.dumps((data_set, name, args, named, SAMPLES), 2)
        environment = {key: value for key, value in os.environ.items() if key not in ("FLUIDTOOL_RECORD", "PYTHONPATH")}
        environment["PYTHONPATH"] = os.environ["FLUIDTOOL_TREE"]
        command = [os.environ["FLUIDTOOL_PYTHON"], "-m", "tests.public.samples"]
        done = subprocess.run(
            command, check=False, input=call, stdout=subprocess.PIPE, env=environment, cwd=os.environ["FLUIDTOOL_TREE"]
        )
        if done.returncode:
            raise RuntimeError(f"no made-up data: {data_set}.{name}")
        name_parts_of_numpy()
        kind, value = Answers(io.BytesIO(done.stdout)).load()
        if kind == "file":
            with tempfile.NamedTemporaryFile(delete=False) as file:
                file.write(value)
            return file.name
        return (lambda: iter(value)) if kind == "reader" else value

    return function


def name_parts_of_numpy():
    """Let numpy 1 read the arrays that numpy 2 has pickled."""
    import numpy

    if "numpy._core" not in sys.modules:
        sys.modules["numpy._core"] = numpy.core
        sys.modules["numpy._core.multiarray"] = numpy.core.multiarray
        sys.modules["numpy._core.numeric"] = numpy.core.numeric


def patch_real_data_sets():
    """Give Paddle's data sets made-up samples."""
    for name in DATA_SETS.split():
        module = sys.modules.get("paddle.dataset." + name)
        if module is not None and ready(module) and "recorded" not in vars(module):
            for each, value in list(vars(module).items()):
                own = isinstance(value, functools.partial) or (
                    getattr(value, "__module__", "") == module.__name__ and not isinstance(value, type)
                )
                if own and not each.startswith("_"):
                    setattr(module, each, proxy(name, each))
            vars(module)["recorded"] = True


def patch_made_up_data_sets():
    """Give fluidtool's data sets the same samples: some crop at random, in threads."""
    for name in DATA_SETS.split():
        module = importlib.import_module("fluidtool.compat.dataset." + name)
        for each in module.__all__:
            if each.startswith(("train", "test", "val", "gen")) and callable(getattr(module, each)):
                setattr(module, each, proxy(name, each))


def in_order(mapper, reader, process_num, buffer_size, order=False):
    """xmap_readers without threads: mappers that crop at random draw in the order of the samples, on both sides."""
    return lambda: map(mapper, reader())


def drawn(op, shape):
    """What an initializing operator gives, whoever runs it."""
    import numpy

    generator = numpy.random.RandomState(binascii.crc32(op.output("Out")[0].encode()) & 0xFFFFFFFF)
    if op.type == "uniform_random":
        return generator.uniform(op.attr("min"), op.attr("max"), shape)
    values = generator.normal(op.attr("mean"), op.attr("std"), shape)
    if op.type == "truncated_gaussian_random":
        values = numpy.clip(values, op.attr("mean") - 2 * op.attr("std"), op.attr("mean") + 2 * op.attr("std"))
    return values


RANDOM = ("uniform_random", "gaussian_random", "truncated_gaussian_random")
DRAWN = (*RANDOM, "uniform_random_batch_size_like", "gaussian_random_batch_size_like", "sampling_id")
OWN = "paddle.fluid.contrib.slim"  # what fetches values in Paddle's own Python, and elsewhere in fluidtool
NARROW = 1e-3  # a range of drawn numbers that is closed already


def set_drawn(program, scope, place):
    """Replace what a start-up program drew."""
    import numpy

    block = program.global_block()
    last = {op.output("Out")[0]: op for op in block.ops if op.type in RANDOM and not op.input_arg_names}
    for name, op in last.items():
        held = scope.find_var(name)
        if held is not None and block.has_var(name) and block.var(name).persistable and block.var(name).type != 8:
            tensor = held.get_tensor()
            old = numpy.array(tensor)
            tensor.set(moved(drawn(op, old.shape).astype(old.dtype)), place)


def moved(values):
    """The values; by the driver's wish each one ulp up or down, to see what rounding alone does to a script's numbers."""
    import numpy

    if not MOVED:
        return values
    up = numpy.random.RandomState(values.size % 1000 + 1000 * MOVED).randint(0, 2, values.shape).astype(bool)
    return numpy.nextafter(values, numpy.where(up, numpy.inf, -numpy.inf).astype(values.dtype))


def without_chance(program):
    """Make the program's dropout leave everything, and what it draws besides parameters the same each time.

    Uniform numbers, and those that sampling_id compares probabilities with, are in the middle of their range (within an ulp:
    Paddle refuses an empty one), normal ones their mean.
    """
    import numpy

    for block in program.blocks:
        for op in block.ops:
            if op.type == "dropout" and op.attr("dropout_prob"):
                op._set_attr("dropout_prob", 0.0)
            elif op.type in DRAWN and not block._var_recursive(op.output("Out")[0]).persistable:
                if "gaussian" in op.type:
                    op._set_attr("std", 0.0)
                elif op.attr("max") - op.attr("min") > NARROW:
                    middle = numpy.float32((op.attr("min") + op.attr("max")) / 2)
                    op._set_attr("min", float(middle))
                    op._set_attr("max", float(numpy.nextafter(middle, numpy.float32(numpy.inf))))


def compiling(make):
    """CompiledProgram's constructor, which copies the operators: nothing of the program happens by chance from then on."""

    def made(self, program, *args, **named):
        if hasattr(program, "blocks"):
            without_chance(program)
        return make(self, program, *args, **named)

    return made


def plain(value):
    """A fetched value as lists."""
    import numpy

    if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
        return [plain(item) for item in value]
    array = numpy.array(value)
    if array.dtype.kind not in "biuf":
        return str(array.dtype)
    return (list(array.shape), str(array.dtype), [float(number) for number in array.ravel()[:KEPT]])


def recording(run, fluid, file):
    """Executor.run, which writes down what it returns to scripts."""

    def recorded(self, program=None, *args, **named):
        chosen = program if program is not None else fluid.default_main_program()
        inner = getattr(chosen, "_program", None) or getattr(chosen, "program", None) or chosen
        is_program = hasattr(inner, "global_block")
        if is_program and hasattr(inner, "blocks"):
            without_chance(inner)
        values = run(self, program, *args, **named)
        fetched = bool(values)
        if is_program and not fetched:
            scope = named.get("scope") or fluid.global_scope()
            set_drawn(inner, scope, self.place)
        if not sys._getframe(1).f_globals.get("__name__", "").startswith(OWN):
            pickle.dump([plain(value) for value in values or []], file, 2)
            file.flush()
        return values

    return recorded


def recording_parameters(train, fluid, file):
    """Executor.train_from_dataset, which fetches nothing: what it makes of the parameters is written down."""
    import numpy

    def recorded(self, program=None, *args, **named):
        chosen = program if program is not None else fluid.default_main_program()
        inner = getattr(chosen, "_program", None) or chosen
        without_chance(inner)
        values = train(self, program, *args, **named)
        scope = named.get("scope") or fluid.global_scope()
        names = sorted(variable.name for variable in inner.all_parameters())
        pickle.dump([plain(numpy.array(scope.find_var(name).get_tensor())) for name in names], file, 2)
        file.flush()
        return values

    return recorded


def install(path):
    """Record from the moment that paddle.fluid is there."""
    file = open(path, "ab")  # noqa: SIM115
    original, done = builtins.__import__, []

    def importing(name, *args, **named):
        module = original(name, *args, **named)
        if "paddle" not in sys.modules:
            return module
        real = hasattr(sys.modules["paddle"], "__file__")
        if real:
            patch_real_data_sets()
        elif "proxied" not in done:
            done.append("proxied")
            patch_made_up_data_sets()
        fluid = sys.modules.get("paddle.fluid")
        if fluid is not None and "patched" not in done and ready(fluid):
            done.append("patched")
            import numpy

            numpy.random.seed(1)
            if real:
                on_cpu(fluid)
            fluid.Executor.run = recording(fluid.Executor.run, fluid, file)
            fluid.Executor.train_from_dataset = recording_parameters(fluid.Executor.train_from_dataset, fluid, file)
            fluid.CompiledProgram.__init__ = compiling(fluid.CompiledProgram.__init__)
            for name in ("paddle.reader", "paddle.reader.decorator"):
                importlib.import_module(name).xmap_readers = in_order
        return module

    builtins.__import__ = importing


def on_cpu(fluid):
    """Have GPUs mean the CPU, as `fluidtool exec --device cpu` does."""

    class CUDAPlace:
        def __new__(cls, device_id=0):
            return fluid.CPUPlace()

    for module in (fluid, fluid.core, fluid.framework):
        module.CUDAPlace = CUDAPlace
    count = lambda: 1  # noqa: E731
    fluid.core.get_cuda_device_count = count
    for module in (fluid, fluid.core, fluid.framework):
        module.is_compiled_with_cuda = lambda: True
    fluid.cuda_places = lambda ids=None: [fluid.CPUPlace()] * (len(ids) if isinstance(ids, (list, tuple)) else 1)


def ready(fluid):
    """Whether paddle.fluid has been imported to its end."""
    spec = getattr(fluid, "__spec__", None)
    return not getattr(spec, "_initializing", False)


if os.environ.get("FLUIDTOOL_RECORD"):
    random.seed(1)
    install(os.environ["FLUIDTOOL_RECORD"])
if os.environ.get("FLUIDTOOL_OUTCOMES"):
    import outcomes

    outcomes.install(os.environ["FLUIDTOOL_OUTCOMES"])
