"""cuDNN, by the graph API of nvidia-cudnn-frontend: convolutions, their gradients and what follows them; attention.

The factors of float32 are rounded, to TF32, only on request.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.calls import (
    Attention,
    AttentionGradient,
    Convolution,
    Heads,
    RefusedError,
)
from fluidtool.runtime.engines.cuda.plans import Choices, shortest

Described = Convolution | Attention | AttentionGradient


def module() -> Any:
    """The package; raises ImportError without it, or without the library that it loads."""
    import cudnn

    return cudnn


@dataclass(frozen=True, slots=True)
class Planned:
    """A graph, its tensors in the order of the pointers of a call, and its memory for intermediate results."""

    graph: Any
    tensors: tuple[Any, ...]
    workspace: Any


class Cudnn:
    """cuDNN on the current device; plans are kept by sizes."""

    def __init__(self, xp: Any, precision: str = "float32") -> None:
        self._xp, self._cudnn, self._is_exact = xp, module(), precision == "float32"
        self._handle = self._cudnn.create_handle()
        self._plans: dict[Any, Planned | None] = {}
        self._choices = Choices(xp, "cudnn", self.version, precision)

    @property
    def version(self) -> int:
        """The version of the library."""
        return int(self._cudnn.backend_version())

    def run(self, call: Described, address: Any) -> None:
        """Compute on the current stream. address: a pointer's number. Raises RefusedError where there is no plan."""
        found = self.plan(call)
        self._cudnn.set_stream(handle=self._handle, stream=self._xp.cuda.get_current_stream().ptr)
        pointers = dict(zip(found.tensors, map(address, call.pointers), strict=True))  # whole numbers are addresses
        found.graph.execute(pointers, found.workspace.data.ptr, handle=self._handle)

    def plan(self, call: Described, address: Any = None) -> Planned:
        """The plan of a call, from an earlier one of the same sizes if there is one; addresses do not matter.

        Raises RefusedError if it has none.
        """
        key = key_of(call)
        if key not in self._plans:
            self._plans[key] = self._planned_unless_refused(call, key)
        found = self._plans[key]
        if found is None:
            raise RefusedError(f"cuDNN has no plan for {key}")
        return found

    def seconds(self, call: Convolution) -> float:
        """How long a convolution of float32 takes on this device, measured once and kept; infinity if there is no plan for it."""
        key = "seconds", key_of(call)
        found = self._choices.get(key, np.float32().itemsize, lambda: np.float32(self._measured(call)).tobytes())
        return float(np.frombuffer(found, np.float32)[0])

    def _measured(self, call: Convolution) -> float:
        """On memory of its own, which is free afterwards, as is that of the plan."""
        sizes = zip(call.pointers, (call.images, call.filters, call.results), strict=True)
        arrays = {pointer: self._xp.zeros(shape, np.float32) for pointer, shape in sizes}
        try:
            return shortest(self._xp, lambda: self.run(call, lambda pointer: int(arrays[pointer].data.ptr)))
        except RefusedError:
            return inf
        finally:
            self._plans.pop(key_of(call), None)

    def _planned_unless_refused(self, call: Described, key: Any) -> Planned | None:
        """A plan; none at once if an earlier process has found that there is none."""
        made: list[Planned | None] = []

        def refused() -> bytes:
            made.append(self._planned(call))
            return np.array([made[0] is None], np.float32).tobytes()

        if self._choices.get(key, np.float32().itemsize, refused) == np.ones(1, np.float32).tobytes():
            return None
        return made[0] if made else self._planned(call)

    def _planned(self, call: Described) -> Planned | None:
        if self._is_exact and isinstance(call, Convolution) and call.added is not None:
            return None  # all it has without tensor cores is a kernel that takes 10 to 25 times as long (cuDNN 9, H200)
        library = self._cudnn
        notes = library.numerical_note
        # In float32 tensor cores round the factors to TF32 without being asked (seen with cuDNN 9 on an H200: 8e-4 of the norm).
        rounding = [notes.DOWN_CONVERT_INPUTS, notes.TENSOR_CORE] if self._is_exact else []
        refused = [notes.NONDETERMINISTIC, *rounding]
        try:
            graph, tensors = described(library, call, self._handle)
            graph.deselect_numeric_notes(refused)
            graph.build([library.heur_mode.A, library.heur_mode.FALLBACK])
        except library.cudnnGraphNotSupportedError:
            return None
        workspace = self._xp.empty(max(int(graph.get_workspace_size()), 1), np.uint8)
        return Planned(graph, tensors, workspace)


def key_of(call: Described) -> tuple[Any, ...]:
    """What tells a plan from others: everything but addresses."""
    if isinstance(call, Attention | AttentionGradient):
        places = tuple((each.shape, each.place.strides, each.place.buffer.half) for each in call.heads)
        return "attention" if isinstance(call, Attention) else "attention back", call.factor, *places
    fused = call.bias is not None, call.added is not None, call.activation, call.x.buffer.half
    return (
        call.images, call.filters, call.results, call.pads, call.strides, call.dilations, call.computes,
        call.channels_first, *fused,
    )  # fmt: skip


def described(library: Any, call: Described, handle: Any) -> tuple[Any, tuple[Any, ...]]:
    """The graph of a call, and its tensors in the order of its pointers."""
    if isinstance(call, Attention):
        return attention_graph(library, call, handle)
    if isinstance(call, AttentionGradient):
        return attention_gradient_graph(library, call, handle)
    return convolution_graph(library, call, handle)


def data_type(library: Any, half: str) -> Any:
    """The type of what is in memory."""
    kinds = library.data_type
    return {"": kinds.FLOAT, "fp16": kinds.HALF, "bf16": kinds.BFLOAT16}[half]


def new_graph(library: Any, half: str, handle: Any) -> Any:
    """A graph that computes in float32."""
    kind = library.data_type.FLOAT
    io = data_type(library, half)
    return library.pygraph(io_data_type=io, intermediate_data_type=kind, compute_data_type=kind, handle=handle)


def convolution_graph(library: Any, call: Convolution, handle: Any) -> tuple[Any, tuple[Any, ...]]:
    """A graph with one convolution and what follows it, or one of its gradients."""
    half, float32 = call.x.buffer.half, library.data_type.FLOAT
    kind, graph = data_type(library, half), new_graph(library, half, handle)
    shapes = {"x": call.images, "weights": call.filters, "out": call.results}

    def image(name: str, shape: Any, of: Any = kind) -> Any:
        return graph.tensor(name=name, dim=list(shape), stride=list(call.strides_of(shape)), data_type=of)

    given = {name: image(name, shape) for name, shape in shapes.items() if name != call.computes}
    compute, first, second = {
        "out": (graph.conv_fprop, "x", "weights"),
        "x": (graph.conv_dgrad, "out", "weights"),
        "weights": (graph.conv_wgrad, "x", "out"),
    }[call.computes]
    before, after = call.pads[: len(call.strides)], call.pads[len(call.strides) :]
    found = compute(
        given[first], given[second], pre_padding=list(before), post_padding=list(after), stride=list(call.strides),
        dilation=list(call.dilations), compute_data_type=float32,
    )  # fmt: skip
    more = []
    if call.bias is not None:
        wide = (1, call.results[1], *(1 for _ in call.results[2:]))
        more.append(image("bias", wide, float32))
    if call.added is not None:
        more.append(image("added", call.results))
    for tensor in more:
        found = graph.add(found, tensor, compute_data_type=float32)
    if call.activation is not None:
        name, numbers = call.activation
        found = getattr(graph, name)(found, **dict(numbers), compute_data_type=float32)
    shape = shapes[call.computes]
    found.set_output(True).set_dim(list(shape)).set_stride(list(call.strides_of(shape))).set_data_type(kind)
    tensors = {**given, call.computes: found}
    return graph, (tensors["x"], tensors["weights"], tensors["out"], *more)


def attention_graph(library: Any, call: Attention, handle: Any) -> tuple[Any, tuple[Any, ...]]:
    """A graph with one attention, and what its gradient needs where that is asked for."""
    half = call.q.place.buffer.half
    kind, graph = data_type(library, half), new_graph(library, half, handle)
    names = ("q", "k", "v") if call.mask is None else ("q", "k", "v", "bias")
    values = [call.q, call.k, call.v, *([] if call.mask is None else [call.mask])]
    given = {
        name: graph.tensor(name=name, dim=list(each.shape), stride=list(each.place.strides), data_type=kind)
        for name, each in zip(names, values, strict=True)
    }
    found, stats = graph.sdpa(**given, generate_stats=call.stats is not None, attn_scale=call.factor)
    _as_result(found, call.out, kind)
    more = [given["bias"]] if call.mask is not None else []
    if call.stats is not None:
        _as_result(stats, call.stats, library.data_type.FLOAT)
        more.append(stats)
    return graph, (given["q"], given["k"], given["v"], found, *more)


def attention_gradient_graph(library: Any, call: AttentionGradient, handle: Any) -> tuple[Any, tuple[Any, ...]]:
    """A graph with the gradients of one attention, which are the same in every run."""
    half = call.q.place.buffer.half
    kind, graph = data_type(library, half), new_graph(library, half, handle)
    values = {"q": call.q, "k": call.k, "v": call.v, "o": call.out, "dO": call.grad, "stats": call.stats}
    if call.mask is not None:
        values["bias"] = call.mask
    types = {"stats": library.data_type.FLOAT}
    given = {
        name: graph.tensor(
            name=name, dim=list(each.shape), stride=list(each.place.strides), data_type=types.get(name, kind)
        )
        for name, each in values.items()
    }
    found = graph.sdpa_backward(**given, attn_scale=call.factor, use_deterministic_algorithm=True)
    for tensor, result in zip(found, (call.by_q, call.by_k, call.by_v), strict=True):
        _as_result(tensor, result, kind)
    first = [given[name] for name in ("q", "k", "v", "o", "dO", "stats")]
    return graph, (*first, *found, *([given["bias"]] if call.mask is not None else []))


def _as_result(tensor: Any, heads: Heads, kind: Any) -> None:
    """Tell a graph where a result is."""
    tensor.set_output(True).set_dim(list(heads.shape)).set_stride(list(heads.place.strides)).set_data_type(kind)
