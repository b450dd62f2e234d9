"""Whether a model takes the batch that is asked for."""

from __future__ import annotations

from collections.abc import Iterable

from fluidtool.errors import Hint, Location, UsageError
from fluidtool.feeding import describe_variable
from fluidtool.ir import Variable
from fluidtool.model import Model
from fluidtool.workflows.watcher import SILENT, Watcher


def require_batch(model: Model, batch: int | None, inputs: Iterable[str], watcher: Watcher = SILENT) -> None:
    """Raise UsageError if none of `inputs` can have `batch` as its first size; say so if some of them cannot.

    A size of -1 takes any batch, and so does an input with LoD, as the number of its sequences. None: no batch is asked for.
    """
    if batch is None:
        return
    variables = model.program.global_block().vars
    sized = [variables[name] for name in inputs if name in variables and variables[name].has_shape]
    sized = [var for var in sized if var.shape]
    fixed = [var for var in sized if not _takes(var, batch)]
    if not fixed:
        return
    var = fixed[0]
    text = f"the input {describe_variable(var)} is declared with a batch of {var.shape[0]}, not {batch}"
    if len(fixed) < len(sized):
        watcher.say(f"note: {text}, and keeps it")
        return
    wanted = ",".join(str(size) for size in (batch, *var.shape[1:]))
    hint = Hint(
        f"change the model: fluidtool.reshape(model, {{{var.name!r}: [{wanted}]}}, OUT)",
        f"change the model: fluidtool reshape MODEL '{var.name}:[{wanted}]' -o OUT",
    )
    raise UsageError(text, hint=hint, location=Location(variable=var.name))


def _takes(var: Variable, batch: int) -> bool:
    return var.shape[0] < 0 or var.shape[0] == batch or var.lod_level > 0
