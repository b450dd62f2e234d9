"""Small programs written down by hand, with random parameters, for the tests of rewrites."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from fluidtool.ir import Block, Operator, Program
from fluidtool.passes.result import PassResult
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor

Pass = Callable[[Program, Scope, Collection[str]], PassResult]


class CheckedNet:
    """A program, its parameters in `scope`, and the feeds `run` uses; data type float64 unless said otherwise."""

    def __init__(self, dtype: str = "float64", seed: int = 0) -> None:
        self.program, self.scope, self.dtype = Program(), Scope(), dtype
        self.random = np.random.default_rng(seed)
        self.feed: dict[str, Any] = {}
        self.made = 0

    @property
    def block(self) -> Block:
        return self.program.global_block()

    @property
    def types(self) -> list[str]:
        return [op.type for op in self.block.ops]

    def input(self, name: str, *shape: int, lod: Sequence[Sequence[int]] = ()) -> str:
        """A variable that is fed random numbers; lod as lengths."""
        array = self.random.uniform(-1, 1, shape).astype(self.dtype)
        self.block.create_var(name=name, shape=[-1, *shape[1:]], dtype=self.dtype, lod_level=len(lod))
        value: Any = array
        if lod:
            value = LoDTensor(array)
            value.set_recursive_sequence_lengths(lod)
        self.feed[name] = value
        return name

    def parameter(self, name: str, *shape: int, low: float = -1.0, high: float = 1.0, dtype: str = "") -> str:
        """A persistable variable with random numbers in the scope."""
        array = self.random.uniform(low, high, shape).astype(dtype or self.dtype)
        self.block.create_parameter(name=name, shape=list(shape), dtype=dtype or self.dtype)
        self.scope.var(name).value = LoDTensor(array)
        return name

    def value(self, name: str) -> np.ndarray[Any, Any]:
        """The array of a parameter."""
        return np.asarray(self.scope.find_var(name).get_tensor())  # type: ignore[union-attr]

    def op(
        self,
        type: str,
        inputs: dict[str, Any],
        out: str = "",
        slot: str = "Out",
        more: dict[str, Any] | None = None,
        block: Block | None = None,
        **attrs: Any,
    ) -> str:
        """Append an operator; the name of what it writes to `slot`."""
        block = block or self.block
        self.made += 1
        out = out or f"{type}_{self.made}"
        for name in (
            out,
            *(name for names in (more or {}).values() for name in ([names] if isinstance(names, str) else names)),
        ):
            if not block.has_var_recursive(name):
                block.create_var(name=name, dtype=self.dtype)
        op = Operator(block, type=type, inputs=inputs, outputs={slot: [out], **(more or {})}, attrs=attrs)
        block.ops.append(op)
        self.program.touch()
        return out

    def conv(self, x: str, filter: str, type: str = "conv2d", **attrs: Any) -> str:
        dims = 3 if "3d" in type else 2
        attrs = {"strides": [1] * dims, "paddings": [1] * dims, "dilations": [1] * dims, "groups": 1, **attrs}
        return self.op(type, {"Input": x, "Filter": filter}, slot="Output", **attrs)

    def add(self, x: str, y: str, axis: int = 1, **more: Any) -> str:
        return self.op("elementwise_add", {"X": x, "Y": y}, axis=axis, **more)

    def batch_norm(self, x: str, channels: int, name: str = "bn", **attrs: Any) -> str:
        """A batch_norm in inference, with an epsilon that is not the default."""
        if f"{name}.scale" not in self.block.vars:
            self.parameter(f"{name}.scale", channels)
            self.parameter(f"{name}.bias", channels)
            self.parameter(f"{name}.mean", channels)
            self.parameter(f"{name}.variance", channels, low=0.1, high=2.0)
        inputs = {slot: f"{name}.{slot.lower()}" for slot in ("Scale", "Bias", "Mean", "Variance")}
        self.made += 1
        saved = {"SavedMean": f"saved_mean_{self.made}", "SavedVariance": f"saved_variance_{self.made}"}
        more = {"MeanOut": f"{name}.mean", "VarianceOut": f"{name}.variance", **saved}
        attrs = {"is_test": True, "epsilon": 1e-3, "data_layout": "NCHW", **attrs}
        return self.op("batch_norm", {"X": x, **inputs}, slot="Y", more=more, **attrs)

    def values(self, *fetch: str) -> list[LoDTensor]:
        """The fetched values of one run."""
        return Executor().run(self.program, self.feed, list(fetch), self.scope)

    def run(self, *fetch: str) -> list[np.ndarray[Any, Any]]:
        """The arrays of the fetched values."""
        return [value.numpy() for value in self.values(*fetch)]

    def check(self, rewrite: Pass, *fetch: str, keep: Collection[str] | None = None, rtol: float = 1e-9) -> PassResult:
        """Run, rewrite, run again: numbers (bit-equal for rtol 0) and LoD stay, and a second rewrite changes nothing."""
        before = self.values(*fetch)
        result = rewrite(self.program, self.scope, fetch if keep is None else keep)
        for name, old, new in zip(fetch, before, self.values(*fetch), strict=True):
            assert old.dtype() == new.dtype() and old.shape() == new.shape() and old.lod() == new.lod(), name
            np.testing.assert_allclose(new.numpy(), old.numpy(), rtol=rtol, atol=rtol, err_msg=name)
        again = rewrite(self.program, self.scope, fetch if keep is None else keep)
        assert not again.changed
        return result

    def check_left(self, rewrite: Pass, *fetch: str, reason: str, keep: Collection[str] | None = None) -> None:
        """The rewrite changes nothing and says why."""
        types = self.types
        result = self.check(rewrite, *fetch, keep=keep, rtol=0.0)
        assert not result.changed and self.types == types
        assert [reason in decision.reason for decision in result.left] == [True], [str(d) for d in result.left]
