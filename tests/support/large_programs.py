"""Programs of any size for tests of growth: each kind makes one of about `size` operators, declared in full, that runs.

The kinds are those in which programs grow: chains, fans, values that stay alive, names written again, many parameters, many
blocks, blocks within blocks, loops, gradients. All start from `x`, float32 [-1, 4], or an image [-1, 2, 4, 4].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.io.inference import PADDLE_VERSION, add_feed_fetch
from fluidtool.io.saving import Layout, save_model
from fluidtool.ir import Program, Variable
from fluidtool.ir.roles import ROLE_ATTR, ROLE_VAR_ATTR, OpRole
from fluidtool.passes.backward import append_backward
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Scope
from fluidtool.tensor import LoDTensor

WIDTH = 4
ACTIVATIONS = ("tanh", "relu", "sigmoid", "softsign")


@dataclass(frozen=True, slots=True)
class LargeProgram:
    """A program, what initializes its parameters, and what it is fed and fetched."""

    program: Program
    parameters: Mapping[str, np.ndarray[Any, Any]]
    feeds: Mapping[str, np.ndarray[Any, Any]]
    fetches: Sequence[str]

    def scope(self) -> Scope:
        """A new scope with the parameters."""
        scope = Scope()
        for name, array in self.parameters.items():
            scope.var(name).value = LoDTensor(array)
        return scope

    def inference(self) -> Program:
        """A copy with feed and fetch operators, and whatever is declared."""
        program = self.program.clone()
        add_feed_fetch(program, list(self.feeds), list(self.fetches))
        program.version, program.version_field = PADDLE_VERSION, 4
        return program

    def startup(self) -> Program:
        """The program that initializes the parameters."""
        program = Program()
        block = program.global_block()
        for name, array in self.parameters.items():
            block.create_var(name=name, shape=list(array.shape), dtype="float32", persistable=True)
            attrs = {"shape": list(array.shape), "dtype": int(VarType.FP32), "value": float(array.flat[0])}
            block.append_op(type="fill_constant", outputs={"Out": [name]}, attrs=attrs)
        return program

    def save_for_training(self, folder: Path) -> Path:
        """Both programs and examples in a folder, as `fluidtool train` takes them."""
        folder.mkdir()
        (folder / "main.pb").write_bytes(self.program.serialize_to_string())
        (folder / "startup.pb").write_bytes(self.startup().serialize_to_string())
        np.savez(folder / "examples.npz", **self.feeds)
        return folder

    def save(self, folder: Path, combined: str | None = None) -> Path:
        """The model in a folder, a file for each parameter or one combined file of this name."""
        values = {name: LoDTensor(array) for name, array in self.parameters.items()}
        save_model(self.inference(), values, Layout(folder, "__model__", combined))
        return folder


@dataclass(slots=True)
class _Writer:
    """A program that grows; every name is declared with its shape before an operator writes it."""

    program: Program = field(default_factory=Program)
    parameters: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    feeds: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    count: int = 0

    def data(self, name: str, shape: Sequence[int]) -> str:
        self.program.global_block().create_var(
            name=name, shape=[-1, *shape], dtype="float32", is_data=True, stop_gradient=True
        )
        self.feeds[name] = np.linspace(-1, 1, 2 * int(np.prod(shape)), dtype="float32").reshape(2, *shape)
        return name

    def parameter(self, *shape: int, value: float = 0.25) -> str:
        name = self._fresh("w")
        self.program.global_block().create_parameter(name=name, shape=list(shape), dtype="float32")
        self.parameters[name] = np.full(shape, value, dtype="float32")
        return name

    def op(self, kind: str, inputs: Mapping[str, Any], out: str | None = None, slot: str = "Out", **attrs: Any) -> str:
        """Append an operator with one output, a new variable unless `out` names one; returns its name."""
        block = self.program.current_block()
        name = self._fresh("t") if out is None else out
        if not block.has_var_recursive(name):
            block.create_var(name=name, dtype="float32")
        block.append_op(type=kind, inputs=dict(inputs), outputs={slot: [name]}, attrs=attrs)
        return name

    def unary(self, x: str, out: str | None = None) -> str:
        """One of several activations."""
        return self.op(ACTIVATIONS[self.count % len(ACTIVATIONS)], {"X": [x]}, out)

    def add(self, x: str, y: str, axis: int = -1) -> str:
        return self.op("elementwise_add", {"X": [x], "Y": [y]}, axis=axis)

    def fc(self, x: str) -> str:
        """mul, elementwise_add, relu with parameters of their own."""
        product = self.op("mul", {"X": [x], "Y": [self.parameter(WIDTH, WIDTH)]}, x_num_col_dims=1, y_num_col_dims=1)
        return self.op("relu", {"X": [self.add(product, self.parameter(WIDTH), axis=1)]})

    def constant(self, value: float) -> str:
        return self.op("fill_constant", {}, shape=[1], dtype=int(VarType.FP32), value=value)

    def done(self, *fetches: str) -> LargeProgram:
        return LargeProgram(self.program, self.parameters, self.feeds, fetches)

    def _fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"


# ---------------------------------------------------------------- straight programs
def chain(size: int) -> LargeProgram:
    """Each operator reads what the one before it writes."""
    w = _Writer()
    x = w.data("x", (WIDTH,))
    for _ in range(size):
        x = w.unary(x)
    return w.done(x)


def in_place(size: int) -> LargeProgram:
    """One name is written again and again."""
    w = _Writer()
    name = w.unary(w.data("x", (WIDTH,)))
    for _ in range(size - 1):
        w.op("scale", {"X": [name]}, name, scale=0.5, bias=0.25)
    return w.done(name)


def fan(size: int) -> LargeProgram:
    """One variable with very many readers, and one operator with very many inputs."""
    w = _Writer()
    x = w.unary(w.data("x", (WIDTH,)))
    return w.done(w.op("sum", {"X": [w.unary(x) for _ in range(size - 2)]}))


def staying(size: int) -> LargeProgram:
    """Values of which all are alive in the middle: a chain down, and up again through the values on the way."""
    w = _Writer()
    values = [w.data("x", (WIDTH,))]
    for _ in range(size // 2):
        values.append(w.unary(values[-1]))
    x = values.pop()
    for value in reversed(values):
        x = w.add(x, value)
    return w.done(x)


def shared_weight(size: int) -> LargeProgram:
    """One parameter that every other operator reads."""
    w = _Writer()
    x, weight = w.data("x", (WIDTH,)), w.parameter(WIDTH)
    for _ in range(size // 2):
        x = w.unary(w.add(x, weight, axis=1))
    return w.done(x)


def layers(size: int) -> LargeProgram:
    """Fully connected layers: as many variables as `size`, five a layer, of which two are parameters."""
    w = _Writer()
    x = w.data("x", (WIDTH,))
    for _ in range(max(size // 5, 1)):
        x = w.fc(x)
    return w.done(x)


def files(size: int) -> LargeProgram:
    """Layers between long chains, with a parameter for every ten operators: 10,000 of 100,000."""
    w = _Writer()
    x = w.data("x", (WIDTH,))
    for _ in range(max(size // 20, 1)):
        x = w.fc(x)
        for _ in range(17):
            x = w.unary(x)
    return w.done(x)


def images(size: int) -> LargeProgram:
    """Convolution, batch_norm and relu: as many variables as `size`, ten a layer, of which five are parameters."""
    w = _Writer()
    x = w.data("x", (2, 4, 4))
    for _ in range(max(size // 10, 1)):
        conv = {"Input": [x], "Filter": [w.parameter(2, 2, 1, 1)]}
        x = w.op("conv2d", conv, slot="Output", strides=[1, 1], paddings=[0, 0], dilations=[1, 1], groups=1)
        x = w.op("relu", {"X": [_batch_norm(w, x)]})
    return w.done(x)


def _batch_norm(w: _Writer, x: str) -> str:
    names = {slot: [w.parameter(2, value=1.0)] for slot in ("Scale", "Bias", "Mean", "Variance")}
    block, out = w.program.current_block(), f"{x}.y"
    for name in (out, f"{x}.mean", f"{x}.variance"):
        block.create_var(name=name, dtype="float32")
    outputs = {"MeanOut": names["Mean"], "VarianceOut": names["Variance"]}
    outputs |= {"Y": [out], "SavedMean": [f"{x}.mean"], "SavedVariance": [f"{x}.variance"]}
    block.append_op(type="batch_norm", inputs={"X": [x], **names}, outputs=outputs, attrs={"is_test": True})
    return out


def identities(size: int) -> LargeProgram:
    """What rewrites take out: dropout and scale by one between activations; as many variables as `size`, four each time."""
    w = _Writer()
    x = w.data("x", (WIDTH,))
    for _ in range(max(size // 4, 1)):
        x = w.op("scale", {"X": [w.unary(x)]}, scale=1.0, bias=0.0)
        x = _dropout(w, x)
    return w.done(x)


def _dropout(w: _Writer, x: str) -> str:
    block, out = w.program.current_block(), f"{x}.kept"
    for name in (out, f"{x}.mask"):
        block.create_var(name=name, dtype="float32")
    attrs = {"dropout_prob": 0.5, "is_test": True, "dropout_implementation": "upscale_in_train"}
    block.append_op(type="dropout", inputs={"X": [x]}, outputs={"Out": [out], "Mask": [f"{x}.mask"]}, attrs=attrs)
    return out


def many_outputs(size: int) -> LargeProgram:
    """As many feeds and fetches as other operators."""
    w = _Writer()
    return w.done(*[w.unary(w.data(f"x{number}", (WIDTH,))) for number in range(size // 3)])


def declared(size: int) -> LargeProgram:
    """Very many variables, which hardly any operator uses; a third of them are parameters."""
    w = _Writer()
    x = w.data("x", (WIDTH,))
    for number in range(size - size // 3):
        w.program.global_block().create_var(name=f"v{number}", shape=[-1, WIDTH], dtype="float32")
    for _ in range(size // 3):
        w.parameter(WIDTH)
    return w.done(w.unary(x))


def alternating(size: int) -> LargeProgram:
    """Operators that the native engine computes between those that it lacks."""
    w = _Writer()
    x = w.data("x", (WIDTH,))
    for _ in range(size // 3):
        x = w.op("sin", {"X": [w.add(w.unary(x), x)]})
    return w.done(x)


# ---------------------------------------------------------------- blocks
def branches(size: int) -> LargeProgram:
    """Very many branches, each with a block of its own."""
    w = _Writer()
    x = w.data("x", (WIDTH,))
    condition = w.op("less_than", {"X": [w.constant(0.0)], "Y": [w.constant(1.0)]})
    for _ in range(size // 3):
        x = _branch(w, x, condition, w.unary)
    return w.done(x)


def nested(depth: int) -> LargeProgram:
    """A branch within a branch, `depth` blocks deep."""
    w = _Writer()
    x = w.data("x", (WIDTH,))
    condition = w.op("less_than", {"X": [w.constant(0.0)], "Y": [w.constant(1.0)]})
    body: Callable[[str], str] = w.unary
    for _ in range(depth):
        body = partial(_branch, w, condition=condition, body=body)
    return w.done(body(x))


def deep_chains(size: int, depth: int = 32) -> LargeProgram:
    """Branches within branches, with long chains before and after each."""
    w = _Writer()
    x = w.data("x", (WIDTH,))
    condition = w.op("less_than", {"X": [w.constant(0.0)], "Y": [w.constant(1.0)]})
    length = max(size // (2 * depth), 1)

    def level(x: str, left: int) -> str:
        for _ in range(length):
            x = w.unary(x)
        if left:
            x = _branch(w, x, condition, partial(level, left=left - 1))
        for _ in range(length):
            x = w.unary(x)
        return x

    return w.done(level(x, depth - 1))


def loop(size: int) -> LargeProgram:
    """A loop that runs a long chain twice, and reads at its end what was computed before the loop."""
    w = _Writer()
    first = w.unary(w.data("x", (WIDTH,)))
    carried = w.op("assign", {"X": [first]})
    counter, end = w.constant(0.0), w.constant(2.0)
    condition = w.op("less_than", {"X": [counter], "Y": [end]})
    around = w.program.current_block()
    around.create_var(name="scopes", type=VarType.STEP_SCOPES)
    block = w.program.create_block()
    x = carried
    for _ in range(size):
        x = w.unary(x)
    w.op("assign", {"X": [w.add(x, first)]}, carried)
    w.op("increment", {"X": [counter]}, counter, step=1.0)
    w.op("less_than", {"X": [counter], "Y": [end]}, condition)
    w.program.rollback()
    around.append_op(
        type="while",
        inputs={"X": [carried, first, counter, end], "Condition": [condition]},
        outputs={"Out": [carried, counter, condition], "StepScopes": ["scopes"]},
        attrs={"sub_block": block},
    )
    return w.done(carried)


def _branch(w: _Writer, x: str, condition: str, body: Callable[[str], str]) -> str:
    """A conditional block whose body's result goes to a variable from outside."""
    around = w.program.current_block()
    out, scopes = w._fresh("t"), w._fresh("scopes")
    around.create_var(name=out, shape=[-1, WIDTH], dtype="float32")
    around.create_var(name=scopes, type=VarType.STEP_SCOPES)
    block = w.program.create_block()
    w.op("assign", {"X": [body(x)]}, out)
    w.program.rollback()
    around.append_op(
        type="conditional_block",
        inputs={"Cond": [condition], "Input": [x]},
        outputs={"Out": [out], "Scope": [scopes]},
        attrs={"sub_block": block, "is_scalar_condition": True},
    )
    return out


# ---------------------------------------------------------------- training
def training(size: int) -> LargeProgram:
    """Layers with their gradients and an optimizer: about eleven operators a layer."""
    w = _Writer()
    x = w.data("x", (WIDTH,))
    for _ in range(max(size // 11, 1)):
        x = w.fc(x)
    loss = w.op("mean", {"X": [x]})
    block = w.program.global_block()
    block.create_var(name="rate", shape=[1], dtype="float32", persistable=True)
    w.parameters["rate"] = np.array([0.125], dtype="float32")
    pairs: list[tuple[Variable, Variable | None]] = append_backward(block.var(loss))
    for parameter, gradient in pairs:
        assert gradient is not None
        names = {"Param": [parameter.name], "Grad": [gradient.name], "LearningRate": ["rate"]}
        attrs = {ROLE_ATTR: int(OpRole.Optimize), ROLE_VAR_ATTR: [parameter.name, gradient.name]}
        block.append_op(type="sgd", inputs=names, outputs={"ParamOut": [parameter.name]}, attrs=attrs)
    return w.done(loss)


STRAIGHT: dict[str, Callable[[int], LargeProgram]] = {
    each.__name__: each
    for each in (
        chain,
        in_place,
        fan,
        staying,
        shared_weight,
        layers,
        files,
        images,
        identities,
        many_outputs,
        declared,
        alternating,
    )
}
BLOCKS: dict[str, Callable[[int], LargeProgram]] = {each.__name__: each for each in (branches, deep_chains, loop)}
INFERENCE = {**STRAIGHT, **BLOCKS}
