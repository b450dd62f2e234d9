"""StaticRNN: a block that runs for every step of its inputs' first dimension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fluidtool.errors import UsageError
from fluidtool.fluid.checks import check_type
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_simple
from fluidtool.fluid.layers.control_flow.blocks import inner_block, parent_block
from fluidtool.ir import Block, Variable, unique_name
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass


@dataclass(slots=True)
class _Memory:
    """A memory: its initial value, its name within a step, and its next value."""

    init: Variable
    previous: Variable
    updated: Variable | None = None


class StaticRNN:
    """`with rnn.step():` opens the block of one step; `rnn()` returns its outputs, [steps, …] each."""

    def __init__(self, name: str | None = None) -> None:
        check_type(name, "name", (str, type(None)), "fluid.layers.StaticRNN")
        self.helper = LayerHelper("static_rnn", name=name)
        self.memories: dict[str, _Memory] = {}
        self.inputs: list[Variable] = []
        self.outputs: list[Variable] = []
        self.seq_len: int | None = None
        self._inside = self._done = False

    @contextmanager
    def step(self) -> Iterator[None]:
        """Operators appended within are one step."""
        self._inside = True
        try:
            with inner_block(self.helper.main_program) as block:
                yield
                self._complete(block)
                self._done = True
        finally:
            self._inside = False

    def _must_be_inside(self, method: str) -> None:
        if not self._inside:
            raise UsageError(f"You must invoke {method} in rnn block")

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        batch_ref: Variable | None = None,
        init_value: float = 0.0,
        init_batch_dim_idx: int = 0,
        ref_batch_dim_idx: int = 1,
    ) -> Variable:
        """The value that update_memory set in the previous step; in the first step `init`.

        Without init: init_value in `shape`, whose dimension init_batch_dim_idx has the size of ref_batch_dim_idx of
        batch_ref.
        """
        self._must_be_inside("memory")
        check_type(init, "init", (Variable, type(None)), "fluid.layers.StaticRNN.memory")
        check_type(shape, "shape", (list, tuple, type(None)), "fluid.layers.StaticRNN.memory")
        check_type(batch_ref, "batch_ref", (Variable, type(None)), "fluid.layers.StaticRNN.memory")
        if init is None:
            if shape is None or batch_ref is None:
                raise UsageError("if init is None, memory at least need shape and batch_ref")
            init = self._boot(shape, batch_ref, init_value, ref_batch_dim_idx, init_batch_dim_idx)
        name = unique_name.generate(f"{self.helper.name}@mem")
        previous = self.helper.create_variable(name=name, dtype=init.dtype, shape=init.shape)
        self.memories[previous.name] = _Memory(init, previous)
        return previous

    def _boot(
        self, shape: Sequence[int], batch_ref: Variable, value: float, input_dim: int, output_dim: int
    ) -> Variable:
        around = parent_block()
        name = unique_name.generate(f"{self.helper.name}@memory_boot")
        boot = around.create_var(name=name, shape=shape, dtype=batch_ref.dtype, persistable=False)
        attrs = {
            "value": float(value),
            "shape": list(boot.shape),
            "dtype": int(boot.dtype or 0),
            "input_dim_idx": input_dim,
            "output_dim_idx": output_dim,
        }
        inputs, outputs = {"Input": [batch_ref]}, {"Out": [boot]}
        around.append_op(type="fill_constant_batch_size_like", inputs=inputs, outputs=outputs, attrs=attrs)
        return boot

    def step_input(self, x: Variable) -> Variable:
        """This step of x [steps, …]; all inputs have the same number of steps."""
        self._must_be_inside("step_input")
        check_type(x, "x", Variable, "fluid.layers.StaticRNN.step_input")
        if self.seq_len is None:
            self.seq_len = x.shape[0]
        elif x.shape[0] not in (-1, self.seq_len):
            raise UsageError("Static RNN only take fix seq_len input")
        step = self.helper.create_variable(name=x.name, dtype=x.dtype, shape=x.shape[1:], type=x.type)
        self.inputs.append(step)
        return step

    def step_output(self, o: Variable) -> None:
        """Collect o over all steps."""
        self._must_be_inside("step_output")
        check_type(o, "o", Variable, "fluid.layers.StaticRNN.step_output")
        kept = self._remembered(o)
        outside = parent_block().create_var(name=kept.name, shape=[self.seq_len, *kept.shape], dtype=kept.dtype)
        self.outputs.append(outside)

    def output(self, *outputs: Variable) -> None:
        """step_output of several variables."""
        for each in outputs:
            self.step_output(each)

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """The memory is `var` in the next step."""
        check_type(mem, "mem", Variable, "fluid.layers.StaticRNN.update_memory")
        check_type(var, "var", Variable, "fluid.layers.StaticRNN.update_memory")
        self.memories[mem.name].updated = var

    def __call__(self) -> Variable | list[Variable]:
        """The output, or the list of outputs."""
        if not self._done:
            raise UsageError("RNN output can only be retrieved after rnn block")
        if not self.outputs:
            raise UsageError("RNN has no output")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def _remembered(self, var: Variable) -> Variable:
        attrs = {"dtype": int(var.dtype or 0)}
        return append_simple(self.helper, "rnn_memory_helper", {"X": [var]}, attrs, dtype=var.dtype)

    def _complete(self, block: Block) -> None:
        around = parent_block()
        parameters = [around.var(name) for name in self._outer_names(block)]
        scopes = around.create_var(type=VarType.STEP_SCOPES)
        states = []
        for memory in self.memories.values():
            if memory.updated is None:
                raise UsageError(f"{memory.init.name} should be updated in every step.")
            states.append(self._remembered(block.var(memory.updated.name)).name)
        around.append_op(
            type="recurrent",
            inputs={
                "inputs": [around.var(var.name) for var in self.inputs],
                "initial_states": [memory.init for memory in self.memories.values()],
                "parameters": parameters,
            },
            outputs={"outputs": self.outputs, "step_scopes": [scopes]},
            attrs={
                "has_states": bool(self.memories),
                "ex_states": list(self.memories),
                "states": states,
                "sub_block": block,
            },
        )

    def _outer_names(self, block: Block) -> list[str]:
        """What the step reads from outside the step and the RNN."""
        own = {name for op in block.ops for name in op.output_arg_names}
        own |= {var.name for var in self.inputs} | set(self.memories)
        return list(dict.fromkeys(name for op in block.ops for name in op.input_arg_names if name not in own))
