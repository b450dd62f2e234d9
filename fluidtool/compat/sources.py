"""Which of our modules provide which module of Paddle."""

from __future__ import annotations

from importlib.util import find_spec

_LAYERS = (
    "nn tensor ops control_flow io loss metric_op detection learning_rate_scheduler sequence_lod rnn distributions"
)

_DYNAMIC = (
    "backward_strategy base checkpoint container jit layers learning_rate_scheduler nn parallel tracer math_op_patch"
)
_DYGRAPH = ("fluidtool.compat.dygraph.base", "fluidtool.compat.dygraph.nn")
_DATASETS = (
    "cifar common conll05 flowers image imdb imikolov mnist movielens mq2007 sentiment uci_housing voc2012 wmt14 wmt16"
)
_LAYERS_OF_OURS = "control_flow detection io learning_rate_scheduler loss"
# imports of Paddle's layer modules
_INNER = ("fluidtool.fluid.layer_helper", "fluidtool.fluid.framework", "fluidtool.ir", "fluidtool.fluid.versions")

SOURCES: dict[str, tuple[str, ...]] = {
    "paddle": ("fluidtool.compat.paddle",),
    "paddle.dataset": (),
    "paddle.v2": ("fluidtool.compat.v2",),
    "paddle.v2.image": ("fluidtool.compat.dataset.image",),
    "paddle.v2.minibatch": ("fluidtool.fluid.reader_decorators",),
    "paddle.v2.plot": ("fluidtool.compat.utils.plot",),
    "paddle.fluid": ("fluidtool.fluid", "fluidtool.fluid.data_feeder", "fluidtool.compat.dygraph.nn"),
    "paddle.fluid.core": ("fluidtool.fluid.core", "fluidtool.compat.predictor", "fluidtool.compat.dygraph.nn"),
    "paddle.fluid.data_feeder": ("fluidtool.fluid.data_feeder", "fluidtool.fluid.checks"),
    "paddle.fluid.framework": (
        "fluidtool.fluid.framework",
        "fluidtool.ir",
        "fluidtool.fluid.places",
        "fluidtool.fluid.flags",
        "fluidtool.fluid.versions",
        "fluidtool.fluid.op_protos",
        "fluidtool.fluid.ir_graph",
    ),
    "paddle.device": (),
    "paddle.distributed": ("fluidtool.compat.distributed",),
    "paddle.distributed.fs_wrapper": ("fluidtool.compat.distributed.fs_wrapper",),
    "paddle.distribution": (),
    "paddle.regularizer": (),
    "paddle.sysconfig": ("fluidtool.compat.sysconfig",),
    "paddle.utils": ("fluidtool.compat.utils",),
    "paddle.utils.plot": ("fluidtool.compat.utils.plot",),
    "paddle.utils.plotcurve": ("fluidtool.compat.utils.plotcurve",),
    "paddle.batch": ("fluidtool.fluid.reader_decorators",),
    "paddle.check_import_scipy": ("fluidtool.compat.check_import_scipy",),
    "paddle.compat": ("fluidtool.compat.text",),
    "paddle.version": ("fluidtool.compat.version",),
    "paddle.fluid.contrib.decoder.beam_search_decoder": ("fluidtool.fluid.contrib.decoder",),
    "paddle.fluid.contrib.extend_optimizer.extend_optimizer_with_weight_decay": (
        "fluidtool.fluid.contrib.extend_optimizer",
    ),
    "paddle.fluid.contrib.layers.metric_op": ("fluidtool.fluid.contrib.layers",),
    "paddle.fluid.contrib.layers.nn": ("fluidtool.fluid.contrib.layers",),
    "paddle.fluid.contrib.layers.rnn_impl": ("fluidtool.fluid.contrib.layers.recurrent",),
    "paddle.fluid.contrib.mixed_precision.fp16_lists": ("fluidtool.fluid.contrib.mixed_precision.lists",),
    "paddle.fluid.contrib.mixed_precision.fp16_utils": ("fluidtool.fluid.contrib.mixed_precision.rewriting",),
    "paddle.fluid.contrib.mixed_precision.decorator": ("fluidtool.fluid.contrib.mixed_precision",),
    "paddle.fluid.contrib.reader.distributed_reader": ("fluidtool.fluid.contrib.reader",),
    "paddle.fluid.core_avx": ("fluidtool.fluid.core", "fluidtool.compat.predictor"),
    "paddle.fluid.data": ("fluidtool.fluid.input",),
    "paddle.fluid.dataloader.batch_sampler": ("fluidtool.fluid.dataloader",),
    "paddle.fluid.dataloader.dataloader_iter": ("fluidtool.fluid.dataloader",),
    "paddle.fluid.dataloader.dataset": ("fluidtool.fluid.dataloader",),
    "paddle.fluid.debuger": ("fluidtool.fluid.debugger",),  # up to 0.12
    "paddle.fluid.executor": ("fluidtool.fluid.executor", "fluidtool.fluid.feed_operators"),
    "paddle.fluid.layer_helper_base": ("fluidtool.fluid.layer_helper",),
    "paddle.fluid.proto": (),
    "paddle.fluid.proto.data_feed_pb2": ("fluidtool.proto.data_feed_pb2",),
    "paddle.fluid.proto.framework_pb2": ("fluidtool.proto.framework_pb2",),
    "paddle.fluid.proto.profiler": (),
    "paddle.fluid.proto.profiler.profiler_pb2": ("fluidtool.proto.profiler_pb2",),
    "paddle.fluid.proto.trainer_desc_pb2": ("fluidtool.proto.trainer_desc_pb2",),
    "paddle.fluid.wrapped_decorator": ("fluidtool.compat.decorators",),
    **{
        f"paddle.fluid.{name}.core": ("fluidtool.fluid.core", "fluidtool.compat.predictor")
        for name in ["backward", "compiler", "data_feeder", "executor", "framework", "initializer", "io", "optimizer"]
    },
    "paddle.fluid.framework.unique_name": ("fluidtool.ir.unique_name",),
    "paddle.fluid.layers.core": ("fluidtool.fluid.core", "fluidtool.compat.predictor"),
    "paddle.fluid.layers": ("fluidtool.fluid.layers", *_INNER),
    "paddle.fluid.layers.math_op_patch": ("fluidtool.fluid.variable_operators",),
    "paddle.fluid.layers.utils": ("fluidtool.fluid.nested",),
    "paddle.fluid.learning_rate_decay": ("fluidtool.fluid.layers.learning_rate_scheduler",),
    "paddle.fluid.lod_tensor": ("fluidtool.tensor.create",),
    "paddle.fluid.transpiler.details.checkport": ("fluidtool.fluid.transpiler.details",),
    "paddle.fluid.transpiler.details.program_utils": ("fluidtool.fluid.transpiler.details",),
    "paddle.fluid.transpiler.details.vars_distributed": ("fluidtool.fluid.transpiler.details",),
    "paddle.fluid.unique_name": ("fluidtool.ir.unique_name",),
    "paddle.optimizer": ("fluidtool.compat.optimizer",),
    "paddle.reader": ("fluidtool.compat.reader",),
    "paddle.reader.decorator": ("fluidtool.compat.reader",),
    "paddle.static": ("fluidtool.compat.static",),
    "paddle.static.nn": ("fluidtool.compat.static_nn",),
    **{f"paddle.fluid.layers.{name}": ("fluidtool.fluid.layers", *_INNER) for name in _LAYERS.split()},
    **{
        f"paddle.fluid.layers.{name}": ("fluidtool.fluid.layers", f"fluidtool.fluid.layers.{name}", *_INNER)
        for name in _LAYERS_OF_OURS.split()
    },
    "paddle.fluid.dygraph": _DYGRAPH,
    **{f"paddle.fluid.dygraph.{name}": _DYGRAPH for name in _DYNAMIC.split()},
    **{f"paddle.dataset.{name}": (f"fluidtool.compat.dataset.{name}",) for name in _DATASETS.split()},
}

# packages that scripts of 0.11 to 0.14 import from the API before Fluid
SHARED_WITH_V2 = ("dataset", "fluid", "reader")

# what `pip install paddlepaddle==1.8.5` installs besides, by the names of its modules
INSTALLED_WITH_PADDLE = {
    "astor": "astor",
    "cv2": "opencv-python",
    "decorator": "decorator",
    "funcsigs": "funcsigs",
    "graphviz": "graphviz",
    "matplotlib": "matplotlib",
    "nltk": "nltk",
    "objgraph": "objgraph",
    "PIL": "Pillow",
    "prettytable": "prettytable",
    "rarfile": "rarfile",
    "requests": "requests",
    "scipy": "scipy",
    "six": "six",
    "yaml": "PyYAML",
}


def sources_of(name: str) -> tuple[str, ...] | None:
    """Our modules for a module of Paddle, in lookup order; None if it is not available."""
    if name in SOURCES:
        return SOURCES[name]
    before, _, shared = name.partition("paddle.v2.")
    if not before and shared.partition(".")[0] in SHARED_WITH_V2:
        return sources_of(f"paddle.{shared}")
    prefix, _, rest = name.partition("paddle.fluid.")
    if prefix or not rest:
        return None
    parent, _, _ = rest.rpartition(".")
    ours = f"fluidtool.fluid.{rest}"
    if parent and sources_of(f"paddle.fluid.{parent}") is None:
        return None
    try:
        return (ours,) if find_spec(ours) is not None else None
    except ModuleNotFoundError:
        return None


def modules_within(name: str) -> list[str]:
    """The modules of the table directly below a module of Paddle."""
    below = [key.rpartition(".")[2] for key in SOURCES if key.rpartition(".")[0] == name]
    return [*below, *SHARED_WITH_V2] if name == "paddle.v2" else below
