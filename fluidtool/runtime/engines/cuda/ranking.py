"""Where the largest and the smallest numbers are: a warp or a block for each row, which registers hold where they can."""

from __future__ import annotations

from math import prod

from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers
from fluidtool.runtime.engines.cuda.rows import Rows, in_rows
from fluidtool.runtime.engines.cuda.sources import EXPRESSIONS, THREADS, Index, Source
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Value

EXACT = 1 << 24  # whole numbers up to this are floats
MOST = 64  # places of a row, whose order each thread keeps
AHEAD = 8  # elements that a thread looks at before it tells the others

BEFORE = """FT_DEVICE bool ft_before(float a, float i, float b, float j)
{
    if (a != a || b != b) return a != a && (b == b || i < j);
    return a > b || (a == b && i < j);
}
"""
"""Whether the number a at the place i comes before b at j: what is not a number first, then larger ones, then lower places."""
SINK = """FT_DEVICE void ft_sink(float* values, int* places, int top, int size, float value, int place)
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
    need(k <= MOST, f"more than {MOST} places")
    need(count <= EXACT, f"rows of more than {EXACT} elements")
    if k == 1:
        _first_of_rows(low, node, (rows, count), "", "ft_larger(v, most)", "v == most || v != v")
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


def _picked(src: Source, node: Node, index: Index) -> str:
    """The numbers of a row at its places."""
    x, places = node.inputs
    place = src.whole(f"(int){src.load(places, index)}")
    return src.load(x, [*index[:-1], place if x.shape[-1] > 1 else "0"])


EXPRESSIONS["pick"] = _picked


@lowers("pick")
def _pick(low: Lowering, node: Node) -> None:
    low.elementwise(low.new(node.output), node.output.shape, lambda src, index: src.result(node, index))
