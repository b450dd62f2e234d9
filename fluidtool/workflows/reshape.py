"""`fluidtool.reshape("model", {"x": (8, 3, -1, -1)}, output)`: other shapes of inputs, and all that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fluidtool.errors import BakedSizeError, Hint, Location, UsageError
from fluidtool.io.parameters import persistables
from fluidtool.io.saving import layout_like, save_model
from fluidtool.ir import Program
from fluidtool.ir.reuse import unshared
from fluidtool.model import Model
from fluidtool.ops.inference import declared_meta
from fluidtool.passes.reshape.axes import Baked, Shape
from fluidtool.passes.reshape.walk import Reshaped, reshape_inputs
from fluidtool.records import dataclass
from fluidtool.runtime import Policy
from fluidtool.shapes import shape_text
from fluidtool.workflows.names import counted, did_you_mean, listed
from fluidtool.workflows.sources import Source, opened
from fluidtool.workflows.watcher import SILENT, Watcher

LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ReshapeResult:
    """The program with its new shapes, the files that were written, the shapes of inputs and outputs by name (before,
    after), the operators that contained an old size, and those whose outputs cannot be inferred (block, operator, type).
    """

    program: Program
    files: tuple[Path, ...]
    inputs: Mapping[str, tuple[Shape, Shape]]
    outputs: Mapping[str, tuple[Shape, Shape]]
    baked: tuple[Baked, ...]
    unknown: tuple[tuple[int, int, str], ...]


def reshape(
    model: Source,
    shapes: Mapping[str, Sequence[int]],
    output: str | Path | None = None,
    *,
    fix_baked_batch: bool = False,
    overwrite: bool = False,
    params: Any = None,
    model_filename: str | None = None,
    policy: Policy | None = None,
    watcher: Watcher = SILENT,
) -> ReshapeResult:
    """Change the shapes of inputs, infer everything again, and save the model in its own layout if `output` is given.

    shapes: by input ('' for the only one); -1 is a size known only at run time. fix_baked_batch: repair
    operators that contain an old size.
    Raises UsageError for something that is not an input, or a shape of the wrong rank; BakedSizeError for operators
    that contain an old size and are not, or cannot be, repaired; OutputExistsError, OutputError, and what `load`
    raises.
    """
    model = opened(
        model,
        model_filename=model_filename,
        params=params,
        policy=policy,
        need_parameters=output is not None,
        validate=False,
    )
    wanted = dict(_checked(model, name, shape) for name, shape in shapes.items())
    if not wanted:
        raise UsageError(
            f"no new shape is given; {listed(model.feeds)}",
            hint=Hint(
                "name an input and its shape, such as {'x': (8, 3, -1, -1)}",
                "name an input and its new shape, such as x:[8,3,-1,-1]",
            ),
        )
    program = unshared(model.program, [*model.feeds, *model.fetches]).clone()
    with watcher.progress("inferring"):
        done = reshape_inputs(program, wanted)
    _require_sound(done, fix_baked_batch)
    files: Sequence[Path] = ()
    if output is not None:
        with watcher.progress("writing"):
            files = _save(model, program, Path(output), overwrite)
    before, after = model.program, program
    return ReshapeResult(
        program,
        tuple(files),
        {name: (_shape(before, name), _shape(after, name)) for name in wanted},
        {name: (_shape(before, name), _shape(after, name)) for name in model.fetches},
        done.baked,
        done.unknown,
    )


def parse_new_shapes(options: Sequence[str]) -> dict[str, Shape]:
    """['x:[8,3,-1,-1]'] -> {'x': (8, 3, -1, -1)}; without a name, the name is ''.

    Raises UsageError for other texts, and for an input that is named twice.
    """
    shapes: dict[str, Shape] = {}
    for option in options:
        name, _, text = option.rpartition(":")
        if name in shapes:
            raise UsageError(f"the input {name} has two new shapes; give one")
        shapes[name] = _sizes(option, text)
    return shapes


def _sizes(option: str, text: str) -> Shape:
    inside = text.strip().removeprefix("[").removesuffix("]").strip()
    sizes = [size.strip() for size in inside.split(",")] if inside else []
    if not all(size.removeprefix("-").isascii() and size.removeprefix("-").isdecimal() for size in sizes):
        raise UsageError(
            f"{option!r}: expected NAME:[SIZES], such as x:[8,3,-1,-1]; -1 is a size known only at run time"
        )
    if any(len(size) > len(str(LARGEST)) + 1 for size in sizes):
        raise UsageError(f"{option!r}: sizes are -1, or 1 to {LARGEST}")
    return tuple(int(size) for size in sizes)


def _checked(model: Model, name: str, shape: Sequence[int]) -> tuple[str, Shape]:
    if not name and len(model.feeds) == 1:
        name = model.feeds[0]
    if name not in model.feeds:
        hint = did_you_mean(name, model.feeds) or listed(model.feeds)
        raise UsageError(f"{name!r} is not an input", hint=hint, location=Location(variable=name))
    meta = declared_meta(model.program.global_block().vars.get(name))
    if meta is None:
        raise UsageError(f"the input {name} declares no shape and data type, so nothing can be inferred from it")
    if len(shape) != meta.rank:
        raise UsageError(
            f"the input {name} has {meta.rank} sizes, {shape_text(meta.shape)}, but {shape_text(shape)} has {len(shape)}; give "
            "one for each"
        )
    wrong = [size for size in shape if size != -1 and not 1 <= size <= LARGEST]
    if wrong:
        raise UsageError(f"the input {name} cannot have the size {wrong[0]}; sizes are -1, or 1 to {LARGEST}")
    return name, tuple(int(size) for size in shape)


def _require_sound(done: Reshaped, repair: bool) -> None:
    """Raise BakedSizeError if an operator contradicts the new shapes and stays as it is."""
    left = [each for each in done.baked if not (repair and each.repair)]
    if not left:
        return
    first = left[0]
    place = f"operator {first.operator} of block {first.block}, {first.type} that gives {first.output}"
    count = f"{counted(len(left), 'operator')} contain{'s' * (len(left) == 1)}"
    if repair:
        text = f"{count} sizes that contradict the new shapes and cannot be repaired: first {place}: {first.reason}"
        hint: str | Hint = "rebuild the model with other sizes, or keep these"
        raise BakedSizeError(text, done.baked, done.unknown, hint=hint)
    able = sum(bool(each.repair) for each in left)
    way = f"repairs {able} of {len(left)}"
    hint = Hint(f"fix_baked_batch=True {way}", f"--fix-baked-batch {way}") if able else "none can be repaired"
    text = f"{count} sizes that contradict the new shapes: first {place}: {first.reason}"
    raise BakedSizeError(text, done.baked, done.unknown, hint=hint)


def _save(model: Model, program: Program, output: Path, overwrite: bool) -> list[Path]:
    store = model.files.parameters
    values = {var.name: store[var.name] for var in persistables(program)} if store else {}
    layout = layout_like(model.files, output, bool(values))
    return save_model(program, values, layout, overwrite=overwrite)


def _shape(program: Program, name: str) -> Shape:
    var = program.global_block().vars.get(name)
    return var.shape if var is not None and var.has_shape else ()
