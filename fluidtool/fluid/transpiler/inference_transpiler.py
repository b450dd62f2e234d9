"""InferenceTranspiler (Paddle 0.12 to 1.5): makes an inference program faster without changing what it computes."""

from __future__ import annotations

import warnings

from fluidtool.errors import ArgumentTypeError
from fluidtool.fluid.executor import global_scope
from fluidtool.io.inference import fetch_names
from fluidtool.ir import Program
from fluidtool.ops.validation import require_valid
from fluidtool.passes.inference.fuse_batch_norm import fuse_batch_norm
from fluidtool.passes.inference.is_test import set_is_test
from fluidtool.passes.result import PassResult
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import CPUPlace, CUDAPlace, Place


class InferenceTranspiler:
    """Folds batch_norm into the convolution or fully connected layer before it, and sets `is_test`.

    Programs are changed in place and compute the same numbers as before: what cannot be folded without changing a
    number is left unchanged. Without fetch operators any name may be fetched; operators that only such names need
    then stay, and cost time only if these are fetched.
    """

    def transpile(self, program: Program, place: Place, scope: Scope | None = None) -> None:
        """Transpile `program`, whose parameters are in `scope` (the global scope if None), in place.

        The new parameters go into `scope`, the old ones stay there. Raises ArgumentTypeError (a TypeError) when
        `program` is not a Program, `place` neither CPUPlace nor CUDAPlace, or `scope` not a Scope; OperatorError for an
        operator that does not match its schema.
        """
        scope = _checked(program, place, scope)
        self.fuse_batch_norm(program, place, scope)
        result = set_is_test(program, scope)
        _warn_of_training(result)

    def fuse_batch_norm(self, program: Program, place: Place, scope: Scope | None = None) -> None:
        """Fold every batch_norm that uses its running statistics, as `transpile` does; sets no `is_test`."""
        scope = _checked(program, place, scope)
        fetched = fetch_names(program)
        fuse_batch_norm(program, scope, fetched, keep_inner_results=not fetched)

    _fuse_batch_norm = fuse_batch_norm


def _checked(program: Program, place: Place, scope: Scope | None) -> Scope:
    if not isinstance(program, Program):
        raise ArgumentTypeError(f"program should be as Program type, found {type(program).__name__}")
    require_valid(program)
    if not isinstance(place, (CPUPlace, CUDAPlace)):
        raise ArgumentTypeError(f"place should be as CPUPlace/CUDAPlace type, found {type(place).__name__}")
    if scope is None:
        return global_scope()
    if not isinstance(scope, Scope):
        raise ArgumentTypeError(f"scope should be as Scope type or None, found {type(scope).__name__}")
    return scope


def _warn_of_training(result: PassResult) -> None:
    training = sorted({decision.operator for decision in result.left})
    if training:
        warnings.warn(
            f"operators in training mode were left unchanged: {', '.join(training)}; transpile "
            "program.clone(for_test=True) instead",
            stacklevel=3,
        )
