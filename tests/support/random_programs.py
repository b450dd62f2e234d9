"""Random programs for tests of passes: they run, and hold what passes stumble over.

Convolutions, normalization, fully connected layers, activations in place and not, shared weights, branches, concat and
split, names that are written again, results that nothing reads; on demand loops, branches on conditions, training.
Attributes are exact in float32, so that saving and loading a program changes no bit of its results.

    program = random_program(pick_from(seed=3))                     # or within hypothesis: programs().example()
    before = program.run()
    rewrite(program.program, program.scope())
    after = program.run()
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fluidtool.ir import Operator, Program, Variable
from fluidtool.ir.roles import ROLE_ATTR, ROLE_VAR_ATTR, OpRole
from fluidtool.ops.inference import infer_declared
from fluidtool.passes.backward import append_backward
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor

Pick = Callable[[int], int]  # n -> one of 0 … n - 1
Array = np.ndarray[Any, Any]
BATCH = 2


@dataclass(frozen=True, slots=True)
class RandomProgram:
    """A program with everything that a run of it takes."""

    program: Program
    parameters: dict[str, Array]
    feeds: dict[str, Array]
    fetches: tuple[str, ...]
    trains: bool = False

    def __repr__(self) -> str:
        ops = "\n".join(f"  {block.idx}: {op}" for block in self.program.blocks for op in block.ops)
        return f"fetches {', '.join(self.fetches)} of\n{ops}"

    def scope(self) -> Scope:
        """A new scope that holds the parameters."""
        scope = Scope()
        for name, array in self.parameters.items():
            scope.var(name).value = LoDTensor(array.copy())
        return scope

    def run(self, program: Program | None = None, scope: Scope | None = None) -> list[Array]:
        """The fetched values of one run, then every persistable value (sorted by name)."""
        scope = self.scope() if scope is None else scope
        values = Executor(seed=5).run(self.program if program is None else program, self.feeds, self.fetches, scope)
        assert scope.kids == []
        kept = [scope.find_var(name).value for name in sorted(self.parameters)]  # type: ignore[union-attr]
        return [value.numpy() for value in (*values, *kept)]


def pick_from(seed: int) -> Pick:
    """Repeatable choices."""
    return random.Random(seed).randrange


@st.composite
def programs(draw: st.DrawFn, **options: Any) -> RandomProgram:
    """Random programs as a hypothesis strategy (options of `random_program`); failures shrink to few layers."""
    return random_program(lambda n: draw(st.integers(0, n - 1)), **options)


def random_program(
    pick: Pick,
    *,
    largest: int = 12,
    blocks: bool = False,
    in_place: bool = True,
    trains: bool = False,
    feed_fetch: bool = False,
) -> RandomProgram:
    """A program of up to `largest` layers on an image and rows.

    blocks: with loops and conditional blocks. in_place: operators that write over their input, and names that are
    written again. trains: with a loss, gradients and SGD (without blocks). feed_fetch: with feed and fetch operators.
    """
    writer = _Writer(pick, trains)
    writer.start()
    layers = [*IMAGE_LAYERS, *ROW_LAYERS, _to_rows]
    if in_place:
        layers += IN_PLACE_LAYERS
    if blocks and not trains:
        layers += [_branch_on_condition, _loop]
    for _ in range(1 + pick(largest)):
        layers[pick(len(layers))](writer)
    _fc(writer)
    fetches = writer.results()
    if trains:
        fetches = (*fetches, _train(writer))
    if feed_fetch:
        _add_feed_fetch(writer, fetches)
    return RandomProgram(writer.program, writer.parameters, writer.feeds, fetches, trains)


# ---------------------------------------------------------------- writing
@dataclass
class _Writer:
    """The program so far; `images` and `rows` are names that layers may read, with their sizes beside the batch."""

    pick: Pick
    trains: bool
    program: Program = field(default_factory=Program)
    parameters: dict[str, Array] = field(default_factory=dict)
    feeds: dict[str, Array] = field(default_factory=dict)
    images: list[tuple[str, tuple[int, int, int]]] = field(default_factory=list)
    rows: list[tuple[str, int]] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    count: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(11))

    def start(self) -> None:
        """An image [-1, 3, 6, 6] and rows [-1, 5] are fed."""
        self.data("image", (3, 6, 6))
        self.data("row", (5,))
        self.images.append(("image", (3, 6, 6)))
        self.rows.append(("row", 5))

    def data(self, name: str, shape: Sequence[int]) -> None:
        """A fed variable."""
        self.program.global_block().create_var(
            name=name, shape=[-1, *shape], dtype="float32", is_data=True, stop_gradient=True
        )
        self.feeds[name] = self.rng.normal(size=(BATCH, *shape)).astype(np.float32)

    def parameter(self, shape: Sequence[int], value: float | None = None) -> str:
        """A parameter: small random numbers, of which one in four is there already; or a statistic: one value."""
        same = [name for name, array in self.parameters.items() if array.shape == tuple(shape) and name[0] == "w"]
        if value is None and same and self.pick(4) == 0:
            return same[self.pick(len(same))]
        name = self.fresh("w" if value is None else "statistic")
        self.program.global_block().create_parameter(name=name, shape=list(shape), dtype="float32")
        if value is not None:
            self.program.global_block().var(name).stop_gradient = True
        noise = self.rng.normal(scale=0.4, size=shape) if value is None else np.full(shape, value)
        self.parameters[name] = noise.astype(np.float32)
        return name

    def fresh(self, prefix: str = "t") -> str:
        """A name that is not taken."""
        self.count += 1
        return f"{prefix}{self.count}"

    def op(self, type: str, inputs: dict[str, Any], outputs: dict[str, Any], **attrs: Any) -> Operator:
        """Append an operator to the current block, declare its outputs as it implies."""
        block = self.program.current_block()
        names = [n for value in outputs.values() for n in ([value] if isinstance(value, str) else value)]
        for name in names:
            if not block.has_var_recursive(name):
                block.create_var(name=name, dtype="float32")
        op = block.append_op(type=type, inputs=inputs, outputs=outputs, attrs=attrs)
        infer_declared(op)
        self.unread -= set(op.input_arg_names)
        self.unread |= set(names)
        return op

    def plain(self, type: str, x: str, **attrs: Any) -> str:
        """An operator with input X and a new output Out."""
        out = self.fresh()
        self.op(type, {"X": x}, {"Out": out}, **attrs)
        return out

    def image(self) -> tuple[str, tuple[int, int, int]]:
        """One of the images."""
        return self.images[self.pick(len(self.images))]

    def row(self) -> tuple[str, int]:
        """One of the rows."""
        return self.rows[self.pick(len(self.rows))]

    def results(self) -> tuple[str, ...]:
        """What is fetched: every other result that nothing reads, and one value from the middle."""
        known = [name for name, _ in [*self.rows, *self.images] if name not in self.feeds]
        ends = [name for name in known if name in self.unread]
        chosen = ends[:1] + [name for name in ends[1:] if self.pick(2)] + [known[self.pick(len(known))]]
        return tuple(dict.fromkeys(chosen))


# ---------------------------------------------------------------- layers on images
def _conv(w: _Writer) -> None:
    x, (c, height, width) = w.image()
    grouped, filters, out = w.pick(3) == 0, 4, w.fresh()
    groups = c if grouped else 1
    filters = c if grouped else filters
    weight = w.parameter((filters, c // groups, 3, 3))
    kind = "depthwise_conv2d" if grouped and c > 1 else "conv2d"
    attrs: dict[str, Any] = {"strides": [1, 1], "paddings": [1, 1], "dilations": [1, 1], "groups": groups}
    w.op(kind, {"Input": x, "Filter": weight}, {"Output": out}, **attrs)
    if w.pick(2):
        biased = w.fresh()
        w.op("elementwise_add", {"X": out, "Y": w.parameter((filters,))}, {"Out": biased}, axis=1)
        out = biased
    w.images.append((out, (filters, height, width)))


def _batch_norm(w: _Writer) -> None:
    x, (c, height, width) = w.image()
    out, is_test = w.fresh(), not w.trains
    mean, variance = w.parameter((c,), 0.1), w.parameter((c,), 0.9)
    inputs = {"X": x, "Scale": w.parameter((c,)), "Bias": w.parameter((c,)), "Mean": mean, "Variance": variance}
    outputs = {
        "Y": out,
        "MeanOut": mean,
        "VarianceOut": variance,
        "SavedMean": w.fresh("saved"),
        "SavedVariance": w.fresh("saved"),
    }
    w.op("batch_norm", inputs, outputs, is_test=is_test, momentum=0.875, epsilon=2.0**-17, data_layout="NCHW")
    w.images.append((out, (c, height, width)))


def _pool(w: _Writer) -> None:
    x, (c, height, width) = w.image()
    if height < 2 or width < 2:
        return
    kind = ("max", "avg")[w.pick(2)]
    out = w.plain("pool2d", x, pooling_type=kind, ksize=[2, 2], strides=[2, 2], paddings=[0, 0])
    w.images.append((out, (c, height // 2, width // 2)))


def _image_activation(w: _Writer) -> None:
    x, size = w.image()
    w.images.append((w.plain(("relu", "sigmoid", "leaky_relu", "relu6")[w.pick(4)], x), size))


def _image_sum(w: _Writer) -> None:
    x, size = w.image()
    same = [name for name, other in w.images if other == size]
    out = w.fresh()
    w.op("elementwise_add", {"X": x, "Y": same[w.pick(len(same))]}, {"Out": out}, axis=-1)
    w.images.append((out, size))


def _image_concat(w: _Writer) -> None:
    x, (c, height, width) = w.image()
    fits = [(name, size[0]) for name, size in w.images if size[1:] == (height, width)]
    y, more = fits[w.pick(len(fits))]
    if c + more > 16:
        return
    out = w.fresh()
    w.op("concat", {"X": [x, y]}, {"Out": out}, axis=1)
    w.images.append((out, (c + more, height, width)))


def _image_split(w: _Writer) -> None:
    x, (c, height, width) = w.image()
    if c < 2:
        return
    parts = [w.fresh(), w.fresh()]
    w.op("split", {"X": x}, {"Out": parts}, axis=1, sections=[1, c - 1])
    w.images += [(parts[0], (1, height, width)), (parts[1], (c - 1, height, width))]


def _to_rows(w: _Writer) -> None:
    x, (c, height, width) = w.image()
    out = w.fresh()
    w.op("reshape2", {"X": x}, {"Out": out, "XShape": w.fresh("xshape")}, shape=[0, c * height * width])
    w.rows.append((out, c * height * width))


IMAGE_LAYERS = [_conv, _conv, _batch_norm, _pool, _image_activation, _image_sum, _image_concat, _image_split]


# ---------------------------------------------------------------- layers on rows
def _fc(w: _Writer) -> None:
    x, size = w.row()
    width, product, out = (5, 3, 8)[w.pick(3)], w.fresh(), w.fresh()
    w.op("mul", {"X": x, "Y": w.parameter((size, width))}, {"Out": product}, x_num_col_dims=1, y_num_col_dims=1)
    w.op("elementwise_add", {"X": product, "Y": w.parameter((width,))}, {"Out": out}, axis=1)
    w.rows.append((out, width))


def _row_activation(w: _Writer) -> None:
    x, size = w.row()
    w.rows.append((w.plain(("tanh", "relu", "softmax", "scale")[w.pick(4)], x), size))


def _dropout(w: _Writer) -> None:
    x, size = w.row()
    out = w.fresh()
    attrs: dict[str, Any] = {"dropout_prob": 0.25, "is_test": not w.trains, "fix_seed": True, "seed": 7}
    w.op("dropout", {"X": x}, {"Out": out, "Mask": w.fresh("mask")}, **attrs)
    w.rows.append((out, size))


def _row_product(w: _Writer) -> None:
    x, size = w.row()
    same = [name for name, other in w.rows if other == size]
    out, kind = w.fresh(), ("elementwise_mul", "elementwise_sub", "elementwise_add")[w.pick(3)]
    bounded = w.plain("tanh", same[w.pick(len(same))])
    w.op(kind, {"X": x, "Y": bounded}, {"Out": out}, axis=-1)
    w.rows.append((out, size))


def _row_concat(w: _Writer) -> None:
    (x, size), (y, more), out = w.row(), w.row(), w.fresh()
    if size + more > 200:
        return
    w.op("concat", {"X": [x, y]}, {"Out": out}, axis=1)
    w.rows.append((out, size + more))


def _sum_of_three(w: _Writer) -> None:
    x, size = w.row()
    same = [name for name, other in w.rows if other == size]
    out = w.fresh()
    w.op("sum", {"X": [x, same[w.pick(len(same))], x]}, {"Out": out})
    w.rows.append((out, size))


def _layer_norm(w: _Writer) -> None:
    x, size = w.row()
    out = w.fresh()
    inputs = {"X": x, "Scale": w.parameter((size,)), "Bias": w.parameter((size,))}
    outputs = {"Y": out, "Mean": w.fresh("saved"), "Variance": w.fresh("saved")}
    w.op("layer_norm", inputs, outputs, begin_norm_axis=1, epsilon=2.0**-17)
    w.rows.append((out, size))


ROW_LAYERS = [_fc, _fc, _row_activation, _dropout, _row_product, _row_concat, _sum_of_three, _layer_norm]


# ---------------------------------------------------------------- the same name again
def _activation_in_place(w: _Writer) -> None:
    x, _ = w.image()
    if x not in w.feeds:
        w.op("relu", {"X": x}, {"Out": x})


def _scale_in_place(w: _Writer) -> None:
    x, _ = w.row()
    if x not in w.feeds:
        w.op("scale", {"X": x}, {"Out": x}, scale=0.5, bias=0.25, bias_after_scale=True)


def _write_again(w: _Writer) -> None:
    """A name gets another value, which does not come from its old one."""
    x, size = w.row()
    same = [name for name, other in w.rows if other == size]
    if x not in w.feeds:
        w.op("sigmoid", {"X": same[w.pick(len(same))]}, {"Out": x})


IN_PLACE_LAYERS = [_activation_in_place, _scale_in_place, _write_again]


# ---------------------------------------------------------------- blocks within
def _constant(w: _Writer, value: float, dtype: int = VarType.INT64) -> str:
    name = w.fresh("c")
    w.program.current_block().create_var(name=name, dtype=dtype, shape=[1], stop_gradient=True)
    w.op("fill_constant", {}, {"Out": name}, shape=[1], dtype=int(dtype), value=float(value))
    return name


def _flag(w: _Writer, x: str, y: str) -> str:
    name = w.fresh("flag")
    w.program.current_block().create_var(name=name, dtype=VarType.BOOL, shape=[1], stop_gradient=True)
    w.op("less_than", {"X": x, "Y": y}, {"Out": name})
    return name


def _scopes(w: _Writer) -> str:
    name = w.fresh("scopes")
    w.program.current_block().create_var(name=name, type=VarType.STEP_SCOPES)
    return name


def _inside(w: _Writer, source: str, size: int, target: str) -> None:
    """A few operators on local variables of a sub-block; the result goes to a variable from outside."""
    x = source
    for _ in range(1 + w.pick(3)):
        product = w.fresh()
        w.op("mul", {"X": x, "Y": w.parameter((size, size))}, {"Out": product}, x_num_col_dims=1, y_num_col_dims=1)
        x = w.plain("tanh", product)
    w.op("assign", {"X": x}, {"Out": target})


def _branch_on_condition(w: _Writer) -> None:
    """A variable that a branch, taken or not, writes again."""
    x, size = w.row()
    out = w.plain("scale", x, scale=1.5)
    flag, scopes = _flag(w, _constant(w, w.pick(2)), _constant(w, 1)), _scopes(w)
    block = w.program.create_block()
    _inside(w, x, size, out)
    w.program.rollback()
    read = sorted({n for op in block.ops for n in op.input_arg_names if n not in block.vars})
    attrs = {"sub_block": block, "is_scalar_condition": True}
    outputs = {"Out": [out], "Scope": [scopes]}
    w.program.current_block().append_op(
        type="conditional_block", inputs={"Cond": [flag], "Input": read}, outputs=outputs, attrs=attrs
    )
    w.unread = (w.unread - {*read, flag}) | {out}
    w.rows.append((out, size))


def _loop(w: _Writer) -> None:
    """A variable that a loop of one to three rounds carries."""
    x, size = w.row()
    out = w.plain("scale", x, scale=0.5)
    index, bound = _constant(w, 0), _constant(w, 1 + w.pick(3))
    flag, scopes = _flag(w, index, bound), _scopes(w)
    block = w.program.create_block()
    _inside(w, out, size, out)
    w.op("increment", {"X": index}, {"Out": index}, step=1.0)
    w.op("less_than", {"X": index, "Y": bound}, {"Out": flag})
    w.program.rollback()
    read = sorted({n for op in block.ops for n in op.input_arg_names if n not in block.vars} - {flag})
    attrs = {"sub_block": block, "is_test": False}
    w.program.current_block().append_op(
        type="while",
        inputs={"X": read, "Condition": [flag]},
        outputs={"Out": [out, index, flag], "StepScopes": [scopes]},
        attrs=attrs,
    )
    w.unread = (w.unread - {*read, flag}) | {out}
    w.rows.append((out, size))


# ---------------------------------------------------------------- training, feeds and fetches
def _train(w: _Writer) -> str:
    """A mean loss over a row, its gradients, SGD for every parameter that has one."""
    block = w.program.global_block()
    loss = w.plain("mean", w.plain("tanh", w.rows[-1][0]))
    rate = "learning_rate"
    block.create_var(name=rate, shape=[1], dtype="float32", persistable=True)
    w.parameters[rate] = np.array([0.1], dtype=np.float32)
    pairs: list[tuple[Variable, Variable | None]] = append_backward(block.var(loss))
    for parameter, gradient in pairs:
        if gradient is None:
            continue
        names = {"Param": parameter.name, "Grad": gradient.name, "LearningRate": rate}
        attrs = {ROLE_ATTR: int(OpRole.Optimize), ROLE_VAR_ATTR: [parameter.name, gradient.name]}
        block.append_op(type="sgd", inputs=names, outputs={"ParamOut": parameter.name}, attrs=attrs)
    return loss


def _add_feed_fetch(w: _Writer, fetches: Sequence[str]) -> None:
    block = w.program.global_block()
    block.create_var(name="feed", type=VarType.FEED_MINIBATCH, persistable=True)
    block.create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)
    for column, name in enumerate(w.feeds):
        block.insert_op(column, type="feed", inputs={"X": "feed"}, outputs={"Out": name}, attrs={"col": column})
    for column, name in enumerate(fetches):
        block.append_op(type="fetch", inputs={"X": name}, outputs={"Out": "fetch"}, attrs={"col": column})
