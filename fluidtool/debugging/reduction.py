"""The smallest part of a program that a judge still finds interesting: ends cut off by halves, then chunks taken out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from fluidtool.io.inference import inference_program, strip_feed_fetch
from fluidtool.ir import Program
from fluidtool.ir.dataflow import BlockFlow, block_flow
from fluidtool.ops.registry import find_op
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

Judge = Callable[[Program, Sequence[str]], bool]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Some operators of a program as a program: what they read and do not compute is fed, what nothing of them reads is fetched."""

    program: Program
    feeds: tuple[str, ...]


@dataclass(slots=True)
class Reduction:
    """The search. `program` gives every value a name of its own, without feed and fetch operators; `inputs` and `outputs` are
    those of the model.

    judge: whether a program is still interesting. limit: how often it may be asked; what is found by then is the result.
    """

    program: Program
    inputs: frozenset[str]
    outputs: frozenset[str]
    judge: Judge
    limit: int
    advance: Callable[[str], object]
    asked: int = 0
    flow: BlockFlow = field(init=False)

    def __post_init__(self) -> None:
        self.flow = block_flow(self.program.global_block())

    def reduce(self) -> list[int]:
        """The positions of the operators that are left: none of the chunks tried can be taken out."""
        kept = list(range(len(self.flow.effects)))
        kept = self._shorter(kept, lambda count: kept[:count])
        kept = self._shorter(kept, lambda count: kept[len(kept) - count :])
        return self._without_chunks(kept)

    def _shorter(self, kept: Sequence[int], first: Callable[[int], list[int]]) -> list[int]:
        """The fewest operators of one end that are interesting, as far as halving finds them."""
        low, high = 0, len(kept)  # nothing is never interesting; all of it is
        while high - low > 1:
            middle = (low + high) // 2
            if self._interesting(first(middle)):
                high = middle
            else:
                low = middle
        return first(high)

    def _without_chunks(self, kept: list[int]) -> list[int]:
        """Take out chunks of half of the operators, a quarter, …, one, for as long as any can be."""
        size = max(len(kept) // 2, 1)
        while len(kept) > 1 and self.asked < self.limit:
            smaller = self._sweep(kept, size)
            if len(smaller) == len(kept) and size == 1:
                break
            size = min(size, len(smaller)) if len(smaller) < len(kept) else max(size // 2, 1)
            kept = smaller
        return kept

    def _sweep(self, kept: list[int], size: int) -> list[int]:
        start = 0
        while start < len(kept) and len(kept) > 1:
            rest = kept[:start] + kept[start + size :]
            if rest and self._interesting(rest):
                kept = rest
            else:
                start += size
        return kept

    def _interesting(self, kept: Sequence[int]) -> bool:
        if self.asked >= self.limit:
            return False
        candidate = self.candidate(kept)
        if candidate is None:
            return False
        self.asked += 1
        self.advance(f"{len(kept)} operators")
        return self.judge(candidate.program, candidate.feeds)

    def candidate(self, kept: Sequence[int]) -> Candidate | None:
        """These operators as an inference program; None if they cannot be one: an input that is not a tensor, no output."""
        block = self.program.global_block()
        feeds, written, read = dict[str, None](), set[str](), set[str]()
        for position in kept:
            for name in sorted(self.flow.effects[position].reads - written):
                var = block.vars.get(name)
                unwritten = (
                    self.flow.reads[position][name].number == 0 and name not in self.inputs
                )  # until a loop writes it
                if var is None or var.persistable or unwritten:
                    continue
                if var.type != VarType.LOD_TENSOR:
                    return None
                feeds[name] = None
            written |= self.flow.effects[position].writes
            read |= self.flow.effects[position].reads
        fetches = [
            name for position in kept for name in self._results(position) if name not in read or name in self.outputs
        ]
        if not fetches:
            return None
        part = self.program.clone()
        wanted = set(kept)
        part.global_block().ops = [op for position, op in enumerate(part.global_block().ops) if position in wanted]
        return Candidate(inference_program(part, list(feeds), list(dict.fromkeys(fetches))), tuple(feeds))

    def _results(self, position: int) -> list[str]:
        """The tensors of an operator that can be fetched; not what only its gradient reads."""
        block = self.program.global_block()
        op = block.ops[position]
        info = find_op(op.type)
        notes = {
            name
            for slot in (() if info is None else info.outputs)
            if slot.intermediate
            for name in op.output(slot.name)
        }
        return [
            name
            for name in op.output_arg_names
            if name not in notes
            and name in block.vars
            and not block.vars[name].persistable
            and block.vars[name].type == VarType.LOD_TENSOR
        ]


def bare(program: Program) -> Program:
    """A copy without feed and fetch operators."""
    copy = program.clone()
    strip_feed_fetch(copy)
    return copy
