"""cuDNN, by the graph API of nvidia-cudnn-frontend: convolutions of float32 images and their gradients, channels last.

Their factors are rounded, to TF32, only on request.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.calls import Convolution, channels_last


def module() -> Any:
    """The package; raises ImportError without it, or without the library that it loads."""
    import cudnn

    return cudnn


@dataclass(frozen=True, slots=True)
class Planned:
    """A graph of one convolution or gradient, its tensors, and its memory for intermediate results."""

    graph: Any
    tensors: tuple[Any, Any, Any]
    workspace: Any


class Cudnn:
    """cuDNN on the current device; plans are kept by sizes."""

    def __init__(self, xp: Any, precision: str = "float32") -> None:
        self._xp, self._cudnn, self._is_exact = xp, module(), precision == "float32"
        self._handle = self._cudnn.create_handle()
        self._plans: dict[Any, Planned] = {}

    @property
    def version(self) -> int:
        """The version of the library."""
        return int(self._cudnn.backend_version())

    def run(self, call: Convolution, address: Any) -> None:
        """Convolve on the current stream. address: a pointer's number."""
        found = self.plan(call)
        self._cudnn.set_stream(handle=self._handle, stream=self._xp.cuda.get_current_stream().ptr)
        pointers = dict(zip(found.tensors, map(address, call.pointers), strict=True))  # whole numbers are addresses
        found.graph.execute(pointers, found.workspace.data.ptr, handle=self._handle)

    def plan(self, call: Convolution) -> Planned:
        """The plan of a convolution, from an earlier one of the same sizes if there is one."""
        key = call.images, call.filters, call.results, call.pads, call.strides, call.dilations, call.computes
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = self._planned(call)
        return found

    def _planned(self, call: Convolution) -> Planned:
        library = self._cudnn
        graph, (x, weights, y) = convolution_graph(library, call, self._handle)
        notes = library.numerical_note
        refused = [notes.NONDETERMINISTIC, *([notes.DOWN_CONVERT_INPUTS] if self._is_exact else [])]
        graph.deselect_numeric_notes(refused)
        graph.build([library.heur_mode.A, library.heur_mode.FALLBACK])
        workspace = self._xp.empty(max(int(graph.get_workspace_size()), 1), np.uint8)
        return Planned(graph, (x, weights, y), workspace)


def convolution_graph(library: Any, call: Convolution, handle: Any) -> tuple[Any, tuple[Any, Any, Any]]:
    """A graph with one convolution, or one of its gradients, and its tensors: images, filters, results."""
    kind = library.data_type.FLOAT
    graph = library.pygraph(io_data_type=kind, intermediate_data_type=kind, compute_data_type=kind, handle=handle)
    shapes = {"x": call.images, "weights": call.filters, "out": call.results}
    given = {
        name: graph.tensor(name=name, dim=list(shape), stride=list(channels_last(shape)), data_type=kind)
        for name, shape in shapes.items()
        if name != call.computes
    }
    compute, first, second = {
        "out": (graph.conv_fprop, "x", "weights"),
        "x": (graph.conv_dgrad, "out", "weights"),
        "weights": (graph.conv_wgrad, "x", "out"),
    }[call.computes]
    before, after = call.pads[: len(call.strides)], call.pads[len(call.strides) :]
    found = compute(
        given[first], given[second], pre_padding=list(before), post_padding=list(after), stride=list(call.strides),
        dilation=list(call.dilations), compute_data_type=kind,
    )  # fmt: skip
    shape = shapes[call.computes]
    found.set_output(True).set_dim(list(shape)).set_stride(list(channels_last(shape))).set_data_type(kind)
    tensors = {**given, call.computes: found}
    return graph, (tensors["x"], tensors["weights"], tensors["out"])
