"""Kernel calls before they have addresses."""

from __future__ import annotations

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native.abi import Arguments, Kind, Pairs, Product
from fluidtool.runtime.engines.native.layouts import Buffer, Pointer
from fluidtool.runtime.graph.ir import NONE, Activation, Node


@dataclass(slots=True)
class KernelCall:
    """A kernel and its arguments; `node` requested it, and its layout is `blocked`, or strided.

    `repeats`: the call that does the same for the first images of a batch.
    """

    arguments: Arguments[Pointer]
    tasks: int = 1
    activation: Activation = NONE
    node: Node | None = None
    blocked: bool = False
    repeats: KernelCall | None = None

    @property
    def kind(self) -> Kind:
        """Which kernel."""
        return self.arguments.kind

    def buffers(self) -> list[Buffer]:
        """The memory that the kernel accesses."""
        return [pointer[0] for pointer in self.arguments.pointers() if pointer is not None]


def is_narrow(kernel_call: KernelCall) -> bool:
    """Whether a call reads bfloat16 weights."""
    arguments = kernel_call.arguments
    return isinstance(arguments, Pairs) or (isinstance(arguments, Product) and bool(arguments.bfloat16))
