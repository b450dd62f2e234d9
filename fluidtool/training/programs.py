"""The programs of a training: the main one with backward and optimizer operators, and the one that initializes."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from fluidtool.errors import LIST_VARIABLES, FetchError, Hint, Location, ModelNotFoundError, ProgramError
from fluidtool.feeding import describe_variable, free_inputs
from fluidtool.io.inference import feed_names
from fluidtool.io.layout import read_program
from fluidtool.ir import Program, Variable
from fluidtool.ir.roles import ROLE_ATTR, OpRole
from fluidtool.ops.validation import require_valid
from fluidtool.records import dataclass

MAIN_NAMES = ("main.pb", "main_program", "__model__", "__model__.main_program", "main.pdmodel")
STARTUP_NAMES = ("startup.pb", "startup_program", "startup.pdmodel", "__startup__", "startup")
GRAD = "@GRAD"


@dataclass(frozen=True, slots=True)
class TrainingPrograms:
    """The main program, the startup program (None: parameters come from elsewhere), and the inputs of the main one."""

    main: Program
    startup: Program | None
    inputs: tuple[str, ...]

    @property
    def input_variables(self) -> list[Variable]:
        """The declarations of the inputs."""
        return [self.main.global_block().var(name) for name in self.inputs]

    @property
    def batch_size(self) -> int | None:
        """The leading size that an input without LoD declares; None when all leave it open."""
        sizes = [var.shape[0] for var in self.input_variables if not var.lod_level and var.has_shape and var.shape]
        return next((size for size in sizes if size > 0), None)

    def described_inputs(self) -> str:
        """'image float32 [-1, 784], label int64 [-1, 1]'."""
        return ", ".join(describe_variable(var) for var in self.input_variables) or "none"


def open_programs(
    path: Path, main: str | None = None, startup: str | None = None, *, any_role: bool = False
) -> TrainingPrograms:
    """Read the programs of a folder, or a main program's file with its startup program beside it.

    main, startup: their file names within the folder, or paths; by default MAIN_NAMES and STARTUP_NAMES are looked for.
    any_role: they may be of a role of a distributed job, whose optimizer operators are elsewhere. Raises
    ModelNotFoundError, UnreadableError, OperatorError, and ProgramError for a main program without optimizer operators.
    """
    if path.is_file() and main is None:
        folder, main = path.parent, str(path.name)
    elif path.is_dir():
        folder = path
    else:
        raise ModelNotFoundError(
            f"there are no programs at {path}: it is neither a folder nor the file of a main program"
        )
    main_file = _choose(folder, main, MAIN_NAMES, "main program")
    if main_file is None:
        raise ModelNotFoundError(
            f"{folder} has no main program: none of {', '.join(MAIN_NAMES)} exists",
            hint=Hint("name it: main=FILE", "name it with --main FILE"),
            location=Location(str(folder)),
        )
    startup_file = _choose(folder, startup, STARTUP_NAMES, "startup program")
    program = _read(main_file)
    if not any_role and not any(op.outputs.get("ParamOut") for block in program.blocks for op in block.ops):
        raise ProgramError(
            f"{main_file} has no optimizer operators, so nothing would be trained; save the program after "
            f"optimizer.minimize(loss)"
        )
    return TrainingPrograms(
        program,
        _read(startup_file) if startup_file is not None else None,
        tuple(feed_names(program) or free_inputs(program)),
    )


def _read(file: Path) -> Program:
    program = read_program(file)
    require_valid(program, str(file))
    return program


def _choose(folder: Path, given: str | None, names: Sequence[str], what: str) -> Path | None:
    if given is None:
        return next((folder / name for name in names if (folder / name).is_file()), None)
    for path in (folder / given, Path(given)):
        if path.is_file():
            return path
    text = f"there is no {what} {given}, neither in {folder} nor as a path"
    raise ModelNotFoundError(text, location=Location(given))


def find_loss(program: Program, given: str | None = None) -> str:
    """The variable that training lowers: `given`, or what the backward pass starts from.

    Raises FetchError for a name that no operator computes, ProgramError when the program does not tell.
    """
    block = program.global_block()
    if given is not None:
        computed = {name for op in block.ops for name in op.output_arg_names}
        if given not in computed:
            near = get_close_matches(given, computed, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else LIST_VARIABLES
            text = f"the loss {given}: no operator of block 0 computes such a variable"
            raise FetchError(text, hint=hint, location=Location(variable=given))
        return given
    found = list(dict.fromkeys(_starts_of_backward(program)))
    if len(found) == 1:
        return found[0]
    what = (
        f"has {len(found)} losses ({', '.join(found)})"
        if found
        else "does not say what its loss is: it has no backward pass"
    )
    hint = Hint("name the loss: loss=NAME", "name the loss with --loss NAME")
    raise ProgramError(f"the main program {what}", hint=hint)


def _starts_of_backward(program: Program) -> list[str]:
    """The variables whose gradient is filled with a constant: by role, in programs without roles by name."""
    block = program.global_block()
    fills = [op for op in block.ops if op.type == "fill_constant" and op.output("Out")[0].endswith(GRAD)]
    marked = [op for op in fills if int(op.get_attr(ROLE_ATTR, 0)) == OpRole.Backward | OpRole.Loss]
    return [op.output("Out")[0].removesuffix(GRAD) for op in marked or fills]
