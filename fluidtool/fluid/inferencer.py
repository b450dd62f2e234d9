"""Inferencer: inference with saved parameters, of Fluid 0.12 to 0.15 (Paddle 0.14 inferencer.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid import io
from fluidtool.fluid.compiler import CompiledProgram
from fluidtool.fluid.executor import Executor, scope_guard
from fluidtool.fluid.framework import program_guard
from fluidtool.fluid.trainer import check_and_get_place
from fluidtool.ir import Program, Variable, unique_name
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import Place


class Inferencer:
    """Computes the variable that `infer_func` returns, with the parameters saved in `param_path`.

    place: None is the first GPU, else the CPU. parallel: split a batch over all GPUs, or CPU_NUM CPU devices.
    Names are generated from scratch, as in Trainer. Raises ArgumentTypeError if infer_func returns something else, and
    the errors of `fluid.io.load_params`.
    """

    def __init__(
        self,
        infer_func: Callable[[], Variable],
        param_path: str,
        place: Place | None = None,
        parallel: bool = False,
    ) -> None:
        self.param_path, self.parallel, self.place = param_path, parallel, check_and_get_place(place)
        self.scope = Scope()
        program = Program()
        with program_guard(program, Program()), unique_name.guard():
            self.predict_var = infer_func()
        if not isinstance(self.predict_var, Variable):
            raise ArgumentTypeError(f"infer_func must return one Variable, found {self.predict_var!r}")
        self.exe = Executor(self.place)
        with scope_guard(self.scope):
            io.load_params(self.exe, param_path, program)
        self.inference_program = program.clone(for_test=True)
        self._runs: Program | CompiledProgram = self.inference_program
        if parallel:
            self._runs = CompiledProgram(self.inference_program).with_data_parallel()

    def infer(self, inputs: Mapping[str, Any], return_numpy: bool = True) -> list[Any]:
        """[the prediction] for inputs by name: as an array, or as a LoDTensor without `return_numpy`.

        Raises UsageError if inputs is not a map, and the errors of `Executor.run`.
        """
        if not isinstance(inputs, Mapping):
            raise UsageError("inputs should be a map of {'input_name': input_var}, found " + type(inputs).__name__)
        return self.exe.run(self._runs, inputs, [self.predict_var.name], scope=self.scope, return_numpy=return_numpy)
