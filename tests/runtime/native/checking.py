"""One small program, run by the native engine and by numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool.ir import Program
from fluidtool.ops.inference import infer_declared
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.partition import Region, reasons
from fluidtool.tensor import LoDTensor

Array = np.ndarray[Any, Any]
RTOL = 3e-6  # of the largest number of an output: sums of some hundred products in another order


class Net:
    """A program that grows operator by operator; `data` is fed, `parameter` is constant."""

    def __init__(self, seed: int = 0) -> None:
        self.program, self.scope = Program(), Scope()
        self.feeds: dict[str, Any] = {}
        self.random = np.random.default_rng(seed)
        self.count = 0

    def data(self, *shape: int, of: Array | None = None) -> str:
        array = self.random.standard_normal(shape).astype(np.float32) if of is None else of
        return self._declare(array, "data", persistable=False)

    def parameter(self, *shape: int, of: Array | None = None) -> str:
        array = self.random.standard_normal(shape).astype(np.float32) if of is None else of
        return self._declare(array, "parameter", persistable=True)

    def _declare(self, array: Array, kind: str, persistable: bool) -> str:
        name = f"{kind}{self.count}"
        self.count += 1
        dtype = {"l": VarType.INT64, "i": VarType.INT32, "?": VarType.BOOL}.get(array.dtype.char, VarType.FP32)
        self.program.global_block().create_var(name=name, shape=array.shape, dtype=dtype, persistable=persistable)
        if persistable:
            self.scope.var(name).value = LoDTensor(array)
        else:
            self.feeds[name] = array
        return name

    def op(self, type: str, slot: str, inputs: Mapping[str, Any], *more: str, **attrs: Any) -> str:
        """Append an operator; returns the variable of its output `slot`. `more` are output slots that nobody reads."""
        return self.several(type, dict.fromkeys((slot, *more), 1), inputs, **attrs)[0]

    def several(self, type: str, slots: Mapping[str, int], inputs: Mapping[str, Any], **attrs: Any) -> list[str]:
        """Append an operator; returns the variables of its outputs, so many by slot."""
        block = self.program.global_block()
        made = (f"{type}{self.count}_{number}" for number in range(sum(slots.values())))
        outputs = {slot: [next(made) for _ in range(count)] for slot, count in slots.items()}
        for name in [name for names in outputs.values() for name in names]:
            block.create_var(name=name, dtype=VarType.FP32)
        self.count += 1
        named = {key: [value] if isinstance(value, str) else list(value) for key, value in inputs.items()}
        op = block.append_op(type=type, inputs=named, outputs=outputs, attrs=attrs)
        infer_declared(op)
        return [name for names in outputs.values() for name in names]

    def conv(self, x: str, weights: str, **attrs: Any) -> str:
        settled = {"strides": [1, 1], "paddings": [0, 0], "dilations": [1, 1], "groups": 1} | attrs
        kind = settled.pop("type", "conv2d")
        return self.op(kind, "Output", {"Input": x, "Filter": weights}, **settled)

    def run(self, engine: str, *fetches: str) -> list[Array]:
        executor = Executor(engine=engine)
        values = executor.run(self.program, self.feeds, list(fetches), self.scope)
        self.plan = executor.plan(self.program, list(fetches)).block(0)
        return [value.numpy() for value in values]

    def why_not(self) -> list[str]:
        """Why regions of the last run were left to numpy."""
        return list(reasons(self.plan.work).values())

    def regions(self) -> int:
        """How many regions the last run had."""
        return sum(isinstance(step, Region) for step in self.plan.work)


def check(net: Net, *fetches: str, rtol: float = RTOL, scale: float = 1e-30) -> None:
    """Both engines give the same, and the native one did all of it."""
    agree(net, fetches, rtol, scale)
    assert net.why_not() == []
    assert net.regions() == len(net.plan.work) == 1


def agree(net: Net, fetches: Sequence[str], rtol: float = RTOL, scale: float = 1e-30) -> None:
    """Both engines give the same; `scale` is the size of what was summed, where sums may cancel."""
    want = net.run("numpy", *fetches)
    for _ in range(2):  # the second run finds the arena used
        got = net.run("native", *fetches)
        for a, b in zip(got, want, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            if a.dtype.kind == "i":
                np.testing.assert_array_equal(a, b)
                continue
            largest = np.abs(b[np.isfinite(b)]).max(initial=scale)
            np.testing.assert_allclose(a, b, rtol=0, atol=rtol * float(largest))


def calls_of(net: Net) -> list[Any]:
    """The kernel calls of the only region of the last run."""
    (region,) = (step for step in net.plan.work if isinstance(step, Region))
    (specialization,) = region.specializations.kept.values()
    return list(specialization.kernel_calls)  # type: ignore[attr-defined]


def kernels(net: Net) -> list[str]:
    """The kernels of the steps of the last run."""
    return [kernel_call.kind.name for kernel_call in calls_of(net)]
