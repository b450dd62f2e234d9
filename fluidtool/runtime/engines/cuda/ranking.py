"""Where the largest and the smallest numbers are: a warp or a block for each row, which registers hold where they can.

Of many places rows are sorted.
"""

from __future__ import annotations

from math import prod

from fluidtool.runtime.engines.cuda.calls import Place, row_major
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers
from fluidtool.runtime.engines.cuda.rows import Rows, in_rows
from fluidtool.runtime.engines.cuda.sorting import sorted_keys
from fluidtool.runtime.engines.cuda.sources import EXPRESSIONS, THREADS, Index, Source, threads_for
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Value

EXACT = 1 << 24  # whole numbers up to this are floats
MOST = 64  # places of a row, whose order each thread keeps; for more, rows are sorted
AHEAD = 8  # elements that a thread looks at before it tells the others

BEFORE = """FT_DEVICE bool ft_before(float a, float i, float b, float j)
{
    if (a != a || b != b) return a != a && (b == b || i < j);
    return a > b || (a == b && i < j);
}
"""
"""Whether the number a at the place i comes before b at j: what is not a number first, then larger ones, then lower places."""
SINK = """template <class V, class P> FT_DEVICE void ft_sink(V values, P places, int top, int size, float value, int place)
{
    int hole = top, child = top;
    while (child < (size - 1) / 2) {
        child = 2 * (child + 1);
        if (values[child] > values[child - 1]) child--;
        values[hole] = values[child]; places[hole] = places[child]; hole = child;
    }
    if (size % 2 == 0 && child == (size - 2) / 2) {
        child = 2 * child + 1;
        values[hole] = values[child]; places[hole] = places[child]; hole = child;
    }
    for (int parent = (hole - 1) / 2; hole > top && values[parent] > value; parent = (hole - 1) / 2) {
        values[hole] = values[parent]; places[hole] = places[parent]; hole = parent;
    }
    values[hole] = value; places[hole] = place;
}
"""
"""A move of C++'s partial_sort, which decides between equal numbers (fluidtool/ops/tensor/partial_sort.py)."""


def element(kernel: Rows, x: Value, part: str) -> str:
    """An element of the row of a kernel."""
    return kernel.src.load(x, kernel.src.split(kernel.index(part), x.shape))


# ---------------------------------------------------------------- the first place
@lowers("extreme_place")
def _extreme_place(low: Lowering, node: Node) -> None:
    """Inputs of [outer, axis, inner], by `sizes`: the first place of the largest, or smallest, number; NaN is never it."""
    (x,), (outer, count, inner) = node.inputs, node.attrs["sizes"]
    sign = "-" if node.attrs["smallest"] else ""
    need(count <= EXACT, f"an axis of more than {EXACT} elements")
    if inner == 1:
        _first_of_rows(low, node, (outer, count), sign, "v > most ? v : most", "v == most")
        return
    src, out = Source(low), low.new(node.output)
    at = src.thread(outer * inner)
    first = src.whole(f"{at} / {inner} * {count * inner} + {at} % {inner}")
    loaded = src.within(
        lambda: f"const float v = {sign}{src.load(x, src.split(src.whole(f'{first} + i * {inner}'), x.shape))};"
    )
    src.lines += [
        "float most = -1.0f / 0.0f;",
        "int place = 0;",
        f"for (int i = 0; i < {count}; i++) {{ {loaded} if (v > most) {{ most = v; place = i; }} }}",
        f"out[{at}] = place;",
    ]
    low.calls.append(src.launch(out, -(-outer * inner // THREADS), THREADS, "place"))


def _first_of_rows(low: Lowering, node: Node, matrix: tuple[int, int], sign: str, larger: str, is_it: str) -> None:
    """The first place of each row where v is what all of the row are joined to. larger: of v and `most`. is_it: whether v is."""
    (x,), out, (rows, count) = node.inputs, low.new(node.output), matrix

    def write(kernel: Rows) -> None:
        src = kernel.src
        src.lines.append(f"float most = -1.0f / 0.0f, first = {count}.0f;")
        kernel.first(lambda part: sign + element(kernel, x, part), lambda part: f"most = {larger};")
        kernel.joined("most", larger.replace("v", "{b}").replace("most", "{a}"))
        kernel.again(
            lambda part: sign + element(kernel, x, part),
            lambda part: f"if (({is_it}) && {part} < first) first = (float){part};",
        )
        kernel.joined("first", "({a} < {b} ? {a} : {b})")
        src.lines.append(f"if (me == 0) out[row] = first < {count}.0f ? (whole)first : 0;")

    in_rows(low, out, rows, count, "place", write)


# ---------------------------------------------------------------- several places
@lowers("top_k")
def _top_k(low: Lowering, node: Node) -> None:
    """The places of the k largest numbers of each row, largest first. NaN counts as the largest.

    The leading k + 1 are found one after the other; if two of them are equal, the row repeats the moves of partial_sort, by
    which real Paddle takes one of them (fluidtool/ops/tensor/sort.py).
    """
    (x,), k = node.inputs, node.output.shape[-1]
    rows, count = prod(x.shape[:-1]), x.shape[-1]
    need(count <= EXACT, f"rows of more than {EXACT} elements")
    if k == 1:
        _first_of_rows(low, node, (rows, count), "", "ft_larger(v, most)", "v == most || v != v")
        return
    if k > MOST:
        _many(low, node, (rows, count), k)
        return

    def write(kernel: Rows) -> None:
        kernel.src.functions["ft_before"] = BEFORE
        kernel.src.functions["ft_sink"] = SINK
        _leading(kernel, x, k)
        _sorted(kernel, x, k)

    in_rows(low, low.new(node.output), rows, count, "largest", write)


def _leading(kernel: Rows, x: Value, k: int) -> None:
    """Statements that store the leading k places, one after the other, and find out whether any of k + 1 are `tied`."""
    src, none = kernel.src, f"{kernel.count}.0f"
    src.lines.append("float last = 0.0f, place = -1.0f; bool tied = false;")
    kernel.first(lambda part: element(kernel, x, part), lambda part: "")
    src.lines += [
        f"for (int rank = 0; rank < {min(k + 1, kernel.count)}; rank++) {{",
        f"float best = -1.0f / 0.0f, first = {none};",
    ]
    kernel.again(
        lambda part: element(kernel, x, part),
        lambda part: (
            f"const float i = (float){part}; if ((rank == 0 || ft_before(last, place, v, i)) && "
            f"(first == {none} || ft_before(v, i, best, first))) {{ best = v; first = i; }}"
        ),
    )
    src.lines.append("float most = best;")
    kernel.joined("most", "ft_larger({a}, {b})")
    src.lines.append(f"if (best != most && (best == best || most == most)) first = {none};")
    kernel.joined("first", "({a} < {b} ? {a} : {b})")
    src.lines += [
        "if (rank > 0 && most == last) { tied = true; break; }",
        f"if (rank < {k} && me == 0) out[row * {k} + rank] = (whole)first;",
        "last = most; place = first;",
        "}",
    ]


def _sorted(kernel: Rows, x: Value, k: int) -> None:
    """Statements that store the places again where numbers are tied, in the order of a heap that all threads of a row keep."""
    src, count, threads = kernel.src, kernel.count, kernel.threads

    def loaded(part: str) -> str:
        return src.within(lambda: f"const float v = {element(kernel, x, part)};")

    src.lines += [
        "if (!tied) return;",
        f"float values[{k}]; int places[{k}];",
        f"for (int i = 0; i < {k}; i++) {{ {loaded('i')} values[i] = v; places[i] = i; }}",
        f"for (int top = {(k - 2) // 2}; top >= 0; top--) ft_sink(values, places, top, {k}, values[top], places[top]);",
        f"for (int start = {k}; start < {count};) {{",
        f"float next = {count}.0f;",
        f"for (int i = start + me; i < {count} && i < start + {threads * AHEAD}; i += {threads}) "
        f"{{ {loaded('i')} if (v > values[0]) {{ next = (float)i; break; }} }}",
    ]
    kernel.joined("next", "({a} < {b} ? {a} : {b})")
    src.lines += [
        f"if (next == {count}.0f) {{ start += {threads * AHEAD}; continue; }}",
        "start = (int)next;",
        f"{loaded('start')} ft_sink(values, places, 0, {k}, v, start++);",
        "}",
        f"for (int left = {k - 1}; left > 0; left--) {{",
        "    const float v = values[left]; const int i = places[left];",
        "    places[left] = places[0]; values[left] = values[0];",
        "    ft_sink(values, places, 0, left, v, i);",
        "}",
        f"if (me == 0) for (int i = 0; i < {k}; i++) out[row * {k} + i] = places[i];",
    ]


# ---------------------------------------------------------------- many places, and all
ORDER = """FT_DEVICE unsigned ft_order(float v)
{
    const unsigned bits = v == 0.0f ? 0u : __float_as_uint(v);
    return v != v ? 0xffffffffu : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
"""
"""What stands for a number where larger ones are behind, and what is not a number is last; equal numbers have one."""
PLACES = 24  # bits of a place in a row: EXACT elements


def _sorted_places(low: Lowering, x: Value, matrix: tuple[int, int], descending: bool) -> Place:
    """The keys of rows in order: what stands for the number, then its place."""

    def key(src: Source, row: str, at: str) -> str:
        src.functions["ft_order"] = ORDER
        v = src.load(x, src.split(src.whole(f"{row} * {matrix[1]} + {at}"), x.shape))
        return f"(whole)({'~' if descending else ''}ft_order({v})) << {PLACES} | {at}"

    return sorted_keys(low, *matrix, key)


def _place(key: str) -> str:
    """The place that a key names."""
    return f"({key} & {(1 << PLACES) - 1})"


def _many(low: Lowering, node: Node, matrix: tuple[int, int], k: int) -> None:
    """The leading k places of sorted rows; what Paddle takes of them where two of k + 1 numbers are equal."""
    (x,), (rows, count) = node.inputs, matrix
    out, keys = low.new(node.output), _sorted_places(low, x, matrix, True)
    src, threads = Source(low), threads_for(count)
    src.row(threads)
    first, second = (f"({src.at(keys, ['row', part])} >> {PLACES})" for part in ("i", "(i + 1)"))
    equal = f"const float v = {first} == {second} && {first} != 0 ? 1.0f : 0.0f;"  # 0 stands for what is not a number
    place = _place(src.at(keys, ["row", "i"]))
    src.lines.append(f"for (int i = me; i < {k}; i += {threads}) out[row * {k} + i] = {place};")
    src.reduced("tied", "0.0f", equal, "({a} + {b})", min(k, count - 1), threads)
    src.lines.append("if (tied == 0.0f) return;")
    _from_heap(low, src, x, (count, k, threads))
    low.calls.append(src.launch(out, rows, threads, "largest"))


def _from_heap(low: Lowering, src: Source, x: Value, sizes: tuple[int, int, int]) -> None:
    """Statements that store the places of a row again in the order of a heap in memory: one thread moves it, all look ahead.

    sizes: the numbers of a row, its places, the threads.
    """
    count, k, threads = sizes
    src.functions["ft_sink"] = SINK
    rows = prod(x.shape[:-1])
    values, places = f"({src.writable(low.room((rows, k)))} + row * {k})", f"(out + row * {k})"

    def read(part: str) -> str:
        return f"const float own = {src.load(x, src.split(src.whole(f'row * {count} + {part}'), x.shape))};"

    def larger() -> str:
        return f"{read('start + i')} if (own > least) v = (float)(start + i);"

    each = f"for (int i = me; i < {k}; i += {threads})"
    src.lines += [
        f"{each} {{ {src.within(lambda: read('i'))} {values}[i] = own; {places}[i] = i; }}",
        "__syncthreads();",
        f"if (me == 0) for (int top = {(k - 2) // 2}; top >= 0; top--) "
        f"ft_sink({values}, {places}, top, {k}, {values}[top], (int){places}[top]);",
        "__syncthreads();",
        f"for (int start = {k}; start < {count};) {{",
        f"const float least = {values}[0];",
    ]
    ahead = f"float v = {count}.0f; if (start + i < {count}) {{ {src.within(larger)} }}"
    src.reduced("next", f"{count}.0f", ahead, "({a} < {b} ? {a} : {b})", threads * AHEAD, threads)
    src.lines += [
        f"if (next == {count}.0f) {{ start += {threads * AHEAD}; continue; }}",
        "start = (int)next;",
        f"if (me == 0) {{ {src.within(lambda: read('start'))} ft_sink({values}, {places}, 0, {k}, own, start); }}",
        "start++;",
        "__syncthreads();",
        "}",
        f"if (me == 0) for (int left = {k - 1}; left > 0; left--) {{",
        f"    const float v = {values}[left]; const int i = (int){places}[left];",
        f"    {places}[left] = {places}[0]; {values}[left] = {values}[0];",
        f"    ft_sink({values}, {places}, 0, left, v, i);",
        "}",
    ]


@lowers("order")
def _order(low: Lowering, node: Node) -> None:
    """The places of all numbers of each row in order; equal ones keep theirs, what is not a number counts as the largest."""
    (x,), shape, out = node.inputs, node.output.shape, low.new(node.output)
    rows, count = prod(shape[:-1]), shape[-1]
    need(count <= EXACT, f"rows of more than {EXACT} elements")
    keys = _sorted_places(low, x, (rows, count), node.attrs["descending"])
    steps = (*(step * keys.strides[0] for step in row_major(shape[:-1])), 1)
    low.elementwise(out, shape, lambda src, index: _place(src.at(Place(keys.buffer, steps), index)))


def _picked(src: Source, node: Node, index: Index) -> str:
    """The numbers of a row at its places."""
    x, places = node.inputs
    place = src.whole(f"(int){src.load(places, index)}")
    return src.load(x, [*index[:-1], place if x.shape[-1] > 1 else "0"])


EXPRESSIONS["pick"] = _picked


@lowers("pick")
def _pick(low: Lowering, node: Node) -> None:
    low.elementwise(low.new(node.output), node.output.shape, lambda src, index: src.result(node, index))
