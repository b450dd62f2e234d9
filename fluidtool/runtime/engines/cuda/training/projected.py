"""lstmp in training steps: an LSTM whose hidden states are projected before they are fed back."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.lstm import (
    NO_ACTIVATION,
    Projection,
    initial_pair,
    lstm_activations,
    put_gates,
)
from fluidtool.runtime.engines.cuda.training.lstm_gradient import bias_gradient, lstm_gradient
from fluidtool.runtime.engines.cuda.training.packing import (
    in_steps,
    packed_of,
    put_initial_gradients,
    put_states,
    states_before,
)
from fluidtool.runtime.engines.cuda.training.recurrent import columns_of
from fluidtool.runtime.engines.cuda.training.sequences import taken
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.importers.sequences import ACTIVATIONS
from fluidtool.runtime.graph.ir import Value

Attrs = Mapping[str, Any]


def _weights(b: StepBuilder, op: Operator, attrs: Attrs) -> tuple[Value, Value, Value]:
    """The weights of what is fed back, those of the projection, and the bias."""
    weights, projection, bias = (b.get(op, slot) for slot in ("Weight", "ProjWeight", "Bias"))
    need(len(projection.shape) == 2, "a projection of an unexpected shape")
    size, fed_back = projection.shape
    need(weights.shape == (fed_back, 4 * size), "gates of an unexpected shape")
    need(prod(bias.shape) == (7 if attrs["use_peepholes"] else 4) * size, "a bias of an unexpected shape")
    return weights, projection, bias


def _known(attrs: Attrs) -> dict[str, Any]:
    """What the nodes of the layer know: the projection goes through the activation of the cells (Paddle 1.8.5 lstmp_op.h)."""
    activations = lstm_activations(attrs)
    need(attrs["proj_activation"] in ACTIVATIONS, "another activation")
    kind = NO_ACTIVATION if attrs["proj_activation"] == "identity" else activations[1]
    return {
        "activations": activations,
        "peepholes": bool(attrs["use_peepholes"]),
        "bound": float(attrs["cell_clip"]),
        "projection": Projection(kind, float(attrs["proj_clip"])),
    }


@imports_step("lstmp")
def _lstmp(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, (weights, projection, bias) = b.get(op, "Input"), _weights(b, op, attrs)
    size, fed_back = projection.shape
    need(x.shape[1:] == (4 * size,), "gates of an unexpected shape")
    packed, known = packed_of(b, op, "Input", attrs)
    known |= _known(attrs)
    given = [x, weights, bias, projection, *initial_pair(b, op, "Input", size, fed_back)]
    found = b.node("lstm_steps", given, (x.shape[0], 6 * size + fed_back), **known)
    put_states(b, op, found, packed, {"Cell": (4 * size, size), "Projection": (6 * size, fed_back)})
    put_gates(b, op, found, size, known["activations"][1])
    if b.wants(op, "BatchHidden"):
        b.put(op, "BatchHidden", columns_of(b, found, 5 * size, size))


@imports_step("lstmp_grad")
def _lstmp_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    weights, projection, bias = _weights(b, op, attrs)
    size, fed_back = projection.shape
    packed, known = packed_of(b, op, "Cell", attrs)
    known |= _known(attrs)
    gates, hidden, grad = (b.get(op, slot) for slot in ("BatchGate", "BatchHidden", "Projection@GRAD"))
    cells, projected = (in_steps(b, op, slot, packed) for slot in ("Cell", "Projection"))
    need(grad.shape == projected.shape, "a gradient that does not fit")
    initial = initial_pair(b, op, "Cell", size, fed_back)
    more = dict(zip(("C0",), initial, strict=False)) | {"projection": projection, "projected": projected}
    found = lstm_gradient(b, (gates, cells, grad, weights, bias), more, known)
    put_initial_gradients(b, op, found, "Cell", {"C0": size, "H0": fed_back})
    if b.wants(op, "Input@GRAD"):
        b.put(op, "Input@GRAD", taken(b, found, packed.places))
    if b.wants(op, "Weight@GRAD"):
        before = states_before(b, projected, initial[1:], packed)
        b.put(op, "Weight@GRAD", b.product(b.transposed(before, (1, 0)), found))
    if b.wants(op, "ProjWeight@GRAD"):
        steep = b.node("beside", [found], projected.shape, name="projected")
        b.put(op, "ProjWeight@GRAD", b.product(b.transposed(hidden, (1, 0)), steep))
    if b.wants(op, "Bias@GRAD"):
        states = (cells, states_before(b, cells, initial[:1], packed)) if known["peepholes"] else ()
        b.put(op, "Bias@GRAD", b.view(bias_gradient(b, found, size, states), bias.shape))
