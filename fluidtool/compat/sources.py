"""Which of our modules answer for which module of Paddle."""

from __future__ import annotations

from importlib.util import find_spec

_LAYERS = (
    "nn tensor ops control_flow io loss metric_op detection learning_rate_scheduler sequence_lod rnn distributions"
)

_DATASETS = (
    "cifar common conll05 flowers image imdb imikolov mnist movielens mq2007 sentiment uci_housing voc2012 wmt14 wmt16"
)
SOURCES: dict[str, tuple[str, ...]] = {
    "paddle": ("fluidtool.compat.paddle",),
    "paddle.dataset": (),
    "paddle.fluid": ("fluidtool.fluid", "fluidtool.fluid.data_feeder"),
    "paddle.fluid.core": ("fluidtool.fluid.core",),
    "paddle.fluid.framework": (
        "fluidtool.fluid.framework",
        "fluidtool.ir",
        "fluidtool.fluid.places",
        "fluidtool.fluid.flags",
        "fluidtool.fluid.versions",
    ),
    "paddle.fluid.layers.utils": ("fluidtool.fluid.nested",),
    "paddle.fluid.learning_rate_decay": ("fluidtool.fluid.layers.learning_rate_scheduler",),
    "paddle.fluid.lod_tensor": ("fluidtool.tensor.create",),
    "paddle.fluid.unique_name": ("fluidtool.ir.unique_name",),
    "paddle.optimizer": ("fluidtool.compat.optimizer",),
    "paddle.reader": ("fluidtool.compat.reader",),
    "paddle.reader.decorator": ("fluidtool.compat.reader",),
    "paddle.static": ("fluidtool.compat.static",),
    "paddle.static.nn": ("fluidtool.compat.static_nn",),
    **{f"paddle.fluid.layers.{name}": ("fluidtool.fluid.layers",) for name in _LAYERS.split()},
    **{f"paddle.dataset.{name}": (f"fluidtool.compat.dataset.{name}",) for name in _DATASETS.split()},
}


def sources_of(name: str) -> tuple[str, ...] | None:
    """Our modules for a module of Paddle, in the order in which names are looked up; None where it is not offered."""
    if name in SOURCES:
        return SOURCES[name]
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
    return [key.rpartition(".")[2] for key in SOURCES if key.rpartition(".")[0] == name]
