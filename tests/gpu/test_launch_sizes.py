"""Generated kernels at the edges of lanes, warps, blocks and registers give the CPU's numbers, in float32 and in halves.

Each example computes several sizes at once, since what takes time is the compiler.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluidtool.ops.nn.interpolation import axis_ratio, axis_taps
from fluidtool.ops.tensor.partial_sort import partial_sort
from fluidtool.runtime.engines.cuda import decoding, ranking, sorting  # noqa: F401  (what lowers best paths, and places)
from fluidtool.runtime.engines.cuda.calls import Buffer, Place, channels_last, row_major
from fluidtool.runtime.engines.cuda.training import ctc, groups, kernels, structured  # noqa: F401  (what lowers the rest)
from fluidtool.runtime.engines.cuda.training.images import readers_of
from fluidtool.runtime.graph.ir import Node, Value
from fluidtool.runtime.graph.sequence_runs import Runs, by_time, of_lod, padded
from tests.gpu.test_cuda_lanes import Array, binary, exp, rounded, several
from tests.runtime.native.checking import Net

LIMITS = settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WARP, BLOCK, REGISTERS = 32, 256, 32 * 256  # threads, threads, elements of a row that a block keeps
EDGES = [1, 3, 4, 7, 8, 9, *(each + by for each in (WARP, 4 * WARP, BLOCK, 4 * BLOCK) for by in (-1, 0, 1))]
SIZES = st.sampled_from(EDGES)
LONG = st.sampled_from([REGISTERS - 1, REGISTERS, REGISTERS + 1, 2 * REGISTERS + 8])
MATRICES = st.lists(st.tuples(st.sampled_from([1, 2, 4, 5]), SIZES), min_size=5, max_size=5, unique=True)
LENGTHS = st.lists(st.sampled_from([0, 1, 2, 5, 9]), min_size=0, max_size=3).map(lambda more: [3, *more])
HALVES = pytest.mark.parametrize("half", ["", "bf16", "fp16"])


@pytest.fixture(autouse=True)
def _standin(cupy: Any) -> None:
    """On the stand-in, which refuses what lies outside of arrays, and pieces that are not aligned."""


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def near(found: Array, want: Array, rtol: float = 1e-5) -> None:
    """Equal up to a part of the largest number."""
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, rtol=rtol, atol=rtol * max(1.0, float(np.abs(want).max())))


# ---------------------------------------------------------------- elements
@HALVES
@LIMITS
@given(shapes=MATRICES, offset=st.integers(0, 9), start=st.integers(0, 8))
def test_elements(shapes: list[tuple[int, int]], offset: int, start: int, half: str) -> None:
    """A broadcast sum of kept numbers, and a part of it that begins anywhere, from arrays that do so, too."""
    given, places, nodes, outs, wanted = {}, {}, [], [], []
    for number, (rows, columns) in enumerate(shapes):
        x, y = Value(f"x{number}", (rows, columns)), Value(f"y{number}", (columns,))
        given |= {x: numbers(rows, columns), y: numbers(columns)}
        places[x] = Place(Buffer(offset + rows * columns, "input"), (columns, 1), offset)
        kept = exp(x)
        both = binary(kept.output, y, (1, columns))
        first = min(start, columns - 1)
        attrs = {"starts": [0, first], "sizes": [rows, columns - first]}
        part = Node("slice", [both.output], Value(f"part{number}", (rows, columns - first)), attrs)
        nodes += [kept, both, part, binary(part.output, part.output)]
        outs.append(nodes[-1].output)
        sums = rounded(rounded(np.exp(given[x]), half) + given[y], half)
        wanted.append(2 * sums[:, first:])
    found, _ = several(given, nodes, outs, half, places)
    for a, b in zip(found, wanted, strict=True):
        near(a, b, 2e-2 if half else 1e-6)  # a sum may be rounded to another half where its last bit differs


# ---------------------------------------------------------------- rows and sums
def rows_of(kind: str, x: Value, array: Array) -> tuple[Node, Array]:
    """A node of a kind that reads rows, and what it gives."""
    (rows, columns), wide = array.shape, array.astype(np.float64)
    if kind == "softmax":
        powers = np.exp(wide - wide.max(1, keepdims=True))
        want, attrs = powers / powers.sum(1, keepdims=True), {"factor": 1.0, "mask_shape": None}
    elif kind == "layer_norm":
        scale, shift = numbers(columns), numbers(columns)[::-1]
        attrs = {"matrix": (rows, columns), "scale": scale, "shift": shift, "epsilon": 1e-2}
        apart = wide - wide.mean(1, keepdims=True)
        want = apart / np.sqrt((apart**2).mean(1, keepdims=True) + 1e-2) * scale + shift
    elif kind == "reduce":
        want, attrs = wide.mean(1, keepdims=True), {"sizes": (rows, columns, 1), "how": 1}
    else:
        want, attrs = wide.sum(0 if kind == "sums of columns" else 1), {"kept": (int(kind == "sums of columns"),)}
    return Node(kind.partition(" ")[0], [x], Value(f"{kind} {x.name}", want.shape), attrs), want


@HALVES
@pytest.mark.parametrize("kind", ["softmax", "layer_norm", "reduce", "sums of rows", "sums of columns"])
@settings(LIMITS, max_examples=1)
@given(shapes=MATRICES, long=LONG)
def test_rows(kind: str, shapes: list[tuple[int, int]], long: int, half: str) -> None:
    given, nodes, outs, wanted = {}, [], [], []
    for number, shape in enumerate([*shapes, (1, long)]):
        x = Value(f"x{number}", shape)
        given[x] = numbers(*shape)
        kept = exp(x)
        node, want = rows_of(kind, kept.output, rounded(np.exp(given[x]), half))
        nodes += [kept, binary(kept.output, kept.output), node]  # kept in memory, as it has two readers
        outs += [nodes[-2].output, node.output]
        wanted.append(want)
    found, _ = several(given, nodes, outs, half)
    for a, b in zip(found[1::2], wanted, strict=True):
        near(a, b, 2e-5)


@HALVES
@settings(LIMITS, max_examples=2)
@given(shapes=MATRICES, long=LONG, k=st.integers(1, 5))
def test_places(shapes: list[tuple[int, int]], long: int, k: int, half: str) -> None:
    """The largest numbers of rows, and the smallest one, of which many are equal: scores have few digits."""
    given, nodes, outs, wanted = {}, [], [], []
    for number, (rows, columns) in enumerate([*shapes, (1, long)]):
        x, count = Value(f"x{number}", (rows, columns)), min(k, columns)
        given[x] = np.round(numbers(rows, columns), 1)
        kept, sizes = binary(x, x), {"sizes": (rows, columns, 1), "smallest": True}
        places = Node("top_k", [kept.output], Value(f"places{number}", (rows, count), integer=True), {})
        least = Node("extreme_place", [kept.output], Value(f"least{number}", (rows,), integer=True), sizes)
        taken = Node("pick", [kept.output, places.output], Value(f"taken{number}", (rows, count)), {})
        nodes += [kept, places, least, taken, binary(kept.output, kept.output)]  # kept in memory
        outs += [places.output, least.output, taken.output]
        scores = rounded(2 * given[x], half)
        order = np.array([partial_sort(row, count) for row in scores])
        wanted += [order, scores.argmin(1), np.take_along_axis(scores, order, 1)]
    found, _ = several(given, nodes, outs, half)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------- tables
@pytest.mark.parametrize("kind", ["rows_gradient", "merged_rows"])
@settings(LIMITS, max_examples=2)
@given(
    cases=st.lists(
        st.tuples(st.sampled_from([1, 2, 15, 16, 17, 31, 33, 64, 65, 130]), st.sampled_from([1, 3, 4, 33])),
        min_size=4,
        max_size=4,
        unique=True,
    ),
    rows=st.sampled_from([1, 2, 50]),
)
def test_gradients_by_sorted_ids(cases: list[tuple[int, int]], rows: int, kind: str) -> None:
    """Two parts of ids, whose rows are added in order: to the bit, as numpy adds them. Blocks sort 16 ids each."""
    given, nodes, wanted = {}, [], []
    for number, (count, width) in enumerate(cases):
        counts = [count, count // 2 + 1]
        ids = [Value(f"ids{number}{part}", (size, 1), integer=True) for part, size in enumerate(counts)]
        grads = [Value(f"grads{number}{part}", (size, width)) for part, size in enumerate(counts)]
        random = np.random.default_rng(count)
        given |= {each: random.integers(0, rows, each.shape) for each in ids}
        given |= {each: numbers(*each.shape) for each in grads}
        whole_ids, whole = (np.concatenate([given[each] for each in part]) for part in (ids, grads))
        total = np.zeros((rows, width), np.float32)
        np.add.at(total, whole_ids[:, 0], whole)
        if kind == "merged_rows":
            _, first = np.unique(whole_ids, return_index=True)
            merged = np.zeros_like(whole)
            merged[first] = total[whole_ids[first, 0]]
            total = merged
        attrs = {"zero": -1} if kind == "rows_gradient" else {}
        nodes.append(Node(kind, [*ids, *grads], Value(f"y{number}", total.shape), attrs))
        wanted.append(total)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "CHUNK", 16)
        found, _ = several(given, nodes, [node.output for node in nodes])
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------- sequences
class Sentences:
    """Scores of sequences, padded, and as rows with a LoD."""

    def __init__(self, lengths: list[int], width: int, by_time: bool = False) -> None:
        self.lengths, self.longest = lengths, max(lengths) + 1
        self.is_inside = np.arange(self.longest) < np.array(lengths)[:, None]
        shape = (len(lengths), self.longest, width)
        self.scores = numbers(*shape)
        self.by_time = by_time

    def laid(self, array: Array, is_padded: bool) -> Array:
        """An array [sequences, longest, ...] as a kernel reads it."""
        if not is_padded:
            return array[self.is_inside]
        return np.ascontiguousarray(array.swapaxes(0, 1)) if self.by_time else array

    def runs(self, is_padded: bool) -> Runs:
        """Where sequences are in it."""
        if not is_padded:
            return of_lod(tuple(accumulate(self.lengths, initial=0)))
        shape = (len(self.lengths), self.longest)
        return by_time(shape[::-1]) if self.by_time else padded(shape)

    def many(self, is_padded: bool, name: str) -> dict[Value, Array]:
        """The lengths, if they are in memory."""
        array = np.array(self.lengths)[:, None]
        return {Value(f"{name} lengths", array.shape, integer=True): array} if is_padded else {}


TAGS = st.lists(st.sampled_from([1, 2, 16, 31, 32, 33, 257]), min_size=2, max_size=2, unique=True)
FORMS = pytest.mark.parametrize("is_padded", [False, True])


def transitions(tags: int) -> Array:
    return numbers(tags + 2, tags)


def reference(type: str, slots: list[str], inputs: dict[str, Array], **attrs: Any) -> list[Array]:
    """What the operator gives on the CPU."""
    net = Net()
    names = net.several(
        type, dict.fromkeys(slots, 1), {key: net.data(of=array) for key, array in inputs.items()}, **attrs
    )
    return net.run("numpy", *names)


@FORMS
@HALVES
@settings(LIMITS, max_examples=2)
@given(lengths=LENGTHS, sizes=TAGS)
def test_best_paths(lengths: list[int], sizes: list[int], half: str, is_padded: bool) -> None:
    given, nodes, wanted = {}, [], []
    for tags in sizes:
        words = Sentences(lengths, tags)
        array = words.laid(words.scores, is_padded)
        x, t = Value(f"x{tags}", array.shape), Value(f"t{tags}", (tags + 2, tags))
        counts = words.many(is_padded, str(tags))
        given |= {x: array, t: transitions(tags), **counts}
        kept = exp(x)
        (want,) = reference(
            "crf_decoding",
            ["ViterbiPath"],
            {
                "Emission": rounded(np.exp(words.scores), half),
                "Transition": given[t],
                "Length": np.array(lengths)[:, None],
            },
        )
        wanted.append(words.laid(want, is_padded).reshape(*array.shape[:-1], 1))
        attrs = {"runs": words.runs(is_padded), "has_labels": False}
        path = Value(f"path{tags}", wanted[-1].shape, integer=True)
        nodes += [kept, Node("best_path", [kept.output, t, *counts], path, attrs)]
    found, _ = several(given, nodes, [node.output for node in nodes[1::2]], half)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@FORMS
@settings(LIMITS, max_examples=2)
@given(lengths=LENGTHS, sizes=TAGS)
def test_conditional_random_fields(lengths: list[int], sizes: list[int], is_padded: bool) -> None:
    given, nodes, outs, wanted = {}, [], [], []
    for tags in sizes:
        words, count = Sentences(lengths, tags), len(lengths)
        labels = np.random.default_rng(tags).integers(0, tags, words.scores.shape[:2])
        arrays = {
            Value(f"x{tags}", words.laid(words.scores, is_padded).shape): words.laid(words.scores, is_padded),
            Value(f"t{tags}", (tags + 2, tags)): transitions(tags),
            Value(f"y{tags}", words.laid(labels, is_padded).shape, integer=True): words.laid(labels, is_padded),
        }
        grad, counts = Value(f"g{tags}", (count, 1)), words.many(is_padded, str(tags))
        given |= {**arrays, grad: numbers(count, 1), **counts}
        attrs = {"runs": words.runs(is_padded)}
        (x, t, y) = arrays
        scores = Node("crf_scores", [x, t, y, *counts], Value(f"scores{tags}", x.shape), attrs)
        inputs = [x, t, y, scores.output, grad, *counts]
        back = Node("crf_gradient", inputs, Value(f"back{tags}", x.shape), attrs)
        cost = Node("beside", [scores.output], Value(f"cost{tags}", (count, 1)), {"name": "cost"})
        shape = (count, tags + 2, tags)
        parts = Node("beside", [back.output], Value(f"parts{tags}", shape), {"name": "transitions"})
        nodes += [scores, cost, back, parts]
        outs += [cost.output, back.output, parts.output]
        inputs_of = {"Emission": words.scores, "Transition": given[t], "Label": labels[..., None]}
        inputs_of["Length"] = np.array(lengths)[:, None]
        slots = ["Alpha", "EmissionExps", "TransitionExps", "LogLikelihood"]
        *known, price = reference("linear_chain_crf", slots, inputs_of)
        inputs_of |= dict(zip(slots, known, strict=False)) | {"LogLikelihood@GRAD": given[grad]}
        of_x, of_t = reference("linear_chain_crf_grad", ["Emission@GRAD", "Transition@GRAD"], inputs_of)
        wanted.append((price, words.laid(of_x, is_padded), of_t))
    found, _ = several(given, nodes, outs)
    for number, (price, of_x, of_t) in enumerate(wanted):
        cost_found, back_found, parts_found = found[3 * number : 3 * number + 3]
        near(cost_found, price, 2e-5)
        near(back_found, of_x, 1e-4)
        near(parts_found.sum(0), of_t, 1e-4)


@FORMS
@settings(LIMITS, max_examples=2)
@given(
    sizes=st.lists(st.sampled_from([1, 15, 16, 17, 127, 128]), min_size=2, max_size=2, unique=True),
    classes=st.sampled_from([2, 33, 257]),
)
def test_labels_without_places(sizes: list[int], classes: int, is_padded: bool) -> None:
    """Labels of which one fits and has states at the edges of warps and blocks, one is empty, and one is too long."""
    given, nodes, outs, wanted = {}, [], [], []
    for size in sizes:
        sounds, counts = Sentences([2 * size + 1, 3, 1], classes, by_time=True), [size, 0, 2 if size > 1 else 1]
        labels = np.random.default_rng(size).integers(1, classes, (3, max(counts)))
        inside = np.arange(labels.shape[1]) < np.array(counts)[:, None]
        loss, of_x = reference(
            "warpctc",
            ["Loss", "WarpCTCGrad"],
            {
                "Logits": sounds.laid(sounds.scores, True),
                "Label": labels,
                "LogitsLength": np.array(sounds.lengths),
                "LabelLength": np.array(counts),
            },
            blank=0,
        )
        wide = sounds.scores.astype(np.float64)
        logs = sounds.laid((wide - np.log(np.exp(wide).sum(2, keepdims=True))).astype(np.float32), is_padded)
        own = labels if is_padded else labels[inside][:, None]
        x, y = Value(f"x{size}", logs.shape), Value(f"y{size}", own.shape, integer=True)
        many = [np.array(counts), np.array(sounds.lengths)] if is_padded else []
        lengths = {Value(f"n{size}{at}", (3,), integer=True): array for at, array in enumerate(many)}
        given |= {x: logs, y: own, **lengths}
        of_labels = padded(labels.shape) if is_padded else of_lod(tuple(accumulate(counts, initial=0)))
        attrs = {"runs": sounds.runs(is_padded), "labels": of_labels, "blank": 0}
        rows, states = int(np.prod(logs.shape[:-1])), 2 * labels.shape[1] + 1
        scores = Node("ctc_scores", [x, y, *lengths], Value(f"scores{size}", (rows, states)), attrs)
        cost = Node("beside", [scores.output], Value(f"cost{size}", (3, 1)), {"name": "cost"})
        back = Node("ctc_gradient", [x, y, scores.output, *lengths], Value(f"back{size}", logs.shape), attrs)
        nodes += [scores, cost, back]
        outs += [cost.output, back.output]
        wanted += [loss, of_x if is_padded else of_x.swapaxes(0, 1)[sounds.is_inside]]
    found, _ = several(given, nodes, outs)
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        near(a, b, 1e-3 if number % 2 else 5e-5)


# ---------------------------------------------------------------- images and volumes
SIZES_OF_IMAGES = st.tuples(
    st.sampled_from([1, 2]), st.sampled_from([1, 3, 8]), *(st.sampled_from([1, 2, 5, 8]),) * 3
)  # batch, channels, depth, rows, columns
WINDOW = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 3))  # size, stride, pad
LAYOUTS = pytest.mark.parametrize("lies", [row_major, channels_last])


def doubled(x: Value, array: Array, lies: Any) -> tuple[Node, Place, Array]:
    """Twice an image, kept in memory as it lies itself; where that is; its numbers, many of which are equal."""
    return binary(x, x), Place(Buffer(x.floats, "input"), lies(x.shape)), 2 * np.rint(array)


def pooled_sizes(sizes: tuple[int, ...], windows: list[tuple[int, int, int]]) -> tuple[int, ...]:
    return tuple((n + 2 * pad - w) // step + 1 for n, (w, step, pad) in zip(sizes, windows, strict=True))


@LAYOUTS
@HALVES
@settings(LIMITS, max_examples=2)
@given(shape=SIZES_OF_IMAGES, windows=st.lists(WINDOW, min_size=3, max_size=3))
def test_pooling(shape: tuple[int, ...], windows: list[tuple[int, int, int]], half: str, lies: Any) -> None:
    """Windows of any size, of volumes and of images; of equal numbers the first one is the maximum."""
    given, places, nodes, outs, wanted = {}, {}, [], [], []
    for type, own, used in (("pool3d", shape, windows), ("pool2d", (*shape[:2], *shape[3:]), windows[1:])):
        used = [(min(w, n), step, min(pad, min(w, n) - 1)) for n, (w, step, pad) in zip(own[2:], used, strict=True)]
        counts = pooled_sizes(own[2:], used)
        sizes, strides, pads = (list(each) for each in zip(*used, strict=True))
        for mode, attrs in enumerate(({"pooling_type": "max"}, {"pooling_type": "avg"}, {"exclusive": False})):
            name = f"{type} {mode}"
            x, grad = Value(f"x {name}", own), Value(f"g {name}", (*own[:2], *counts))
            kept, places[x], array = doubled(x, numbers(*own), lies)
            given |= {x: array / 2, grad: numbers(*grad.shape)}
            settled = {"window": sizes, "strides": strides, "pads": [*pads, *pads], "mode": mode, "adaptive": False}
            pool = Node("pool", [kept.output], Value(f"y {name}", grad.shape), settled)
            back = Node("pool_gradient", [kept.output, pool.output, grad], Value(f"b {name}", own), settled)
            nodes += [kept, pool, back]
            outs += [pool.output, back.output]
            named = {"pooling_type": "avg", "ksize": sizes, "strides": strides, "paddings": pads} | attrs
            (y,) = reference(type, ["Out"], {"X": array}, **named)
            (by_x,) = reference(f"{type}_grad", ["X@GRAD"], {"X": array, "Out": y, "Out@GRAD": given[grad]}, **named)
            wanted += [y, by_x]
    found, _ = several(given, nodes, outs, half, places)
    for a, b in zip(found, wanted, strict=True):
        near(a, b, 1e-6)


CELLS = st.sampled_from([1, 2, 3, 7, 8, 33])


@LAYOUTS
@HALVES
@settings(LIMITS, max_examples=2)
@given(
    shape=st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 3, 8]), CELLS, CELLS),
    sizes=st.tuples(CELLS, CELLS),
    method=st.sampled_from(["nearest", "bilinear", "bicubic"]),
    corners=st.booleans(),
    mode=st.integers(0, 1),
)
def test_gradients_of_resampling(
    shape: tuple[int, ...], sizes: tuple[int, int], method: str, corners: bool, mode: int, half: str, lies: Any
) -> None:
    grad = Value("g", (*shape[:2], *sizes))
    kept, place, array = doubled(grad, 9 * numbers(*grad.shape), lies)
    taps = [
        axis_taps(np, method, size, count, axis_ratio(np, size, count, 0.0, corners), corners, mode)
        for size, count in zip(shape[2:], sizes, strict=True)
    ]
    attrs = {"readers": [readers_of(axis.size, axis.cells, axis.weights) for axis in taps]}
    back = Node("interpolate_gradient", [kept.output], Value("b", shape), attrs)
    (found, _), _ = several(
        {grad: array / 2},
        [kept, back, binary(kept.output, kept.output)],
        [back.output, kept.output],
        half,
        {grad: place},
    )
    named = {
        "interp_method": method,
        "align_corners": corners,
        "align_mode": mode,
        "out_h": sizes[0],
        "out_w": sizes[1],
    }
    inputs = {"X": numbers(*shape), "Out@GRAD": array}
    (want,) = reference(f"{method}_interp_grad", ["X@GRAD"], inputs, **named)
    near(found, want, 1e-5)


@LAYOUTS
@HALVES
@settings(LIMITS, max_examples=2)
@given(
    shape=st.tuples(st.sampled_from([1, 3]), st.sampled_from([1, 5, 8, 33]), CELLS, CELLS),
    around=st.integers(0, 4),
    beta=st.sampled_from([0.5, 0.75, 1.0]),
)
def test_channels_around(shape: tuple[int, ...], around: int, beta: float, half: str, lies: Any) -> None:
    x, grad = Value("x", shape), Value("g", shape)
    kept, place, array = doubled(x, numbers(*shape), lies)
    given = {x: array / 2, grad: numbers(*shape)}
    attrs = {"around": around, "fourths": 4 * beta, "numbers": (1.5, 0.2), "keeps": True}
    y = Node("local_response", [kept.output], Value("y", shape), attrs)
    middle = Node("beside", [y.output], Value("m", shape), {"name": "middle"})
    of = {"around": around, "alpha": 0.2, "beta": beta}
    back = Node("local_response_gradient", [kept.output, y.output, middle.output, grad], Value("b", shape), of)
    outs = [y.output, middle.output, back.output]
    found, _ = several(given, [kept, y, middle, back], outs, half, {x: place})
    named = {"n": 2 * around + 1, "k": 1.5, "alpha": 0.2, "beta": beta}
    inputs = {"X": array}
    wanted = reference("lrn", ["Out", "MidOut"], inputs, **named)
    inputs |= dict(zip(("Out", "MidOut"), wanted, strict=True)) | {"Out@GRAD": given[grad]}
    wanted += reference("lrn_grad", ["X@GRAD"], inputs, **named)
    for a, b in zip(found, wanted, strict=True):
        near(a, b, 1e-5)


@LAYOUTS
@HALVES
@settings(LIMITS, max_examples=2)
@given(shape=st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2, 8]), CELLS, CELLS), factor=st.integers(1, 3))
def test_pixels_become_channels(shape: tuple[int, ...], factor: int, half: str, lies: Any) -> None:
    n, c, h, w = shape
    x, y = Value("x", (n, c * factor**2, h, w)), Value("y", (n, c, h * factor, w * factor))
    kept, place, array = doubled(x, numbers(*x.shape), lies)
    there = Node("pixel_shuffle", [kept.output], y, {"factor": factor})
    back = Node("pixel_shuffle_gradient", [y], Value("b", x.shape), {"factor": factor})
    after = binary(back.output, back.output)
    (found,), _ = several({x: array / 2}, [kept, there, back, after], [after.output], half, {x: place})
    np.testing.assert_array_equal(found, 2 * array)


@LAYOUTS
@HALVES
@settings(LIMITS, max_examples=2)
@given(
    images=st.sampled_from([1, 3]),
    count=st.sampled_from([1, 2, 8]),
    each=st.sampled_from([1, 3, 4, 8, 33]),
    sizes=st.tuples(CELLS, CELLS),
)
def test_groups(images: int, count: int, each: int, sizes: tuple[int, int], half: str, lies: Any) -> None:
    """Normalized groups of channels, and the gradient, which reads what has been kept beside them."""
    shape = (images, count * each, *sizes)
    x, scale, shift, grad = Value("x", shape), *(Value(name, shape[1:2]) for name in "st"), Value("g", shape)
    kept, place, array = doubled(x, 9 * numbers(*shape), lies)
    given = {x: array / 2, scale: numbers(shape[1]), shift: numbers(shape[1])[::-1].copy(), grad: numbers(*shape)}
    attrs = {"groups": count, "epsilon": 0.5, "given": ("scale", "shift")}
    y = Node("group_norm_step", [kept.output, scale, shift], Value("y", shape), attrs)
    mean, variance = (
        Node("beside", [y.output], Value(each, (images, count)), {"name": each}) for each in ("mean", "variance")
    )
    of = {"groups": count, "epsilon": 0.5, "centers": True}
    back = Node("group_norm_gradient", [grad, kept.output, variance.output], Value("b", shape), of)
    nodes = [kept, y, mean, variance, back]
    found, _ = several(given, nodes, [node.output for node in nodes[1:]], half, {x: place})
    inputs = {"X": array, "Scale": given[scale], "Bias": given[shift]}
    wanted = reference("group_norm", ["Y", "Mean", "Variance"], inputs, groups=count, epsilon=0.5)
    rows, steep = (value.reshape(images, count, -1).astype(np.float64) for value in (array, given[grad]))
    apart = steep - steep.mean(2, keepdims=True) - rows * (rows * steep).mean(2, keepdims=True)
    wanted.append((apart / np.sqrt(wanted[2][..., None] + 0.5)).reshape(shape))
    for a, b in zip(found, wanted, strict=True):
        near(a, b, 1e-4)
