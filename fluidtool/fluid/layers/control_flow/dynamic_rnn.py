"""DynamicRNN: a block that runs for every step of sequences of different lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import NoneType
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.arithmetic import less_than
from fluidtool.fluid.layers.control_flow.arrays import array_read, array_write, increment
from fluidtool.fluid.layers.control_flow.blocks import parent_block
from fluidtool.fluid.layers.control_flow.ranking import array_to_lod_tensor, shrink_memory
from fluidtool.fluid.layers.control_flow.while_loop import While
from fluidtool.fluid.layers.creation import fill_constant
from fluidtool.ir import Variable, unique_name
from fluidtool.proto.enums import VarType


class DynamicRNN:
    """`with rnn.block():` opens the block of one step; `rnn()` returns its outputs, with the LoD of the first input.

    Sequences are ranked by length, so that those still running in a step are its first rows.
    """

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("dynamic_rnn", name=name)
        self.lod_rank_table: Variable | None = None
        self.max_seq_len: Variable | None = None
        self.outputs: list[Variable] = []
        self.cond = self.helper.create_variable_for_type_inference("bool")
        self.while_op = While(self.cond)
        self.step_idx: Variable | None = None
        self.zero_idx: Variable | None = None
        self._first_input: tuple[Variable, Any] | None = None
        self._memories: dict[str, Variable] = {}
        self._updates: list[tuple[Variable, Variable]] = []
        self._output_arrays: list[Variable] = []
        self._inside = self._done = False

    @contextmanager
    def block(self) -> Iterator[None]:
        """Operators appended within are one step."""
        if self._inside or self._done:
            raise UsageError("rnn.block() can only be invoke once")
        step = fill_constant(shape=[1], dtype="int64", value=0, force_cpu=True)
        step.stop_gradient = False
        self.step_idx = step
        self._inside = True
        try:
            with self.while_op.block():
                yield
                increment(step, value=1.0, in_place=True)
                for new, array in self._updates:
                    array_write(new, i=step, array=array)
                less_than(step, self._longest(), force_cpu=True, cond=self.cond)
        finally:
            self._inside = False
        self._done = True
        self.outputs = [array_to_lod_tensor(array, self._table("block")) for array in self._output_arrays]

    def step_input(self, x: Variable, level: int = 0) -> Variable:
        """This step of the sequences of x at a LoD level; the first input determines the number of steps."""
        step = self._must_be_inside("step_input")
        if not isinstance(x, Variable):
            raise ArgumentTypeError("step_input() can only take a Variable as its input.")
        around = parent_block()
        if self.lod_rank_table is None:
            self._rank(x, level, step)
        array = self._outside("dynamic_rnn_input_array", x.dtype, VarType.LOD_TENSOR_ARRAY)
        if self._first_input is None:
            self._first_input = array, x.dtype
        inputs = {"X": x, "RankTable": self.lod_rank_table}
        around.append_op(type="lod_tensor_to_array", inputs=inputs, outputs={"Out": array})
        return array_read(array, step)

    def _rank(self, x: Variable, level: int, step: Variable) -> None:
        around = parent_block()
        table = around.create_var(name=unique_name.generate("lod_rank_table"), type=VarType.LOD_RANK_TABLE)
        table.stop_gradient = True
        around.append_op(type="lod_rank_table", inputs={"X": x}, outputs={"Out": table}, attrs={"level": level})
        longest = self._outside("dynamic_rnn_max_seq_len", "int64")
        around.append_op(type="max_sequence_len", inputs={"RankTable": table}, outputs={"Out": longest})
        self.cond.stop_gradient = True
        around.append_op(
            type="less_than",
            inputs={"X": step, "Y": longest},
            outputs={"Out": self.cond},
            attrs={"force_cpu": True},
        )
        self.lod_rank_table, self.max_seq_len = table, longest

    def static_input(self, x: Variable) -> Variable:
        """All of x in every step: one row or sequence per running sequence."""
        step = self._must_be_inside("static_input")
        if not isinstance(x, Variable):
            raise ArgumentTypeError("static_input() can only take a Variable as its input")
        table = self._table("static_input")
        return shrink_memory(self._reordered("dynamic_rnn_static_input_reordered", x, table), step, table)

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> Variable:
        """The value that update_memory set in the previous step; in the first step `init`, or `value` in rows of `shape`.

        need_reorder: sort init's rows, which are in the order of the fed sequences, by rank.
        """
        step = self._must_be_inside("memory")
        zero = self._zero()
        if not isinstance(shape, (list, tuple, NoneType)):
            raise ArgumentTypeError(f"shape of memory() must be a list or a tuple, found {type(shape).__name__}")
        if init is None:
            init, need_reorder = self._constant(shape, value, dtype, zero), False
        if not isinstance(init, Variable):
            raise ArgumentTypeError(f"The input arg `init` of memory() must be a Variable, found {type(init).__name__}")
        start = init
        if need_reorder:
            if self.lod_rank_table is None:
                raise UsageError(
                    "If set need_reorder to True, make sure step_input be invoked before "
                    "memory(init=init, need_reordered=True, ...)."
                )
            start = self._reordered("dynamic_rnn_mem_init_reordered", init, self.lod_rank_table)
        array = self._outside("dynamic_rnn_mem_array", init.dtype, VarType.LOD_TENSOR_ARRAY)
        parent_block().append_op(type="write_to_array", inputs={"X": start, "I": zero}, outputs={"Out": array})
        memory = shrink_memory(array_read(array, step), step, self._table("memory"))
        self._memories[memory.name] = array
        return memory

    def _constant(self, shape: Sequence[int] | None, value: float, dtype: Any, zero: Variable) -> Variable:
        if self._first_input is None:
            raise UsageError("step_input should be invoked before memory(shape=..., value=...)")
        around = parent_block()
        init = self._outside("mem_init", dtype)
        array, input_dtype = self._first_input
        first = self._outside("in0", input_dtype)
        around.append_op(type="read_from_array", inputs={"X": [array], "I": [zero]}, outputs={"Out": [first]})
        attrs = {"shape": [-1, *(shape or ())], "value": float(value), "dtype": int(init.dtype or 0)}
        inputs, outputs = {"Input": [first]}, {"Out": [init]}
        around.append_op(type="fill_constant_batch_size_like", inputs=inputs, outputs=outputs, attrs=attrs)
        return init

    def update_memory(self, ex_mem: Variable, new_mem: Variable) -> None:
        """The memory is `new_mem` in the next step."""
        self._must_be_inside("update_memory")
        if not isinstance(ex_mem, Variable):
            raise ArgumentTypeError(
                f"The input arg `ex_mem` of update_memory() must be a Variable, found {type(ex_mem).__name__}"
            )
        if not isinstance(new_mem, Variable):
            raise ArgumentTypeError(
                f"The input arg `new_mem` of update_memory() must be a Variable, found {type(new_mem).__name__}"
            )
        if ex_mem.name not in self._memories:
            raise UsageError("Please invoke memory before update_memory")
        self._updates.append((new_mem, self._memories[ex_mem.name]))

    def output(self, *outputs: Variable) -> None:
        """Collect these outputs over all steps."""
        step = self._must_be_inside("output")
        for each in outputs:
            key = f"{self.helper.name}_output_array_{each.name}"
            array = self._outside(key, each.dtype, VarType.LOD_TENSOR_ARRAY)
            array_write(each, i=step, array=array)
            self._output_arrays.append(array)

    def __call__(self) -> Variable | list[Variable]:
        """The output, or the list of outputs."""
        if not self._done:
            raise UsageError("Output of the dynamic RNN can only be visited outside the rnn block.")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    # -- common to all of these
    def _must_be_inside(self, method: str) -> Variable:
        """The number of the step; raises UsageError outside the block."""
        if not self._inside or self.step_idx is None:
            raise UsageError(f"{method} can only be invoked inside rnn block.")
        return self.step_idx

    def _table(self, method: str) -> Variable:
        if self.lod_rank_table is None:
            raise UsageError(f"{method}() must be called after step_input().")
        return self.lod_rank_table

    def _longest(self) -> Variable:
        if self.max_seq_len is None:
            raise UsageError("step_input() must be called inside rnn block, to tell how many steps there are.")
        return self.max_seq_len

    def _zero(self) -> Variable:
        if self.zero_idx is None:
            self.zero_idx = self._outside("zero_idx", "int64")
            attrs = {"shape": [1], "dtype": int(VarType.INT64), "value": 0.0, "force_cpu": True}
            parent_block().append_op(type="fill_constant", outputs={"Out": [self.zero_idx]}, attrs=attrs)
        return self.zero_idx

    def _outside(self, key: str, dtype: Any, type: VarType = VarType.LOD_TENSOR) -> Variable:
        """A new variable of the block around the steps."""
        return parent_block().create_var(name=unique_name.generate(key), dtype=dtype, type=type)

    def _reordered(self, key: str, x: Variable, table: Variable) -> Variable:
        out = self._outside(key, x.dtype)
        parent_block().append_op(
            type="reorder_lod_tensor_by_rank",
            inputs={"X": [x], "RankTable": [table]},
            outputs={"Out": [out]},
        )
        return out
