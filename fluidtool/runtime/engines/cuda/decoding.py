"""crf_decoding: the best path through the tags of each sequence (Viterbi), a block for each."""

from __future__ import annotations

from math import prod

from fluidtool.runtime.engines.cuda.calls import Buffer
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers
from fluidtool.runtime.engines.cuda.runs import beyond, of_block
from fluidtool.runtime.engines.cuda.sources import threads_for
from fluidtool.runtime.graph.ir import Node

FIRST = "{a} > {b} || ({a} != {a} && {b} == {b})"
"""Whether a score wins over that of a lower tag, as in numpy: of equal ones the first, and the first that is no number."""


@lowers("best_path")
def _best_path(low: Lowering, node: Node) -> None:
    """Inputs [rows, tags], transitions [tags + 2, tags], perhaps labels, perhaps lengths -> tags, or 1 where one is the label.

    Scores are added in numpy's order: which path is best must not depend on the last bit.
    """
    runs, tags = node.attrs["runs"], node.inputs[1].shape[1]
    threads, out = threads_for(tags), low.new(node.output)
    src, names = of_block(low, node)
    (x, t), before = names[:2], src.writable(Buffer(prod(node.inputs[0].shape)))
    found = f"tag == {names[2]}[r]" if node.attrs["has_labels"] else "tag"
    src.lines += [
        f"__shared__ float best[{tags}], now[{tags}];",
        *beyond(runs, 1, threads, "0"),
        "if (count == 0) return;",
        f"for (int j = me; j < {tags}; j += {threads}) best[j] = {x}[begin * {tags} + j] + {t}[j];",
        "__syncthreads();",
        "for (int r = begin + 1; r < begin + count; r++) {",
        f"for (int j = me; j < {tags}; j += {threads}) {{",
        f"    float most = best[0] + {t}[{2 * tags} + j];",
        "    int tag = 0;",
        f"    for (int i = 1; i < {tags}; i++) {{",
        f"        const float score = best[i] + {t}[(i + 2) * {tags} + j];",
        f"        if ({FIRST.format(a='score', b='most')}) {{ most = score; tag = i; }}",
        "    }",
        f"    now[j] = most + {x}[r * {tags} + j];",
        f"    {before}[r * {tags} + j] = (float)tag;",
        "}",
        "__syncthreads();",
        f"for (int j = me; j < {tags}; j += {threads}) best[j] = now[j];",
        "__syncthreads();",
        "}",
        "if (me) return;",
        "int tag = 0;",
        f"float most = best[0] + {t}[{tags}];",
        f"for (int i = 1; i < {tags}; i++) {{",
        f"    const float score = best[i] + {t}[{tags} + i];",
        f"    if ({FIRST.format(a='score', b='most')}) {{ most = score; tag = i; }}",
        "}",
        "for (int r = begin + count - 1; r >= begin; r--) {",
        f"    out[r] = {found};",
        f"    if (r > begin) tag = (int){before}[r * {tags} + tag];",
        "}",
    ]
    low.calls.append(src.launch(out, runs.count, threads, "viterbi"))
