"""Traits of operators besides their schemas: plain data for passes and distribution, by type.

An operator declares it (`@op(..., traits=Traits(table="W"))`), and `registry.traits_of` answers from the generated
`ops/index.py`, without importing the operator.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Literal

from fluidtool.records import dataclass

Memory = Literal["named", "scoped", "view", "keeps_lod"]


@dataclass(frozen=True, slots=True)
class Traits:
    """Traits of one operator; those of most are the defaults.

    gradient_scope: its gradient operators get its name scope and `op_role_var` (False: Paddle's maker copies neither).
    sharded: of an optimizer that parameter servers run: the inputs that are sliced like its parameter; None: servers do
    not run it. sharded_if: (attribute, input), for an input that is sliced only where the attribute is true.
    table: the input whose rows are looked up by ids, and may be on servers. plain_lookup: it does nothing else.
    transpiled: created only by a transpiler for distributed training.
    memory: why its variables cannot share memory with others. "named": their names have a meaning outside, for
    other processes or in what is printed. "scoped": only the names must stay; when it ends, it is done with the values.
    "view": in Paddle, an output is a view of an input. "keeps_lod": in Paddle, outputs keep the LoD that they had.
    lod_branch: the input that it treats differently if it has a LoD.
    weight: the input that learned weights come by. channel_axis: which of their axes is that of the output channels.
    shapes: the inputs of which it reads shapes, data types and LoDs, but no numbers.
    held: the input that Python puts into the scope, and that no block need declare.
    """

    gradient_scope: bool = True
    sharded: tuple[str, ...] | None = None
    sharded_if: tuple[str, str] | None = None
    table: str = ""
    plain_lookup: bool = False
    transpiled: bool = False
    memory: Memory | None = None
    lod_branch: str = ""
    weight: str = ""
    channel_axis: int = -1
    shapes: tuple[str, ...] = ()
    held: str = ""

    def declared(self) -> dict[str, object]:
        """The traits that are not the defaults, by name."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in found.items() if value != getattr(NO_TRAITS, name)}

    def input_names(self) -> tuple[str, ...]:
        """The input slots that traits name."""
        conditional = () if self.sharded_if is None else (self.sharded_if[1],)
        return (
            *(self.sharded or ()),
            *conditional,
            *self.shapes,
            *filter(None, (self.table, self.lod_branch, self.weight, self.held)),
        )


NO_TRAITS = Traits()
