"""Kinds of nodes that only training steps have -> calls."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod

from fluidtool.runtime.engines.cuda.calls import (
    Buffer,
    Choice,
    Convolution,
    Launch,
    Matrix,
    Place,
    Pointer,
    Product,
    channels_last,
)
from fluidtool.runtime.engines.cuda.channels import Sizes, by_eights, keep_padded, padded, takes_halves
from fluidtool.runtime.engines.cuda.lowering import (
    AXES,
    Lowering,
    like_input,
    lowers,
    matrices_of,
    matrix_of,
    need_cublaslt,
    need_cudnn,
)
from fluidtool.runtime.engines.cuda.pooling import lanes_of_channels, split_pixels
from fluidtool.runtime.engines.cuda.sorting import sorted_keys
from fluidtool.runtime.engines.cuda.sources import THREADS, Source
from fluidtool.runtime.engines.cuda.training.building import Rows, RowUpdate, Rule, Update
from fluidtool.runtime.engines.cuda.training.forward import PLACES
from fluidtool.runtime.graph.importers.registry import ADD
from fluidtool.runtime.graph.ir import NONE, RELU, Graph, Node, Value

POINTERS = 400  # arguments of a kernel, of which 4 KiB are allowed
EACH = 4  # elements of a state that each thread changes


# ---------------------------------------------------------------- products
@lowers("biased")
def _biased(low: Lowering, node: Node) -> None:
    """The product of two matrices plus a number for each column, and a ReLU: what cuBLASLt does at its end."""
    need_cublaslt(low)
    x, y, bias = node.inputs
    (rows, depth), columns, swapped = x.shape, node.output.shape[1], node.attrs["swap_y"]
    out = low.new(node.output)
    left, right = (matrices_of(low, low.place(value), value.shape) for value in (x, y))
    low.calls.append(
        Product(
            matrix_of(left, 0, False), matrix_of(right, 0, swapped), Matrix(out.pointer, columns), rows, depth, columns,
            bias=low.contiguous(bias, out.buffer.half).pointer, epilogue="relu" if node.activation == RELU else "",
        )
    )  # fmt: skip


def with_biases(graph: Graph) -> Graph:
    """Products whose only reader adds a number to each column, and ReLUs after those, as one node each."""
    uses, made = graph.uses(), {node.output: node for node in graph.nodes}
    outputs, dropped = set(graph.outputs), set()
    changed: dict[Node, Node] = {}
    for node in graph.nodes:
        before = made.get(node.inputs[0]) if node.inputs else None
        if before is None or uses[before.output] != 1 or before.output in outputs:
            continue
        before = changed.get(before, before)
        if _adds_to_columns(node) and before.kind == "matmul" and len(before.output.shape) == 2:
            attrs, inputs = {"swap_y": before.attrs["swap_y"]}, (*before.inputs, node.inputs[1])
            changed[node] = Node("biased", inputs, node.output, attrs)
        elif _is_relu(node) and before.kind == "biased" and before.activation == NONE:
            changed[node] = Node("biased", before.inputs, node.output, before.attrs, RELU)
        else:
            continue
        dropped.add(made[node.inputs[0]].output)
    return graph.with_nodes(changed.get(node, node) for node in graph.nodes if node.output not in dropped)


def _adds_to_columns(node: Node) -> bool:
    plain = node.residual is None and node.activation == NONE
    if node.kind != "binary" or node.attrs["operation"] != ADD or not plain or len(node.output.shape) != 2:
        return False
    return tuple(node.attrs["y_shape"]) == (1, node.output.shape[1])


def _is_relu(node: Node) -> bool:
    return node.kind == "unary" and node.activation == RELU and node.residual is None


# ---------------------------------------------------------------- images
@lowers("convolution")
def _convolution(low: Lowering, node: Node) -> None:
    """In halves where memory has those, with channels by eights. cuDNN may refuse groups, and volumes: then in float32,
    between copies.
    """
    need_cudnn(low)
    values = images_of(node)
    sizes = (values[0].shape, values[1].shape, values[2].shape)
    is_sure = takes_halves(sizes) and len(node.output.shape) == 4
    wide = by_eights(sizes) if low.half and is_sure else sizes
    shape = wide[values.index(node.output)]
    strides = low.image(node.output)
    out = Place(low.room(shape, low.half), strides(shape))
    first = convolved(low, node, out, wide)
    if low.half and not is_sure:
        before, low.calls = low.calls, []
        exact = Place(Buffer(node.output.floats), out.strides)
        low.calls.append(convolved(low, node, exact, sizes))
        low.places[node.output] = exact
        low.copy(node.output, out)
        otherwise, low.calls = low.calls, before
        low.calls.append(Choice(first, tuple(otherwise)))  # type: ignore[arg-type]
    else:
        low.calls.append(first)
    low.places[node.output] = out
    keep_padded(low, out, node.output.shape, shape)
    if low.half and not low.half_of(node.output):
        exact = Place(Buffer(node.output.floats), channels_last(node.output.shape))
        low.places[node.output] = low.copy(node.output, exact)


def images_of(node: Node) -> tuple[Value, Value, Value]:
    """Images, filters and results of a convolution, one of which the node computes."""
    one, other = node.inputs
    values = {"out": (one, other, node.output), "x": (node.output, other, one), "weights": (one, node.output, other)}
    return values[node.attrs["computes"]]


def convolved(low: Lowering, node: Node, out: Place, sizes: Sizes) -> Convolution:
    """The call for a convolution of these sizes, of the type of the place of its result; its inputs are copied where they are
    something else.
    """
    windows = node.attrs["windows"]
    x, weights, results = (
        out if value is node.output
        else padded(low, value, shape) if out.buffer.half
        else low.laid(value, low.image(node.output)(shape))
        for value, shape in zip(images_of(node), sizes, strict=True)
    )  # fmt: skip
    return Convolution(
        x.pointer, weights.pointer, results.pointer, *sizes, windows.pads, windows.strides, windows.dilations,
        node.attrs["computes"], channels_first=node.output in low.first,
    )  # fmt: skip


OTHERS = "wvu"  # places of other elements of a window, by axis


@lowers("pool_gradient")
def _pool_gradient(low: Lowering, node: Node) -> None:
    """Each element looks for its windows: of a mean it has a share, of a maximum it has all if it is the first one."""
    x, out = node.inputs[0], low.new(node.output, like_input(low, node))
    for lanes in lanes_of_channels(low, out, x.shape):
        src = _unpooled(low, node, out, lanes)
        if lanes == 1 or not src.is_scattered:
            break
    low.calls.append(src.launch(out, -(-prod(x.shape) // (lanes * THREADS)), THREADS, "unpool"))


def _unpooled(low: Lowering, node: Node, out: Place, lanes: int) -> Source:
    (x, y, grad), attrs, src = node.inputs, node.attrs, Source(low)
    image, first_channel, *pixel = split_pixels(src, out, x.shape, lanes)
    names, others, lane = AXES[5 - len(x.shape) :], OTHERS[5 - len(x.shape) :], "lane" if lanes > 1 else "0"
    loops, tests, bounds = "", "", []
    for axis, (name, part, size, count) in enumerate(zip(names, pixel, x.shape[2:], y.shape[2:], strict=True)):
        if attrs["adaptive"]:
            loops += f"for (int {name} = 0; {name} < {count}; {name}++) "
            start, end = f"({name} * {size} / {count})", f"((({name} + 1) * {size} + {count - 1}) / {count})"
            tests += f"if ({part} < {start} || {part} >= {end}) continue; "
        else:
            window, step, pad = attrs["window"][axis], attrs["strides"][axis], attrs["pads"][axis]
            src.lines.append(
                f"int from_{name} = {part} + {pad - window + 1}, to_{name} = ({part} + {pad}) / {step} + 1;"
            )
            src.lines.append(f"from_{name} = from_{name} <= 0 ? 0 : (from_{name} + {step - 1}) / {step};")
            src.lines.append(f"if (to_{name} > {count}) to_{name} = {count};")
            loops += f"for (int {name} = from_{name}; {name} < to_{name}; {name}++) "
            first, last = f"({name} * {step} - {pad})", f"({name} * {step} - {pad} + {window})"
            start, end = f"({first} < 0 ? 0 : {first})", f"({last} > {size} ? {size} : {last})"
        bounds.append((start, end))
    area = " * ".join(f"({end} - {start})" for start, end in bounds)
    divisor = {0: "", 1: f" / (float)({area})", 2: f" / (float)({prod(attrs['window'])})"}[attrs["mode"]]

    def added(channel: str) -> str:
        here, first = [image, channel, *names], ""
        share = f"{src.load(grad, here)}{divisor}"
        if attrs["mode"] == 0:
            own = src.load(x, [image, channel, *pixel])
            best = src.load(y, here)
            scattered = src.is_scattered  # by what comes here, which few lanes do
            src.varying.update(others)  # counted within each lane
            rival = src.load(x, [image, channel, *others])
            src.is_scattered = scattered
            first = (
                f"const float own = {own}; if (own != {best}) continue; bool first = true; {_before(pixel, bounds)}"
                f"if ({rival} == own) {{ first = false; break; }} "
                "if (!first) continue; "
            )
        return f"{first}total[{lane}] += {share};"

    def stored(channel: str) -> str:
        return src.store(out, [image, channel, *pixel], f"total[{lane}]")

    each = src.side_by_side(lanes, first_channel, added)
    src.lines += [
        f"float total[{lanes}];",
        f"for (int lane = 0; lane < {lanes}; lane++) total[lane] = 0.0f;",
        f"{loops}{{ {tests}{each} }}",
    ]
    src.lines.append(src.side_by_side(lanes, first_channel, stored))
    return src


def _before(own: Sequence[str], bounds: Sequence[tuple[str, str]]) -> str:
    """Loops over the elements of a window before the own one, row by row, as long as it is the `first`."""
    loops, names = "", OTHERS[3 - len(own) :]
    for axis, (name, part, (start, end)) in enumerate(zip(names, own, bounds, strict=True)):
        is_last = axis == len(own) - 1
        stop = part if is_last else f"{part} + 1"
        alike = " && ".join(f"{other} == {there}" for other, there in zip(names[:axis], own, strict=False))
        loops += f"for (int {name} = {start}; {name} < {f'({alike} ? {stop} : {end})' if alike else stop}"
        loops += f"; {name}++) " if is_last else f" && first; {name}++) "
    return loops


# ---------------------------------------------------------------- tables
def sorted_ids(low: Lowering, ids: Sequence[Value]) -> Pointer:
    """Keys of ids and of their places, sorted. The same ids are sorted once."""
    known = tuple(ids)
    if known not in low.sorted:
        counts, places = [prod(each.shape) for each in ids], [low.contiguous(each) for each in ids]

        def key(src: Source, row: str, at: str) -> str:
            loaded, begin = "", 0
            for place, own in zip(places, counts, strict=True):
                element = f"{src.pointer(place.buffer, place.offset)}[{at} - {begin}]"
                loaded = f"{at} >= {begin} ? {element} : {loaded}" if loaded else element
                begin += own
            return f"({loaded}) << {PLACES} | {at}"

        low.sorted[known] = sorted_keys(low, 1, sum(counts), key).pointer
    return low.sorted[known]


def _row_sums(
    low: Lowering, src: Source, rows: Rows, width: int, zero: int = -1, in_place: bool = False, wins: bool = False
) -> tuple[int, str, str]:
    """Statements that add up the rows of one id in order, by the thread of its first place: (threads, the row, the column).

    Threads of other places return. The sum is `g`. in_place: they leave zeros, and `place` is where that id stands. wins: the
    last row counts alone.
    """
    keys = sorted_ids(low, rows.ids)
    count = sum(each.shape[0] for each in rows.grads)
    at, name = src.thread(count * width), src.pointer(keys.buffer, keys.offset)
    first, column = src.whole(f"{at} / {width}"), src.whole(f"{at} % {width}")
    row = src.whole(f"(int)({name}[{first}] >> {PLACES})")
    same = f"(int)({name}[{{}}] >> {PLACES}) == {row}"
    left = ""
    if in_place:
        src.lines.append(f"const int place = (int)({name}[{first}] & {(1 << PLACES) - 1});")
        left = f"out[place * {width} + {column}] = 0.0f; "
    src.lines.append(f"if ({first} > 0 && {same.format(f'{first} - 1')}) {{ {left}return; }}")
    if zero >= 0:
        src.lines.append(f"if ({row} == {zero}) return;")
    places = [low.contiguous(each) for each in rows.grads]
    start, ends = 0, []
    for each in rows.grads:
        ends.append((start, each.shape[0]))
        start += each.shape[0]
    loaded = ""
    for place, (begin, own) in reversed(list(zip(places, ends, strict=True))):
        element = f"{src.pointer(place.buffer, place.offset)}[(i - {begin}) * {width} + {column}]"
        loaded = f"i < {begin + own} ? {element} : {loaded}" if loaded else element
    src.lines += [
        "float g = 0.0f;",
        f"for (int n = {first}; n < {count} && {same.format('n')}; n++) {{",
        f"    const int i = (int)({name}[n] & {(1 << PLACES) - 1});",
        f"    g {'=' if wins else '+='} {loaded};",
        "}",
    ]
    return count * width, row, column


@lowers("rows_gradient")
def _rows_gradient(low: Lowering, node: Node) -> None:
    """Zeros, then the sums of the rows of each id, or the last of them."""
    half, width = len(node.inputs) // 2, node.output.shape[1]
    out = low.new(node.output)
    low.elementwise(out, node.output.shape, lambda src, index: "0.0f")
    src = Source(low)
    rows = Rows(tuple(node.inputs[:half]), tuple(node.inputs[half:]))
    threads, row, column = _row_sums(low, src, rows, width, node.attrs["zero"], wins=node.attrs.get("wins", False))
    src.lines.append(src.store(out, [row, column], "g"))
    low.calls.append(src.launch(out, -(-threads // THREADS), THREADS, "scatter"))


@lowers("merged_rows")
def _merged_rows(low: Lowering, node: Node) -> None:
    """The sum of the rows of each id where it stands first, zeros where it stands again."""
    half, width = len(node.inputs) // 2, node.output.shape[1]
    out, src = low.new(node.output), Source(low)
    rows = Rows(tuple(node.inputs[:half]), tuple(node.inputs[half:]))
    threads, _, column = _row_sums(low, src, rows, width, in_place=True)
    src.lines.append(src.store(out, ["place", column], "g"))
    low.calls.append(src.launch(out, -(-threads // THREADS), THREADS, "merged"))


def update_rows(low: Lowering, each: RowUpdate) -> None:
    """Change the rows that have a gradient."""
    width, src = each.states[0].shape[1], Source(low)
    threads, row, column = _row_sums(low, src, each.rows, width)
    element = src.whole(f"{row} * {width} + {column}")
    places = [low.place(value) for value in each.states]
    names = [src.writable(place.buffer, place.offset) for place in places]
    for name, value in zip(each.rule.numbers, each.numbers, strict=True):
        place = low.place(value)
        src.lines.append(f"const float {name} = {src.pointer(place.buffer, place.offset)}[0];")
    for letter, name in zip(each.rule.states, names, strict=True):
        src.lines.append(f"float {letter} = {name}[{element}];")
    src.lines.append(each.rule.text)
    src.lines += [f"{name}[{element}] = {letter};" for letter, name in zip(each.rule.states, names, strict=True)]
    low.calls.append(src.launch(places[0], -(-threads // THREADS), THREADS, "rows_update"))


# ---------------------------------------------------------------- updates
def update(low: Lowering, updates: Sequence[Update]) -> None:
    """Updates by rule, as few kernels as their arguments allow; last those without a gradient, whose states others read."""
    by_rule: dict[Rule, list[Update]] = {}
    for each in sorted(updates, key=lambda each: each.gradient is None):
        by_rule.setdefault(each.rule, []).append(each)
    for rule, alike in by_rule.items():
        at_once = POINTERS // (len(rule.states) + len(rule.numbers) + 1)
        for start in range(0, len(alike), at_once):
            low.calls.append(_together(low, rule, alike[start : start + at_once]))


def _together(low: Lowering, rule: Rule, updates: Sequence[Update]) -> Launch:
    """One kernel for updates by one rule: each block changes a part of one of them."""
    gradient = () if updates[0].gradient is None else ("g",)
    names = (*rule.states, *gradient, *rule.numbers)
    pointers: list[Pointer] = []
    cases: list[str] = []
    block = 0
    for number, each in enumerate(updates):
        places = [low.place(value) for value in each.states]
        if each.gradient is not None:
            places.append(low.contiguous(each.gradient))
        places += [low.place(value) for value in each.numbers]
        pointers += [place.pointer for place in places]
        count = prod(each.states[0].shape)
        chosen = " ".join(f"{name}_ = {name}{number};" for name in names)
        start, block = block, block + -(-count // (THREADS * EACH))
        cases.append(f"if (block < {block}) {{ {chosen} count = {count}; block -= {start}; }}")
    written = [f"float* {name}_;" for name in rule.states]
    read = [f"const float* {name}_;" for name in (*gradient, *rule.numbers)]
    arrays = (*rule.states, *gradient)

    def changed(element: str) -> str:
        """Statements for one element of each array."""
        kinds = [
            f"{'float' if name in rule.states else 'const float'} {name} = {element.format(name)};" for name in arrays
        ]
        return " ".join([*kinds, rule.text, *(f"{element.format(name)} = {name};" for name in rule.states)])

    alone, lane = changed("{}_[i]"), changed("{}_each[k]")
    gotten = " ".join(
        f"float {name}_each[{EACH}]; ft_get_anywhere<{EACH}>({name}_each, {name}_ + first);" for name in arrays
    )
    put = " ".join(f"ft_put_anywhere<{EACH}>({name}_ + first, {name}_each);" for name in rule.states)
    single = " ".join(f"const float {name} = {name}_[0];" for name in rule.numbers)
    arguments = ", ".join(
        f"{'' if name in rule.states else 'const '}float* {name}{number}"
        for number in range(len(updates))
        for name in names
    )
    text = (
        f"({arguments})\n{{\n    {' '.join(written + read)} int block = blockIdx.x, count;\n    "
        + "\n    else ".join(cases)
        + f"\n    else return;\n    {single}\n"
        f"    const int first = (block * {THREADS} + threadIdx.x) * {EACH};\n"
        f"    if (first >= count) return;\n"
        f"    if (first > count - {EACH}) {{\n"
        f"        for (int i = first; i < count; i++) {{ {alone} }}\n"
        f"        return;\n    }}\n"
        f"    {gotten}\n#pragma unroll\n    for (int k = 0; k < {EACH}; k++) {{ {lane} }}\n    {put}\n}}\n"
    )
    name = f"update_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    source = f'extern "C" __global__ void __launch_bounds__({THREADS}) {name}{text}'
    return Launch(name, source, tuple(pointers), block, THREADS)
