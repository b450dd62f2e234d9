"""Generate `abi.py`, `fingerprint.py` and `src/abi.h` from abi.toml, which names the arguments of every kernel.

Usage: python fluidtool/runtime/engines/native/generate_abi.py [--check]

It imports nothing of fluidtool, which cannot be imported where the generated file is amiss.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

FOLDER = Path(__file__).resolve().parent
SOURCE, PYTHON, C = FOLDER / "abi.toml", FOLDER / "abi.py", FOLDER / "src" / "abi.h"
SHORT = FOLDER / "fingerprint.py"
HEADER = 32  # bytes: kind, activation, tasks, three constants of the activation, four bytes that are not used
CONSTANTS = 3
WIDE = 116  # columns of the files
ELEMENTS = {
    "f32": ("float", 4),
    "bf16": ("uint16_t", 2),
    "u8": ("uint8_t", 1),
    "s8": ("int8_t", 1),
    "i32": ("int32_t", 4),
    "i64": ("int64_t", 8),
    "u64": ("uint64_t", 8),
    "f32 unaligned": ("void", 4),
    "f32 or bf16": ("void", 2),
}
"""Of an element: its type in C, and the bytes in which extents count it."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument that is an address."""

    name: str
    element: str
    optional: bool
    written: bool

    @property
    def in_c(self) -> str:
        """Its declaration."""
        return f"{'' if self.written else 'const '}{ELEMENTS[self.element][0]} *{self.name}"


@dataclass(frozen=True, slots=True)
class Number:
    """An argument that is a number, or `count` of them; `default`: what it is where it is left out."""

    name: str
    count: int = 0
    default: int | None = None

    @property
    def places(self) -> int:
        """How many numbers there are."""
        return self.count or 1

    @property
    def in_c(self) -> str:
        """Its declaration, without the type."""
        return f"{self.name}[{self.count}]" if self.count else self.name


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel and its arguments, in the order in which they lie in memory."""

    name: str
    does: str
    activation: bool
    pointers: tuple[Pointer, ...]
    sizes: tuple[Number, ...]
    floats: tuple[Number, ...]

    @property
    def class_name(self) -> str:
        """Of its arguments in Python."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def words(self) -> int:
        """Pointers and whole numbers."""
        return len(self.pointers) + sum(number.places for number in self.sizes)

    @property
    def bytes(self) -> int:
        """The size of its structure."""
        return HEADER + 8 * self.words + -(-4 * len(self.floats) // 8) * 8

    @property
    def format(self) -> str:
        """Its layout, as the module struct writes it."""
        numbers = f"{len(self.floats)}f" if self.floats else ""
        return f"@iiq{CONSTANTS}f{len(self.pointers)}Q{self.words - len(self.pointers)}q{numbers}"


@dataclass(frozen=True, slots=True)
class Abi:
    """All kernels, and the constants of each activation."""

    kernels: tuple[Kernel, ...]
    activations: Mapping[str, Sequence[str]]

    @property
    def bytes(self) -> int:
        """The size of a call, whatever its kernel."""
        return max(kernel.bytes for kernel in self.kernels)

    @property
    def fingerprint(self) -> int:
        """Another for another layout: a library that was built with one is not called with the other."""
        return crc32(repr((self.activations, [(k.name, k.pointers, k.sizes, k.floats) for k in self.kernels])).encode())


# ---------------------------------------------------------------- reading
def read(path: Path) -> Abi:
    """What abi.toml says. Raises ValueError for what cannot be meant."""
    with path.open("rb") as file:
        found = tomllib.load(file)
    return Abi(tuple(kernel(name, said) for name, said in found["kernels"].items()), found["activations"])


def kernel(name: str, said: Mapping[str, Any]) -> Kernel:
    """One table of abi.toml."""
    if unknown := said.keys() - {"does", "activation", "pointers", "sizes", "floats"}:
        raise ValueError(f"{name}: {sorted(unknown)}")
    pointers = tuple(map(pointer, said["pointers"]))
    sizes, floats = (tuple(map(number, said.get(key, ()))) for key in ("sizes", "floats"))
    names = [each.name for each in pointers] + [each.name for each in (*sizes, *floats)]
    if twice := {argument for argument in names if names.count(argument) > 1}:
        raise ValueError(f"{name}: {sorted(twice)} named twice")
    return Kernel(name, said["does"], said.get("activation", False), pointers, sizes, floats)


def pointer(text: str) -> Pointer:
    """`name: element, optional, written`."""
    name, _, rest = text.partition(": ")
    element, *more = rest.split(", ")
    if element not in ELEMENTS or set(more) - {"optional", "written"}:
        raise ValueError(f"pointer {text!r}")
    return Pointer(name, element, "optional" in more, "written" in more)


def number(text: str) -> Number:
    """`name`, `name[count]`, `name = default`, each perhaps with `, written`."""
    name, _, default = text.removesuffix(", written").partition(" = ")
    name, _, count = name.removesuffix("]").partition("[")
    return Number(name, int(count or 0), int(default) if default else None)


# ---------------------------------------------------------------- C
def in_c(abi: Abi) -> str:
    """The text of src/abi.h."""
    return "\n".join([*c_head(abi), *(line for kernel in abi.kernels for line in c_struct(kernel)), *c_end(abi)]) + "\n"


def c_head(abi: Abi) -> Iterator[str]:
    """What all kernels share."""
    yield "/* Generated by generate_abi.py from abi.toml: the arguments of every kernel. */"
    yield "#ifndef FLUIDTOOL_ABI_H\n#define FLUIDTOOL_ABI_H\n\n#include <stddef.h>\n#include <stdint.h>\n"
    yield f"#define FT_ABI {abi.fingerprint:#010x}u /* another for another layout */\n"
    yield from c_enum("kind", [kernel.name for kernel in abi.kernels], "FT_KINDS")
    yield from c_enum("activation", list(abi.activations), "FT_ACTIVATIONS")
    yield "/* The constants of an activation. */\ntypedef union ft_constants {"
    for name, constants in abi.activations.items():
        if constants:
            yield f"    struct {{\n        float {', '.join(constants)};\n    }} {name};"
    yield f"    float all[{CONSTANTS}];\n}} ft_constants;\n"
    yield "/* What every call has; `tasks`: into how many parts it may be cut. */"
    yield "typedef struct ft_any {\n    int32_t kind, activation;\n    int64_t tasks;\n    ft_constants constants;\n} ft_any;\n"


def c_enum(name: str, members: Sequence[str], last: str) -> Iterator[str]:
    """An enumeration from 0 on."""
    yield f"enum ft_{name} {{"
    yield from wrapped(", ".join([*(f"FT_{member.upper()}" for member in members), last]), "    ")
    yield "};\n"


def c_struct(kernel: Kernel) -> Iterator[str]:
    """The arguments of a kernel."""
    yield from wrapped(f"/* {kernel.does}. */", "", "   ")
    yield f"typedef struct ft_{kernel.name} {{"
    yield "    int32_t kind, activation;\n    int64_t tasks;\n    ft_constants constants;"
    yield from (f"    {pointer.in_c};" for pointer in kernel.pointers)
    for type_, numbers in (("int64_t", kernel.sizes), ("float", kernel.floats)):
        if numbers:
            yield from wrapped(f"{type_} {', '.join(number.in_c for number in numbers)};", "    ", "        ")
    yield f"}} ft_{kernel.name};\n"


def c_end(abi: Abi) -> Iterator[str]:
    """The call, and that the compiler lays it out as Python does."""
    yield "/* A call of any kernel. */\ntypedef union ft_call {\n    ft_any any;"
    yield from (f"    ft_{kernel.name} {kernel.name};" for kernel in abi.kernels)
    yield "} ft_call;\n"
    for kernel in abi.kernels:
        first, size = kernel.pointers[0].name, kernel.sizes[0].name
        offsets = ((first, HEADER), (size, HEADER + 8 * len(kernel.pointers)))
        checks = [f"offsetof(ft_{kernel.name}, {name}) == {at}" for name, at in offsets]
        if kernel.floats:
            checks.append(f"offsetof(ft_{kernel.name}, {kernel.floats[0].name}) == {HEADER + 8 * kernel.words}")
        checks.append(f"sizeof(ft_{kernel.name}) == {kernel.bytes}")
        yield from wrapped(f'_Static_assert({" && ".join(checks)}, "{kernel.name}");', "", "               ")
    yield f'_Static_assert(sizeof(ft_call) == {abi.bytes}, "calls");\n'
    yield "#endif"


def wrapped(text: str, indent: str, more: str | None = None) -> list[str]:
    """Lines of a text."""
    after = indent if more is None else more
    return textwrap.wrap(
        text, WIDE, initial_indent=indent, subsequent_indent=after, break_long_words=False, break_on_hyphens=False
    )


# ---------------------------------------------------------------- Python
PYTHON_HEAD = '''\
"""Generated by generate_abi.py from abi.toml: the arguments of every kernel, by name.

A pointer is whatever the caller has for an address: a buffer and an offset, an array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from struct import Struct
from typing import ClassVar, Generic, TypeVar

P = TypeVar("P")
'''
PYTHON_BASE = '''\
class Arguments(Generic[P]):
    """The arguments of some kernel. `layout`: kind, activation, tasks, three constants, pointers, sizes, floats.

    `pointer_bytes`: by pointer, the bytes in which extents count what lies behind it; `optional`: those that may be absent;
    `size_counts`: by size, how many numbers it is, 0 for one alone.
    """

    __slots__ = ()
    kind: ClassVar[Kind]
    takes_activation: ClassVar[bool]
    pointer_bytes: ClassVar[Mapping[str, int]]
    optional: ClassVar[Sequence[str]]
    size_counts: ClassVar[Mapping[str, int]]
    float_names: ClassVar[Sequence[str]]
    layout: ClassVar[Struct]

    def pointers(self) -> tuple[P | None, ...]:
        """In the order of the layout."""
        raise NotImplementedError

    def sizes(self) -> tuple[int, ...]:
        """In the order of the layout."""
        raise NotImplementedError

    def floats(self) -> tuple[float, ...]:
        """In the order of the layout."""
        raise NotImplementedError
'''


def in_python(abi: Abi) -> str:
    """The text of abi.py."""
    parts = [PYTHON_HEAD]
    parts.append(f"WORDS = {abi.bytes // 8}  # of 8 bytes, of a call")
    parts.append(f"FIRST = {HEADER // 8}  # the word of the first pointer")
    parts.append("\n")
    parts += python_enum("Kind", "`enum ft_kind` of src/abi.h.", [kernel.name for kernel in abi.kernels])
    parts += python_enum("ActivationKind", "`enum ft_activation` of src/abi.h.", list(abi.activations))
    parts.append(PYTHON_BASE)
    for kernel in abi.kernels:
        parts += ["", *python_class(kernel)]
    return "\n".join(parts) + "\n"


def fingerprint(abi: Abi) -> str:
    """The text of fingerprint.py: what loading the library needs to know of the layout."""
    says = "Generated by generate_abi.py from abi.toml: which layout of calls a library must have been built with."
    return f'"""{says}"""\n\nFINGERPRINT = 0x{abi.fingerprint:08X}  # FT_ABI of src/abi.h\n'


def python_enum(name: str, says: str, members: Sequence[str]) -> Iterator[str]:
    """An enumeration from 0 on."""
    yield f'class {name}(IntEnum):\n    """{says}"""\n'
    yield from (f"    {member.upper()} = {value}" for value, member in enumerate(members))
    yield "\n"


def python_class(kernel: Kernel) -> Iterator[str]:
    """The arguments of a kernel."""
    names = [each.name for each in kernel.pointers] + [each.name for each in (*kernel.sizes, *kernel.floats)]
    yield f"class {kernel.class_name}(Arguments[P]):"
    yield from wrapped(f'"""{kernel.does}."""', "    ")
    yield "\n    __slots__ = ("
    yield from wrapped(f"{', '.join(map(quoted, names))},", "        ")
    yield "    )"
    yield f"    kind = Kind.{kernel.name.upper()}"
    yield f"    takes_activation = {kernel.activation}"
    pointer_bytes = {pointer.name: ELEMENTS[pointer.element][1] for pointer in kernel.pointers}
    yield from python_dict("pointer_bytes", pointer_bytes)
    yield from python_dict("size_counts", {number.name: number.count for number in kernel.sizes})
    optional = [quoted(pointer.name) for pointer in kernel.pointers if pointer.optional]
    yield f"    optional = ({''.join(f'{name}, ' for name in optional)})"
    yield f"    float_names = ({''.join(f'{quoted(number.name)}, ' for number in kernel.floats)})"
    yield f"    layout = Struct({quoted(kernel.format)})\n"
    yield "    def __init__("
    yield from wrapped(f"self, *, {', '.join(parameters(kernel))},", "        ")
    yield "    ) -> None:"
    yield from (f"        self.{name} = {name}" for name in names)
    for group, type_, arguments in (
        ("pointers", "P | None", kernel.pointers),
        ("sizes", "int", kernel.sizes),
        ("floats", "float", kernel.floats),
    ):
        yield f"\n    def {group}(self) -> tuple[{type_}, ...]:"
        yield from wrapped(f"return ({values(arguments)})", "        ", "            ")
    yield ""


def parameters(kernel: Kernel) -> Iterator[str]:
    """Of the constructor, each with its type."""
    for pointer in kernel.pointers:
        yield f"{pointer.name}: P | None = None" if pointer.optional else f"{pointer.name}: P"
    for type_, numbers in (("int", kernel.sizes), ("float", kernel.floats)):
        for number in numbers:
            said = f"{number.name}: {f'Sequence[{type_}]' if number.count else type_}"
            value = f"({number.default},) * {number.count}" if number.count else number.default
            yield said if number.default is None else f"{said} = {value}"


def values(arguments: Sequence[Pointer | Number]) -> str:
    """The arguments of an object, one after the other."""
    return " ".join(
        f"{'*' if isinstance(argument, Number) and argument.count else ''}self.{argument.name},"
        for argument in arguments
    )


def python_dict(name: str, items: Mapping[str, int]) -> Iterator[str]:
    """A class variable."""
    yield f"    {name} = {{"
    yield from wrapped(" ".join(f"{quoted(key)}: {value}," for key, value in items.items()), "        ")
    yield "    }"


def quoted(name: str) -> str:
    """As ruff writes it."""
    return f'"{name}"'


def main() -> int:
    """Write the files, or compare them; 1 where they are not what they should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare the files, write nothing")
    check = parser.parse_args().check
    abi = read(SOURCE)
    differences: list[str] = []
    for path, text in ((PYTHON, in_python(abi)), (SHORT, fingerprint(abi)), (C, in_c(abi))):
        if check:
            found = path.read_text("utf-8") if path.exists() else ""
            lines = found.splitlines(), text.splitlines()
            differences += difflib.unified_diff(*lines, path.name, f"{path.name} (generated)", lineterm="")
        else:
            path.write_text(text, "utf-8")
    sys.stdout.write("".join(f"{line}\n" for line in differences))
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
