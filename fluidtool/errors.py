"""Every error that fluidtool raises on purpose: one class hierarchy, stable codes, one exit status each.

A message is one paragraph that names the file, operator or variable, says what was expected and what was found, and ends
with what to do. Classes also derive from the built-in exception that `paddle.fluid` raises in that place, so that `except
ValueError` in an old script keeps working.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

LONGEST_NAME = 300  # longer than file names can be
LONGEST_MESSAGE = 10_000
EXIT_OK = 0
EXIT_FINDING = 1
EXIT_USAGE = 2
EXIT_UNREADABLE = 3
EXIT_UNSUPPORTED = 4
EXIT_NOT_FINITE = 5
EXIT_SUPERSEDED = 6  # of a server: another copy of it serves
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130


def with_short_names(text: str) -> str:
    """A message without the middle of its words of more than LONGEST_NAME characters, and of itself when it is endless.

    Names of variables and operators, which files choose, may have any length, and any characters.
    """
    if len(text) <= LONGEST_NAME:
        return text
    shorter = re.sub(rf"\S{{{LONGEST_NAME + 1},}}", lambda word: _without_middle(word[0], LONGEST_NAME), text)
    return _without_middle(shorter, LONGEST_MESSAGE)


def _without_middle(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    kept = most // 3
    return f"{text[: 2 * kept]}…({len(text) - 3 * kept} characters)…{text[-kept:]}"


class Location(NamedTuple):
    """Where an error occurred: a file, an operator (block, position in it, type), a variable; None where unknown."""

    file: str | None = None
    block: int | None = None
    operator: int | None = None
    type: str | None = None
    variable: str | None = None


class Hint(NamedTuple):
    """What to do about an error, in the words of the Python library and in those of the command line."""

    python: str
    command: str


OVERWRITE = Hint(
    "choose another name, or overwrite it: overwrite=True", "choose another name, or overwrite it with --force"
)
NEEDS_LESS = Hint("use smaller inputs, fetch less or free memory", "use smaller inputs, fetch less or free memory")
LIST_VARIABLES = Hint("program.list_vars() lists the variables", "'fluidtool inspect --vars' lists the variables")


class FluidError(Exception):
    """Root of the tree. `code` is stable and greppable; `exit_code` is what the command line returns.

    hint: what to do, if the message does not say it; text for both, or a `Hint`. location: where it occurred, if known.
    """

    code = "FT000"
    exit_code = EXIT_INTERNAL

    def __init__(self, message: object = "", *, hint: str | Hint = "", location: Location | None = None) -> None:
        super().__init__(message)
        python, command = hint if isinstance(hint, Hint) else (hint, hint)
        self.hint = Hint(with_short_names(python), with_short_names(command))
        self.location = location

    @property
    def message(self) -> str:
        """What was expected and what was found, without the hint, and with short names."""
        return with_short_names(str(self.args[0])) if self.args else ""

    def __str__(self) -> str:
        return f"{self.message}; {self.hint.python}" if self.hint.python else self.message


class UsageError(FluidError, ValueError):
    """An invalid argument: an unknown name, a shape that does not match, an option that contradicts another."""

    code = "FT200"
    exit_code = EXIT_USAGE


class AssertedError(UsageError, AssertionError):
    """An invalid argument where Paddle's code asserts."""

    code = "FT201"


class ClosedError(UsageError, RuntimeError):
    """A use of something that was closed."""

    code = "FT202"


class UnknownHostError(UsageError, OSError):
    """An endpoint whose host has no address."""

    code = "FT203"


class FeedError(UsageError):
    """A feed of the wrong name, rank, data type or LoD, or a missing feed."""

    code = "FT210"


class FetchError(UsageError):
    """A fetch of something that the program does not compute."""

    code = "FT211"


class FetchedLoDError(FetchError, RuntimeError):
    """A fetched value with a LoD, which an array cannot hold."""

    code = "FT212"


class ProgramError(UsageError):
    """A request that the program cannot satisfy: a variable that does not exist, a block out of range."""

    code = "FT220"


class NoBlockError(ProgramError, IndexError):
    """A request for a block that the program does not have."""

    code = "FT221"


class ArgumentTypeError(FluidError, TypeError):
    """A Python argument of a type that the API does not accept."""

    code = "FT230"
    exit_code = EXIT_USAGE


class WrongKindError(ArgumentTypeError, ValueError):
    """An argument of a wrong type where some of Paddle's code raises a TypeError and some a ValueError."""

    code = "FT231"


class UnusableArgumentError(WrongKindError, AttributeError, IndexError):
    """An argument that Python cannot compute with, where Paddle's code raises whatever Python raises."""

    code = "FT232"


class LoDError(UsageError):
    """Level-of-detail offsets or lengths that are not a valid LoD for the tensor."""

    code = "FT240"


class AssertedLoDError(LoDError, AssertedError):
    """A LoD that is not valid, where Paddle's code asserts."""

    code = "FT241"


class PolicyError(FluidError, PermissionError):
    """A program's attributes name a file or an address that the policy does not allow."""

    code = "FT250"
    exit_code = EXIT_USAGE


class OutputExistsError(FluidError, FileExistsError):
    """Writing would overwrite something, and overwriting was not requested."""

    code = "FT260"
    exit_code = EXIT_USAGE


class OutputError(FluidError, OSError):
    """The output path cannot be written."""

    code = "FT261"
    exit_code = EXIT_UNREADABLE


class UnreadableError(FluidError, ValueError):
    """An input file that is missing, truncated, corrupted, or not of the expected kind."""

    code = "FT300"
    exit_code = EXIT_UNREADABLE


class ModelNotFoundError(UnreadableError, FileNotFoundError):
    """Nothing at the path looks like a model, or more than one thing does."""

    code = "FT301"


class DataFileNotFoundError(UnreadableError, FileNotFoundError):
    """A file of a data set is not in the expected place."""

    code = "FT302"


class ParameterFileError(UnreadableError, RuntimeError):
    """A parameter that is missing, does not have the declared shape or data type, or is followed by stray bytes.

    `kind` tells these apart and `variable` names the parameter, where one is meant; `faults` has one error for each
    parameter when several are at fault; `readable` has the parameters that can be read all the same.
    """

    code = "FT310"
    readable: Any = None  # a ParameterStore
    MISSING, SHAPE, DATA_TYPE = "missing", "shape", "data type"

    def __init__(
        self,
        message: str,
        *,
        kind: str = "",
        variable: str = "",
        file: str | None = None,
        faults: tuple[ParameterFileError, ...] = (),
        hint: str | Hint = "",
    ) -> None:
        location = Location(file, variable=variable or None) if file or variable else None
        super().__init__(message, hint=hint, location=location)
        self.kind, self.variable, self.faults = kind, variable, faults


class AssertedParameterError(ParameterFileError, AssertionError):
    """A parameter at fault where Paddle's code asserts."""

    code = "FT311"


class UnsafePickleError(UnreadableError):
    """A pickle that contains anything other than data."""

    code = "FT320"


class UnsupportedOperatorError(FluidError, NotImplementedError):
    """An operator, or a feature of one, that fluidtool does not support; the message gives the reason."""

    code = "FT400"
    exit_code = EXIT_UNSUPPORTED


class NotConvertibleError(FluidError, NotImplementedError):
    """A model that the format to convert to cannot express; `blockers` has the place and the reason of each obstacle."""

    code = "FT420"
    exit_code = EXIT_UNSUPPORTED

    def __init__(self, message: str, blockers: tuple[Any, ...] = (), *, hint: str | Hint = "") -> None:
        super().__init__(message, hint=hint, location=_first_place(blockers))
        self.blockers = blockers


class BakedSizeError(FluidError, ValueError):
    """Operators contain sizes that contradict the new shapes of inputs; `operators` has their places and reasons."""

    code = "FT430"
    exit_code = EXIT_UNSUPPORTED

    def __init__(
        self,
        message: str,
        operators: tuple[Any, ...] = (),
        unknown: tuple[Any, ...] = (),
        *,
        hint: str | Hint = "",
    ) -> None:
        super().__init__(message, hint=hint, location=_first_place(operators))
        self.operators, self.unknown = operators, unknown


def _first_place(found: tuple[Any, ...]) -> Location | None:
    """The first of several obstacles, each with its block, operator (-1: none), type and output."""
    if not found:
        return None
    first = found[0]
    if first.operator < 0:
        return Location(variable=first.output)
    return Location(block=first.block, operator=first.operator, type=first.type, variable=first.output)


class NotOfferedError(FluidError, AttributeError):
    """A name of Paddle that fluidtool does not offer."""

    code = "FT410"
    exit_code = EXIT_UNSUPPORTED


class NotOfferedImportError(FluidError, ImportError):
    """An import of a name of Paddle that fluidtool does not offer."""

    code = "FT411"
    exit_code = EXIT_UNSUPPORTED

    def __init__(self, message: str, *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class NotFiniteError(FluidError, ArithmeticError):
    """NaN or infinity where finite numbers were required.

    found: the operator with its inputs (`fluidtool.runtime.finite.NotFinite`), where one is to blame.
    """

    code = "FT500"
    exit_code = EXIT_NOT_FINITE

    def __init__(
        self, message: str, found: Any = None, *, hint: str | Hint = "", location: Location | None = None
    ) -> None:
        super().__init__(message, hint=hint, location=location)
        self.found = found


class OperatorError(FluidError, RuntimeError):
    """An operator got invalid inputs; names op, block, variables, shapes and data types."""

    code = "FT600"
    exit_code = EXIT_USAGE


class UninitializedError(OperatorError):
    """An operator reads a variable that was never written: neither fed, nor loaded, nor computed."""

    code = "FT601"


class DeviceError(FluidError, RuntimeError):
    """The requested place does not exist on this machine."""

    code = "FT700"
    exit_code = EXIT_USAGE


class AssertedDeviceError(DeviceError, AssertionError):
    """The requested place does not exist, where Paddle's code asserts."""

    code = "FT701"


class OutOfMemoryError(FluidError, MemoryError):
    """The request does not fit into the memory of this machine."""

    code = "FT710"
    exit_code = EXIT_USAGE


class DependencyError(FluidError, ImportError):
    """A required package is missing, or too old."""

    code = "FT720"
    exit_code = EXIT_USAGE


class CollectiveError(FluidError, RuntimeError):
    """Processes that work together disagree on what to do, or one of them has ended."""

    code = "FT810"
    exit_code = EXIT_UNREADABLE
