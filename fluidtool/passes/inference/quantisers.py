"""Quantised programs round to steps: a number that is off by its last bit may land on another step.

Rewrites that round otherwise leave what is quantised later on as it is; the numbers could change by whole steps.
"""

from __future__ import annotations

from fluidtool.ir.dataflow import BlockFlow, sub_block_operators

REASON = "its values are quantized later; computed differently, some would round to other quantization steps"


def is_quantiser(op_type: str) -> bool:
    """Whether operators of this type round to steps (`fake_quantize_…`, `quantize`, `quantize_linear`)."""
    return "quantize" in op_type.replace("dequantize", "")


def before_quantisers(flow: BlockFlow) -> frozenset[int]:
    """The positions of operators whose results a quantiser of this block (or of one below) reads, at any remove."""
    program, found = flow.block.program, set[int]()
    for position in range(len(flow.block.ops) - 1, -1, -1):
        for name in flow.writes[position]:
            for reader in flow.consumers(position, name):
                op = flow.block.ops[reader]
                below = sub_block_operators(program, op)
                if reader in found or is_quantiser(op.type) or any(is_quantiser(inner.type) for inner in below):
                    found.add(position)
    return frozenset(found)
