"""The optimizers that servers run most, in place and in chunks: the mean of gradients, sgd, momentum, adam."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from fluidtool.distribute.pserver.in_place import (
    Array,
    Form,
    alike,
    are_ascending,
    chunks,
    decay,
    fit,
    is_gradient_of,
    is_plain,
    is_rows_of,
    owned,
)
from fluidtool.ops import context
from fluidtool.runtime.block import BoundBlock, one_by_one
from fluidtool.runtime.scope import ScopeVariable
from fluidtool.runtime.step import BoundStep
from fluidtool.tensor import SelectedRows

OWN_REFERENCES = 2  # references to an array that one attribute alone holds, counted there


class Mean(Form):
    """`sum` of what trainers sent and the `scale` behind it, in one pass and always the same memory."""

    def __init__(self, step: BoundStep) -> None:
        super().__init__(step)
        self._scale: BoundStep | None = None
        self._total: Array = np.empty(0, np.float32)

    def takes(self, step: BoundStep) -> bool:
        """Take a plain scale of the sum over; whether it was one."""
        op = step.context.op
        result = self.context.op.output("Out")
        if self._scale is not None or op.type != "scale" or op.input("X") != result or op.output("Out") != result:
            return False
        if step.context.inputs.get("ScaleTensor") or op.get_attr("bias", 0.0):
            return False
        self._scale = step
        return True

    def run(self) -> None:
        """The mean, or what the two operators make of it."""
        if not self._run():
            self.step.run()
            if self._scale is not None:
                self._scale.run()

    def _run(self) -> bool:
        parts = [holder.value for holder in self.context.inputs["X"]]
        if not parts or not all(is_plain(part) for part in parts):
            return False
        arrays = [part.array for part in parts if part.array.size]
        if not arrays or any(array.shape != arrays[0].shape or array.dtype != arrays[0].dtype for array in arrays):
            return False
        (out,) = self.context.outputs["Out"]
        out.value = None
        fits = self._total.shape == arrays[0].shape and self._total.dtype == arrays[0].dtype
        if not fits or sys.getrefcount(self._total) > OWN_REFERENCES:
            self._total = np.empty_like(arrays[0], order="C")
        self._add([array.reshape(-1) for array in arrays], self._total.reshape(-1))
        out.set_tensor(self._total, [])
        return True

    def _add(self, arrays: list[Array], total: Array) -> None:
        factor = 1.0 if self._scale is None else self._scale.attrs["scale"]
        by = total.dtype.type(factor)
        first, *others = arrays
        for part in chunks(total.size):
            if others:
                np.add(first[part], others[0][part], out=total[part])
            else:
                total[part] = first[part]
            for other in others[1:]:
                total[part] += other[part]
            if factor != 1:
                total[part] *= by


class Sgd(Form):
    """p -= rate * g, of all elements or of the rows that have a gradient."""

    def _run(self) -> bool:
        parameter, gradient = self._in("Param"), self._in("Grad")
        if parameter is None or gradient is None or not self._in_place("Param"):
            return False
        grad, shape = gradient.value, parameter.value.array.shape
        rate = self._number("LearningRate", parameter.value.array)
        if rate is None:
            return False
        if isinstance(grad, SelectedRows):
            return self._rows(parameter, grad, rate, shape)
        if not is_plain(grad) or grad.array.shape != shape or grad.array.dtype != parameter.value.array.dtype:
            return False
        p, g = owned(parameter), grad.array.reshape(-1)
        work = self._work(p)
        for part in chunks(p.size):
            step = work[: part.stop - part.start]
            np.multiply(g[part], rate, out=step)
            p[part] -= step
        return True

    def _rows(self, parameter: ScopeVariable, grad: SelectedRows, rate: Any, shape: tuple[int, ...]) -> bool:
        rows = grad.row_ids
        if not fit(grad, parameter.value.array) or not are_ascending(rows):
            return False
        table = owned(parameter).reshape(shape)
        table[rows] += -rate * grad.value
        return True


class Momentum(Form):
    """v = mu * v + g; p -= rate * v; with a sparse gradient too, where rows without have gradient 0."""

    def _run(self) -> bool:
        parameter, velocity, gradient = self._in("Param"), self._in("Velocity"), self._in("Grad")
        attrs = self.step.attrs
        if parameter is None or velocity is None or gradient is None or attrs["use_nesterov"]:
            return False
        if not self._in_place("Param", "Velocity") or not alike(parameter, velocity):
            return False
        grad, shape, mu = gradient.value, parameter.value.array.shape, attrs["mu"]
        rate = self._number("LearningRate", parameter.value.array)
        sparse = isinstance(grad, SelectedRows)
        if rate is None or not (is_rows_of(grad, parameter) if sparse else is_gradient_of(grad, parameter)):
            return False
        p, v = owned(parameter), owned(velocity)
        flat = None if sparse else grad.array.reshape(-1)
        if sparse:
            decay(v, mu)
            v.reshape(shape)[grad.row_ids] += grad.value
        work = self._work(p)
        for part in chunks(p.size):
            step = work[: part.stop - part.start]
            if flat is not None:
                v[part] *= mu
                v[part] += flat[part]
            np.multiply(v[part], rate, out=step)
            p[part] -= step
        return True


class Adam(Form):
    """m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g², p -= rate * m / (sqrt(v) + epsilon), as `adam` has it."""

    def _run(self) -> bool:
        holders = [self._in(slot) for slot in ("Param", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow", "Grad")]
        if any(holder is None for holder in holders) or self._in("Beta1Tensor") or self._in("Beta2Tensor"):
            return False
        parameter, moment1, moment2, power1, power2, gradient = (holder for holder in holders if holder is not None)
        in_place = self._in_place("Param", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow")
        if not in_place or self._in("SkipUpdate") or not alike(parameter, moment1, moment2):
            return False
        grad, sparse = gradient.value, isinstance(gradient.value, SelectedRows)
        if not (is_rows_of(grad, parameter) if sparse else self._is_ours(grad, parameter)):
            return False
        step = self._step_size(parameter.value.array, sparse)
        if step is None:
            return False
        shape, attrs = parameter.value.array.shape, self.step.attrs
        p, m, v = (owned(holder).reshape(shape) for holder in (parameter, moment1, moment2))
        if not sparse:
            self._dense(p.reshape(-1), m.reshape(-1), v.reshape(-1), grad.array.reshape(-1), step)
        else:
            (self._lazy if attrs["lazy_mode"] else self._all)(p, m, v, grad, step)
        for power, beta in ((power1, attrs["beta1"]), (power2, attrs["beta2"])):
            power.set_tensor(power.value.array * beta, power.value.offsets)
        return True

    def _is_ours(self, grad: Any, parameter: ScopeVariable) -> bool:
        """A dense gradient, where the native engine is not there to do it."""
        return not self.context.runtime.plan.changed_by(self.context.op) and is_gradient_of(grad, parameter)

    def _step_size(self, like: Array, sparse: bool) -> Any:
        """Sparse gradients move the powers on before they are used, as Paddle's kernel does."""
        rate = self._number("LearningRate", like)
        power1, power2 = self._number("Beta1Pow", like), self._number("Beta2Pow", like)
        if rate is None or power1 is None or power2 is None:
            return None
        if sparse:
            power1, power2 = power1 * self.step.attrs["beta1"], power2 * self.step.attrs["beta2"]
        return rate * (np.sqrt(1 - power2) / (1 - power1))

    def _dense(self, p: Array, m: Array, v: Array, grad: Array, step: Any) -> None:
        beta1, beta2, work = self.step.attrs["beta1"], self.step.attrs["beta2"], self._work(p)
        for part in chunks(p.size):
            new = work[: part.stop - part.start]
            m[part] *= beta1
            np.multiply(grad[part], 1 - beta1, out=new)
            m[part] += new
            v[part] *= beta2
            np.multiply(grad[part], 1 - beta2, out=new)
            new *= grad[part]
            v[part] += new
            self._move_part(p[part], m[part], v[part], new, step)

    def _moments(self, m: Array, v: Array, rows: Array, grad: Array) -> None:
        beta1, beta2 = self.step.attrs["beta1"], self.step.attrs["beta2"]
        m[rows] += (1 - beta1) * grad
        v[rows] += (1 - beta2) * grad * grad

    def _all(self, p: Array, m: Array, v: Array, grad: SelectedRows, step: Any) -> None:
        decay(m.reshape(-1), self.step.attrs["beta1"])
        decay(v.reshape(-1), self.step.attrs["beta2"])
        self._moments(m, v, grad.row_ids, grad.value)
        self._move(p.reshape(-1), m.reshape(-1), v.reshape(-1), step)

    def _lazy(self, p: Array, m: Array, v: Array, grad: SelectedRows, step: Any) -> None:
        attrs, rows = self.step.attrs, grad.row_ids
        moment1 = attrs["beta1"] * m[rows] + (1 - attrs["beta1"]) * grad.value
        moment2 = attrs["beta2"] * v[rows] + (1 - attrs["beta2"]) * grad.value * grad.value
        p[rows] -= step * (moment1 / (np.sqrt(moment2) + attrs["epsilon"]))
        m[rows], v[rows] = moment1, moment2

    def _move(self, p: Array, m: Array, v: Array, step: Any) -> None:
        work = self._work(p)
        for part in chunks(p.size):
            self._move_part(p[part], m[part], v[part], work[: part.stop - part.start], step)

    def _move_part(self, p: Array, m: Array, v: Array, work: Array, step: Any) -> None:
        np.sqrt(v, out=work)
        work += self.step.attrs["epsilon"]
        np.divide(m, work, out=work)
        work *= step
        p -= work


FORMS: dict[str, type[Form]] = {"sum": Mean, "sgd": Sgd, "momentum": Momentum, "adam": Adam}


def update_in_place(block: context.BoundBlock) -> None:
    """Give the steps of a bound block their form here, where they have one."""
    if not isinstance(block, BoundBlock):
        return
    steps: list[Any] = []
    for step in one_by_one(block.steps, whole=True):
        if not isinstance(step, BoundStep):
            steps.append(step)
        elif not (steps and isinstance(steps[-1], Mean) and steps[-1].takes(step)):
            kind = FORMS.get(step.context.op.type)
            steps.append(step if kind is None else kind(step))
    block.steps = tuple(steps)
