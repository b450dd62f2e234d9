"""Programs of one operator, exported and run by ONNX Runtime beside our own run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from fluidtool.ir import Operator, Program
from fluidtool.onnx_export.exporter import Exported, export
from fluidtool.onnx_export.messages import write_model
from fluidtool.ops.registry import get_op
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor, var_type_of

LACKING = find_spec("onnx") is None or find_spec("onnxruntime") is None
REASON = "needs onnx and onnxruntime: pip install 'fluidtool[onnxruntime]'"
needs_onnx = pytest.mark.skipif(LACKING, reason=REASON)
PADDLE_2 = 2_006_002
Array = np.ndarray[Any, Any]


def require_onnx() -> None:
    """Leave out the module that calls this as a whole, where ONNX and its runtime are not installed."""
    if LACKING:
        pytest.skip(REASON, allow_module_level=True)


@dataclass
class OneOperator:
    """A program of one operator: inputs by slot (an array, or a list of them); `constant`: the slots that are parameters;
    `open`: the slots whose first size is not declared; `declared`: shapes that the program declares in place of the real ones.
    """

    type: str
    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, int] = field(default_factory=dict)
    version: int = PADDLE_2
    constant: Sequence[str] = ()
    open: Sequence[str] = ()
    declared: Mapping[str, Sequence[int]] = field(default_factory=dict)
    program: Program = field(default_factory=Program)
    feed: dict[str, Array] = field(default_factory=dict)
    parameters: dict[str, LoDTensor] = field(default_factory=dict)
    fetches: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.program.version = self.version
        block = self.program.global_block()
        names: dict[str, list[str]] = {}
        for slot, value in self.inputs.items():
            items = value if isinstance(value, list) else [value]
            names[slot] = [f"{slot}{i}" for i in range(len(items))]
            for name, item in zip(names[slot], items, strict=True):
                array = np.asarray(item)
                shape = [-1, *array.shape[1:]] if slot in self.open else list(self.declared.get(slot, array.shape))
                block.create_var(
                    name=name, shape=shape, dtype=var_type_of(array.dtype), persistable=slot in self.constant
                )
                if slot in self.constant:
                    self.parameters[name] = LoDTensor(array)
                else:
                    self.feed[name] = array
        wanted = self.outputs or {get_op(self.type).outputs[0].name: 1}
        written = {slot: [f"{slot}{i}.out" for i in range(count)] for slot, count in wanted.items()}
        self.fetches = [name for found in written.values() for name in found]
        for name in self.fetches:
            block.create_var(name=name)
        # As a file holds it: append_op would ask for outputs that programs of Paddle 2.x leave out.
        block.ops.append(Operator(block, type=self.type, inputs=names, outputs=written, attrs=dict(self.attrs)))
        self.program.touch()

    def export(self, opset: int = 17) -> Exported:
        """The graph."""
        return export(self.program, list(self.feed), self.fetches, self.parameters, opset=opset)

    def own(self) -> list[Array]:
        """What our kernels compute."""
        scope = Scope()
        for name, value in self.parameters.items():
            scope.var(name).value = value
        values = Executor(engine="numpy").run(self.program, dict(self.feed), self.fetches, scope)
        return [value.numpy() for value in values]


def run_onnx(exported: Exported, feed: Mapping[str, Any], fetches: Sequence[str]) -> list[Array]:
    """What ONNX Runtime computes; the model passes ONNX's own checker first."""
    import onnx
    import onnxruntime

    assert exported.blockers == (), exported.blockers
    written = write_model(exported.graph, name="main")
    onnx.checker.check_model(onnx.load_from_string(written.message), full_check=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(written.message, options, providers=["CPUExecutionProvider"])
    wanted = {each.name for each in session.get_inputs()}
    found: list[Array] = session.run(list(fetches), {name: a for name, a in feed.items() if name in wanted})
    return found


def check(one: OneOperator, opset: int = 17, rtol: float = 2e-6) -> None:
    """Data types and shapes are ours, numbers within `rtol` of the largest."""
    found, want = run_onnx(one.export(opset), one.feed, one.fetches), one.own()
    for name, a, b in zip(one.fetches, found, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        if b.dtype.kind != "f":
            assert np.array_equal(a, b), name
        elif b.size:
            np.testing.assert_allclose(a, b, rtol=0, atol=rtol * max(float(np.nanmax(np.abs(b))), 1e-6), err_msg=name)
