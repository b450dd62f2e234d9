"""Networks of operators that the native engine knows, valid ones and spoiled ones.

Each starts from an operator as real Paddle ran it in a packed case, with its inputs as parameters or feeds, and gets other
operators before and behind it, so that it is fused, laid out in blocks and left again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from fluidtool.errors import FluidError, LoDError, ProgramError
from fluidtool.ir import Operator, Program
from fluidtool.ops.registry import find_op
from fluidtool.ops.schema import FRAMEWORK_ATTRS
from fluidtool.proto.enums import AttrType
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.engines.native.kernels import KERNELS
from fluidtool.runtime.graph.importers import IMPORTERS
from fluidtool.runtime.graph.importers.registry import FOR_GPUS
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.support.golden import corpus, names_in, read_arrays, read_json, value_of

Values = dict[str, Any]
SAME_SHAPE = ("relu", "sigmoid", "tanh", "scale", "softmax", "gelu", "clip", "assign", "leaky_relu", "square")
WORDS = ("", "max", "avg", "SAME", "VALID", "NHWC", "AnyLayout", "relu", "constant", "edge", "all", "MAX", "LAST")
NUMBERS = (np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-42, 0.0)
ENDLESS = frozenset({"sampling_ratio"})  # how often the kernels of roi_align go round: a large one is no fault
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64)


@dataclass
class Case:
    """A program with the values of its feeds and parameters, and what is fetched."""

    program: Program
    feeds: Values
    parameters: Values
    fetches: list[str]
    told: list[str] = field(default_factory=list)  # what it was made from, and how it was spoiled

    @property
    def is_exact(self) -> bool:
        """Whether no number was spoiled: else what is no number decides how many boxes or tags there are."""
        return not any("refilled" in text for text in self.told)

    def scope(self) -> Scope:
        """A new scope with copies of the parameters."""
        scope = Scope()
        for name, value in self.parameters.items():
            scope.var(name).value = deepcopy(value)
        return scope


@dataclass(frozen=True)
class Recipe:
    """An operator with the values of its inputs, by slot."""

    type: str
    inputs: dict[str, list[Any]]
    outputs: dict[str, int]
    attrs: dict[str, tuple[Any, Any]]  # type, value


# ---------------------------------------------------------------- where networks come from
@cache
def packed(wanted: str) -> tuple[str, ...]:
    """The packed cases with an operator that is `read` into regions, or has a native `body`."""
    chosen = IMPORTERS if wanted == "read" else KERNELS
    found = []
    for name in names_in("optest"):
        program = program_of(name)
        if program.num_blocks == 1 and any(op.type in chosen for op in program.global_block().ops):
            found.append(name)
    return tuple(found)


def program_of(name: str) -> Program:
    """The program of a packed case."""
    return Program.parse_from_string((corpus("optest") / name / "program.pb").read_bytes())


@cache
def recipes() -> dict[str, tuple[Recipe, ...]]:
    """By type: operators whose inputs are all feeds or parameters of a packed case, and some that no case has; none that only
    GPUs have kernels for.
    """
    found: dict[str, list[Recipe]] = {}
    for name in packed("read"):
        folder = corpus("optest") / name
        spec, arrays = read_json(folder / "case.json"), read_arrays(folder / "arrays.npz")
        values = {entry["name"]: value_of(entry, arrays) for entry in (*spec["feeds"], *spec["scope"])}
        for op in program_of(name).global_block().ops:
            given = {slot: names for slot, names in op.inputs.items() if names}
            if (
                op.type not in IMPORTERS
                or op.type in FOR_GPUS
                or not all(name in values for names in given.values() for name in names)
            ):
                continue
            if all(isinstance(values[name], LoDTensor) for names in given.values() for name in names):
                inputs = {slot: [single(values[name]) for name in names] for slot, names in given.items()}
                found.setdefault(op.type, []).append(recipe_of(op, inputs))
    for made in by_hand():
        found.setdefault(made.type, []).append(made)
    return {type: tuple(made) for type, made in found.items()}


def single(value: Any) -> Any:
    """A tensor of float64 as one of float32, which is what the native engine computes on."""
    if not isinstance(value, LoDTensor) or value.array is None or value.array.dtype != np.float64:
        return value
    found = LoDTensor(value.array.astype(np.float32))
    found.set_lod(value.lod())
    return found


def recipe_of(op: Operator, inputs: dict[str, list[Any]]) -> Recipe:
    """An operator with these inputs."""
    outputs = {slot: len(names) for slot, names in op.outputs.items() if names}
    attrs = {name: (op.attr_type(name), op.attr(name)) for name in op.attr_names if not name.startswith("op_")}
    attrs |= {"is_test": (AttrType.BOOLEAN, True)} if op.type in ("batch_norm", "dropout") else {}
    return Recipe(op.type, inputs, outputs, attrs)


def by_hand() -> Iterator[Recipe]:
    """Operators that no packed case has."""
    rng = np.random.default_rng(7)

    def tensor(*shape: int) -> LoDTensor:
        return LoDTensor(rng.normal(size=shape).astype(np.float32))

    def made(type: str, inputs: dict[str, Any], outputs: str, **attrs: Any) -> Recipe:
        info = find_op(type)
        assert info is not None
        kinds = {name: (info.attrs[name].type, value) for name, value in attrs.items()}
        slots = {slot: [value] for slot, value in inputs.items()}
        return Recipe(type, slots, dict.fromkeys(outputs.split(), 1), kinds)

    image = tensor(2, 5, 6, 7)
    yield made("matmul_v2", {"X": tensor(2, 3, 4), "Y": tensor(4, 5)}, "Out")
    yield made("matmul_v2", {"X": tensor(2, 3, 4), "Y": tensor(2, 5, 4)}, "Out", trans_y=True)
    yield made("flatten_contiguous_range", {"X": image}, "Out XShape", start_axis=1, stop_axis=2)
    for method in ("nearest", "bilinear", "bicubic"):
        sizes = {"interp_method": method, "out_h": 4, "out_w": 9, "align_corners": False}
        yield made(f"{method}_interp_v2", {"X": image}, "Out", **sizes)
    yield made("top_k_v2", {"X": tensor(4, 9)}, "Out Indices", k=3)
    yield made("pad3d", {"X": tensor(1, 2, 3, 4, 5)}, "Out", paddings=[1, 0, 2, 1, 0, 1], mode="reflect")
    yield made("channel_shuffle", {"X": tensor(2, 6, 3, 3)}, "Out", groups=3)
    yield made("prior_box", {"Input": image, "Image": tensor(2, 3, 20, 20)}, "Boxes Variances",
               min_sizes=[4.0], aspect_ratios=[1.0, 2.0], variances=[0.1, 0.1, 0.2, 0.2])  # fmt: skip
    sizes = LoDTensor(np.array([[20, 24], [16, 16]], np.int64))
    yield made("yolo_box", {"X": tensor(2, 14, 3, 3), "ImgSize": sizes}, "Boxes Scores",
               anchors=[10, 13, 16, 30], class_num=2, conf_thresh=0.1, downsample_ratio=8)  # fmt: skip
    yield made("conv2d", {"Input": tensor(1, 16, 9, 9), "Filter": tensor(16, 16, 3, 3)}, "Output",
               strides=[1, 1], paddings=[1, 1], dilations=[1, 1], groups=1)  # fmt: skip
    yield made("conv2d", {"Input": tensor(2, 3, 9, 9), "Filter": tensor(20, 3, 3, 3)}, "Output",
               strides=[2, 2], paddings=[1, 1], dilations=[1, 1], groups=1)  # fmt: skip
    yield made("fc", {"Input": tensor(3, 8), "W": tensor(8, 20), "Bias": tensor(20)}, "Out", in_num_col_dims=1)
    yield made("mul", {"X": tensor(6, 24), "Y": tensor(24, 33)}, "Out")


# ---------------------------------------------------------------- valid networks
class Builder:
    """A case as it grows."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.count = rng, 0
        self.case = Case(Program(), {}, {}, [])
        self.block = self.case.program.global_block()

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}_{self.count}"

    def given(self, value: Any, parameter: bool) -> str:
        """A feed or a parameter of this value."""
        name = self.name("parameter" if parameter else "feed")
        array = value.numpy()
        kinds = {"shape": list(array.shape), "dtype": str(array.dtype), "persistable": parameter}
        self.block.create_var(name=name, lod_level=0 if parameter else len(value.lod()), **kinds)
        (self.case.parameters if parameter else self.case.feeds)[name] = value
        return name

    def op(self, recipe: Recipe, inputs: dict[str, list[str]]) -> dict[str, list[str]]:
        """An operator on these variables; the names of its results by slot."""
        outputs = {slot: [self.name(recipe.type) for _ in range(count)] for slot, count in recipe.outputs.items()}
        for names in outputs.values():
            for name in names:
                self.block.create_var(name=name, dtype="float32", shape=[-1])
        op = Operator(self.block, None, recipe.type, inputs, outputs)
        for name, (kind, value) in recipe.attrs.items():
            op.set_attr(name, value, kind)
        self.block.ops.append(op)
        return outputs

    def simple(self, type: str, x: str) -> str:
        """An operator that keeps the shape."""
        info = find_op(type)
        assert info is not None
        bounds = {"min": (AttrType.FLOAT, -1.0), "max": (AttrType.FLOAT, 0.75)} if type == "clip" else {}
        return self.op(Recipe(type, {}, {"Out": 1}, bounds), {"X": [x]})["Out"][0]

    def pooled(self, x: str) -> str:
        """The same image behind an operator whose result lies in blocks."""
        attrs = {"pooling_type": (AttrType.STRING, "max"), "ksize": (AttrType.INTS, [1, 1])}
        return self.op(Recipe("pool2d", {}, {"Out": 1}, attrs), {"X": [x]})["Out"][0]


def network(rng: random.Random) -> Case:
    """A valid network around one operator."""
    type = rng.choice(sorted(recipes()))
    recipe = rng.choice(recipes()[type])
    build = Builder(rng)
    build.case.told.append(type)
    inputs: dict[str, list[str]] = {}
    info = find_op(type)
    assert info is not None
    first = info.inputs[0].name
    for slot, values in recipe.inputs.items():
        inputs[slot] = [place(build, value, slot == first) for value in values]
    outputs = build.op(recipe, inputs)
    results = [name for names in outputs.values() for name in names]
    out = outputs.get(info.outputs[0].name, results)[0]
    build.case.fetches.append(out)
    if rng.random() < 0.2:
        build.case.fetches = list(dict.fromkeys([out, *rng.sample(results, rng.randint(0, len(results)))]))
    for _ in range(rng.choice((0, 0, 1, 2))):
        out = build.simple(rng.choice(SAME_SHAPE), out)
        build.case.fetches = [*build.case.fetches[rng.random() < 0.7 :], out]
    if rng.random() < 0.25:
        out = joined_by_another(build, out) or out
        build.case.fetches = [out]
    if type in ("lookup_table", "lookup_table_v2") and rng.random() < 0.5:
        attrs = {"pooltype": (AttrType.STRING, rng.choice(["SUM", "AVERAGE", "MAX", "LAST"]))}
        build.case.fetches = build.op(Recipe("sequence_pool", {}, {"Out": 1}, attrs), {"X": [out]})["Out"]
    return build.case


def quantized_network(rng: random.Random) -> Case:
    """A convolution or a product of 8 bits, with the quantizers of its operands, and perhaps another behind it."""
    build = Builder(rng)
    build.case.told.append("8 bits")
    numbers = np.random.default_rng(rng.getrandbits(32))
    by_images = rng.random() < 0.7

    def tensor(*shape: int) -> LoDTensor:
        return LoDTensor(numbers.normal(size=shape).astype(np.float32))

    def rounded(x: str) -> str:
        scale = build.given(LoDTensor(np.array([rng.choice([0.5, 3.0])], np.float32)), True)
        kind = rng.choice(["fake_quantize_dequantize_moving_average_abs_max", "fake_quantize_range_abs_max"])
        attrs = {"is_test": (AttrType.BOOLEAN, True), "bit_length": (AttrType.INT, rng.choice([8, 8, 8, 4, 16]))}
        out = build.op(Recipe(kind, {}, {"Out": 1, "OutScale": 1}, attrs), {"X": [x], "InScale": [scale]})["Out"][0]
        if kind == "fake_quantize_range_abs_max":
            steps = {"max_range": (AttrType.FLOAT, 127.0)}
            recipe = Recipe("fake_dequantize_max_abs", {}, {"Out": 1}, steps)
            out = build.op(recipe, {"X": [out], "Scale": [scale]})["Out"][0]
        return out

    def weights(*shape: int) -> str:
        axis = {"quant_axis": (AttrType.INT, rng.choice([0, 1]))}
        recipe = Recipe("fake_channel_wise_quantize_dequantize_abs_max", {}, {"Out": 1, "OutScale": 1}, axis)
        return build.op(recipe, {"X": [build.given(tensor(*shape), True)]})["Out"][0]

    def layer(x: str, inner: int, outer: int) -> str:
        if not by_images:
            return build.op(Recipe("mul", {}, {"Out": 1}, {}), {"X": [x], "Y": [weights(inner, outer)]})["Out"][0]
        groups = inner if inner == outer and rng.random() < 0.4 else 1
        attrs: dict[str, tuple[Any, Any]] = {
            name: (AttrType.INTS, [rng.choice(sizes), rng.choice(sizes)])
            for name, sizes in (("strides", (1, 2)), ("paddings", (0, 1)), ("dilations", (1, 1, 2)))
        }
        inputs = {"Input": [x], "Filter": [weights(outer, inner // groups, rng.choice((1, 3)), rng.choice((1, 3)))]}
        recipe = Recipe("conv2d", {}, {"Output": 1}, attrs | {"groups": (AttrType.INT, groups)})
        return build.op(recipe, inputs)["Output"][0]

    inner, outer = rng.choice(SIZES[1:]), rng.choice(SIZES[1:])
    shape = (2, inner, 9, 8) if by_images else (5, inner)
    out = layer(rounded(build.given(tensor(*shape), False)), inner, outer)
    if rng.random() < 0.5:
        out = layer(rounded(build.simple(rng.choice(SAME_SHAPE), out)), outer, outer)
    build.case.fetches.append(out)
    return build.case


def joined_by_another(build: Builder, x: str) -> str | None:
    """An elementwise operator of a value and another that is broadcast along it; None for values that have no numbers."""
    rng, case = build.rng, build.case
    try:
        (value,) = Executor(engine="numpy").run(case.program, dict(case.feeds), [x], case.scope())
    except FluidError:
        return None
    if (
        not isinstance(value, LoDTensor)
        or value.array is None
        or value.array.dtype != np.float32
        or not value.array.ndim
    ):
        return None
    shape = value.array.shape
    axis = rng.randrange(len(shape))
    by_channel = tuple(size if place == 1 else 1 for place, size in enumerate(shape))
    form = rng.choice([shape, shape[axis:], shape[axis : axis + 1], (1, *shape[1:]), by_channel])
    attrs = {"axis": (AttrType.INT, axis if len(form) < len(shape) else -1)}
    numbers = np.random.default_rng(rng.getrandbits(32)).normal(size=form).astype(np.float32)
    kind = rng.choice(["elementwise_add", "elementwise_mul", "elementwise_sub", "elementwise_max", "elementwise_div"])
    divides = kind == "elementwise_div"
    if divides:  # by nothing near 0, which would make much of every rounding
        numbers += np.copysign(np.float32(0.5), numbers)
    name = build.given(LoDTensor(numbers), rng.random() < 0.5)
    pair = (x, name) if divides or rng.random() < 0.8 or form != shape else (name, x)
    case.told.append(f"{kind} {shape} {form}")
    return build.op(Recipe(kind, {}, {"Out": 1}, attrs), {"X": [pair[0]], "Y": [pair[1]]})["Out"][0]


def place(build: Builder, value: Any, first: bool) -> str:
    """A value as a feed, perhaps behind other operators, or as a parameter."""
    rng, array = build.rng, value.numpy()
    if array.dtype != np.float32 or rng.random() < (0.05 if first else 0.75):
        return build.given(value, array.dtype == np.float32 and not value.lod())
    name = build.given(value, False)
    if first and array.ndim == 4 and rng.random() < 0.5:
        return build.pooled(name)
    return build.simple(rng.choice(SAME_SHAPE), name) if rng.random() < 0.4 else name


def packed_case(rng: random.Random, wanted: str = "body") -> Case:
    """A packed case with an operator that has a native body."""
    name = rng.choice(packed(wanted))
    folder = corpus("optest") / name
    spec, arrays = read_json(folder / "case.json"), read_arrays(folder / "arrays.npz")
    kept = (lambda value: value) if rng.random() < 0.2 else single
    feeds = {entry["name"]: kept(value_of(entry, arrays)) for entry in spec["feeds"]}
    parameters = {entry["name"]: kept(value_of(entry, arrays)) for entry in spec["scope"]}
    return Case(program_of(name), feeds, parameters, [entry["name"] for entry in spec["fetch"]], [name])


# ---------------------------------------------------------------- spoiling
def spoil(case: Case, rng: random.Random) -> None:
    """Change attributes, values or wiring, in place."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice((spoil_attribute, spoil_attribute, spoil_value, spoil_value, spoil_wiring))(case, rng)


def spoil_attribute(case: Case, rng: random.Random) -> None:
    """Another value, or another type, for an attribute of an operator."""
    op = rng.choice(case.program.global_block().ops)
    info = find_op(op.type)
    declared = {} if info is None else {name: (spec.type, spec.default) for name, spec in info.attrs.items()}
    names = sorted({*op.attr_names, *declared} - FRAMEWORK_ATTRS.keys() - ENDLESS)
    if not names:
        return
    name = rng.choice(names)
    kind, value = (op.attr_type(name), op.attr(name)) if op.has_attr(name) else declared[name]
    if rng.random() < 0.05 and op.has_attr(name):
        op.remove_attr(name)
        case.told.append(f"{op.type} without {name}")
        return
    if rng.random() < 0.07:
        kind, value = rng.choice(
            [
                (AttrType.STRING, "x"),
                (AttrType.FLOAT, 1.5),
                (AttrType.INTS, [1, 2]),
                (AttrType.INT, 3),
                (AttrType.FLOATS, [0.5]),
            ]
        )
    else:
        value = other(kind, value, rng)
    with suppress(ProgramError):  # a list of mixed kinds, which no file can hold
        op.set_attr(name, value, kind)
    case.told.append(f"{op.type}.{name} = {value!r}")


def other(kind: Any, value: Any, rng: random.Random) -> Any:
    """Another value of an attribute's type."""
    if kind in (AttrType.INT, AttrType.LONG):
        return whole_number(value or 0, rng)
    if kind is AttrType.FLOAT:
        return rng.choice([0.0, -1.0, 0.5, 1.0, 2.0, 1e30, -1e30, float("nan"), float("inf"), 1e-40])
    if kind is AttrType.BOOLEAN:
        return not value
    if kind is AttrType.STRING:
        return rng.choice(WORDS)
    if isinstance(value, list):
        items = list(value)
        action = rng.random()
        if items and action < 0.6:
            place = rng.randrange(len(items))
            element = {
                AttrType.FLOATS: AttrType.FLOAT,
                AttrType.STRINGS: AttrType.STRING,
                AttrType.BOOLEANS: AttrType.BOOLEAN,
            }
            items[place] = other(element.get(kind, AttrType.INT), items[place], rng)
        elif items and action < 0.75:
            del items[rng.randrange(len(items))]
        elif items and action < 0.9:
            items.insert(rng.randrange(len(items) + 1), rng.choice(items))
        else:
            items = [] if items else [0]
        return items
    return value


def whole_number(value: int, rng: random.Random) -> int:
    """A number near a value, or one far away."""
    if rng.random() < 0.12:
        return rng.choice([2**31 - 1, -(2**31), 1000, -1000, 65536])
    return rng.choice([value + 1, value - 1, -value, 2 * value, 0, 1, -1, 2, 3, rng.choice(SIZES)])


def spoil_value(case: Case, rng: random.Random) -> None:
    """Another shape, data type, LoD or content of a feed or a parameter."""
    held = rng.choice([values for values in (case.feeds, case.parameters) if values] or [case.feeds])
    if not held:
        return
    name = rng.choice(sorted(held))
    value = held[name]
    if isinstance(value, SelectedRows) or not isinstance(value, LoDTensor) or value.array is None:
        return
    lods, array = value.lod(), value.numpy()
    what = rng.choice((reshaped, resized, resized, retyped, refilled, reranked))
    found = what(array, rng)
    if rng.random() < 0.25:
        lods = other_lod(lods, array, rng)
    tensor = LoDTensor(found)
    try:
        tensor.set_lod(lods)
    except LoDError:  # one that no tensor may have
        tensor = LoDTensor(found)
    held[name] = tensor
    case.told.append(f"{name}: {what.__name__} {list(array.shape)} -> {found.dtype} {list(found.shape)}, LoD {lods}")


def reshaped(array: Any, rng: random.Random) -> Any:
    """As many numbers in another shape."""
    shapes = [(-1,), (1, -1), (-1, 1), array.shape[::-1], (*array.shape, 1), (1, *array.shape)]
    return array.reshape(rng.choice(shapes))


def resized(array: Any, rng: random.Random) -> Any:
    """Another size of an axis: less, or more of the same."""
    if not array.ndim:
        return array
    axis = rng.randrange(array.ndim)
    size = array.shape[axis]
    wanted = max(rng.choice([size - 1, size + 1, 1, 2 * size, size // 2, 0, rng.choice(SIZES)]), 0)
    return np.take(array, np.arange(wanted) % max(size, 1), axis=axis) if size else array


def reranked(array: Any, rng: random.Random) -> Any:
    """An axis more or less."""
    if array.ndim > 1 and array.shape[0] and rng.random() < 0.5:
        return array[0]
    return array[None] if rng.random() < 0.5 else array[..., None]


def retyped(array: Any, rng: random.Random) -> Any:
    """Another data type."""
    with np.errstate(all="ignore"):
        return array.astype(rng.choice(["float64", "int64", "int32", "float16", "float32", "bool", "uint8", "int8"]))


def refilled(array: Any, rng: random.Random) -> Any:
    """Other numbers here and there: none, endless ones, huge ones, ids that are no rows."""
    found = array.copy()
    if not found.size:
        return found
    numbers: tuple[float, ...] = NUMBERS
    if found.dtype.kind in "iu":
        numbers = (-1, 1000, -1000, 0) if found.itemsize < 8 else (-1, 1000, 2**40, -(2**40), 0)
    with np.errstate(all="ignore"):
        for _ in range(rng.randint(1, 3)):
            found.reshape(-1)[rng.randrange(found.size)] = np.asarray(rng.choice(numbers)).astype(found.dtype)
    return found


def other_lod(lods: Iterable[Any], array: Any, rng: random.Random) -> Any:
    """Another LoD: offsets moved, added or left out; or none."""
    lods = [list(level) for level in lods]
    if not lods or rng.random() < 0.2:
        rows = len(array) if array.ndim else 0
        return rng.choice([[], [[0, rows]], [[0, rows // 2, rows]], [[0, 0, rows]], [[0, rows], [0, rows]]])
    level = rng.choice(lods)
    place = rng.randrange(len(level))
    level[place] = whole_number(level[place], rng) if rng.random() < 0.6 else level[max(place - 1, 0)]
    return lods


def spoil_wiring(case: Case, rng: random.Random) -> None:
    """An input that is left out, or another variable in its place."""
    op = rng.choice(case.program.global_block().ops)
    slots = [slot for slot, names in op.inputs.items() if names]
    if not slots:
        return
    slot = rng.choice(slots)
    if rng.random() < 0.4:
        op.set_input(slot, [])
        case.told.append(f"{op.type} without {slot}")
        return
    made = (name for other in case.program.global_block().ops for name in other.output_arg_names)
    names = sorted({*case.feeds, *case.parameters, *made})
    found = list(op.inputs[slot])
    if rng.random() < 0.2:
        found.append(rng.choice(names))
    else:
        found[rng.randrange(len(found))] = rng.choice(names)
    op.set_input(slot, found)
    case.told.append(f"{op.type}.{slot} = {found}")
