"""`fluidtool.compare(left, right)`: two runs on the same feeds, value by value, and the smallest part that shows a difference."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fluidtool.debugging.bisection import Narrowing, Part
from fluidtool.debugging.comparing import Compared, Pairs, pair
from fluidtool.debugging.places import Place, places
from fluidtool.debugging.real_paddle import TIMEOUT, PaddleSide
from fluidtool.debugging.sides import ModelSide, Recording, Side, model_side
from fluidtool.debugging.values import RTOL, Allowed, compare_values
from fluidtool.errors import FeedError, FetchError, UsageError
from fluidtool.io.arrays import archive_bytes, read_folder, read_values
from fluidtool.io.atomic import new_folder, write_into
from fluidtool.io.parameters import combined_parts, persistables
from fluidtool.ir import Block, Program
from fluidtool.ir.difference import Change
from fluidtool.ir.reuse import ORIGINAL_NAMES_ATTR
from fluidtool.ir.roles import FRAMEWORK_ATTR_TYPES
from fluidtool.model import Model
from fluidtool.records import dataclass
from fluidtool.tensor import CPUPlace, CUDAPlace, LoDTensor, LoDTensorArray, SelectedRows
from fluidtool.tensor.compare import Comparison
from fluidtool.workflows.fetches import chosen
from fluidtool.workflows.inputs import Inputs, gather
from fluidtool.workflows.names import are_unnamed, in_order
from fluidtool.workflows.outputs import require_free
from fluidtool.workflows.watcher import SILENT, Watcher

PROGRAM, PARAMETERS = "__model__", "__params__"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first value that differs.

    operators: what A computes it by, from values that were compared. inputs: what is known of each of these ('agrees',
    'differs', 'input', 'parameter', 'not compared'). parameters: those of them that differ. attributes: 'scale of operator 3', with
    the values of A and B, where B has an operator of the same type for the same value.
    """

    value: Compared
    operators: tuple[Place, ...]
    inputs: Mapping[str, str]
    parameters: tuple[Comparison, ...]
    attributes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class SavedPart:
    """The smallest part of the program that was found to show the difference: its value, operators, files, and the command
    that shows it.
    """

    name: str
    operators: int
    of: int
    feeds: tuple[str, ...]
    comparison: Comparison
    files: tuple[Path, ...]
    command: str


@dataclass(frozen=True, slots=True)
class CompareResult:
    """What was compared, in program order, and where it parts.

    left, right: what computed. pairs: outputs, all values that both have, and those that B does not have. first: the first value
    that differs. not_finite: the first value with NaN or infinities on either side. notes: what holds of the comparison.
    part: with `bisect`, if there is a difference and a part alone shows it.
    """

    left: str
    right: str
    pairs: Pairs
    allowed: Allowed
    first: Difference | None
    not_finite: Compared | None
    notes: tuple[str, ...]
    part: SavedPart | None = None

    @property
    def differing(self) -> list[Compared]:
        """The values that differ."""
        return [each for each in self.pairs.values if each.differs]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return self.first is None


def compare(
    left: Model,
    right: Model | None = None,
    inputs: Inputs | None = None,
    fetch: Sequence[str] = (),
    *,
    recorded: str | Path | None = None,
    paddle: str | None = None,
    timeout: float = TIMEOUT,
    rtol: float = RTOL,
    atol: float | None = None,
    every: bool = False,
    bisect: str | Path | None = None,
    overwrite: bool = False,
    watcher: Watcher = SILENT,
) -> CompareResult:
    """Run two models on the same feeds and compare their outputs and all values that both have by name.

    right: the other model; None with `recorded` (a folder or file with values by name), or to run `left` itself in real Paddle.
    inputs: by default random values, or those of the recording. fetch: the outputs to compare, names of A or patterns
    (default: its outputs). paddle: an interpreter with real Paddle, which runs `right` for at most `timeout` seconds.
    rtol, atol: as in `Allowed`. every: also fetch values that an engine would fuse away, which keeps it from fusing them.
    bisect: a folder for the smallest part that shows the first difference, with its feeds; nothing is written if there is none.
    Raises UsageError, FeedError, FetchError, UnreadableError, OutputExistsError, OperatorError, DependencyError.
    """
    allowed = Allowed(rtol, atol)
    if bisect is not None:
        require_free(Path(bisect), overwrite=overwrite)
    if recorded is None and right is None and paddle is None:
        raise UsageError("name what to compare with: another model, an engine, a recording or a Paddle")
    if recorded is not None and (right is not None or paddle is not None):
        raise UsageError("a recording is compared with one model; omit the other model, or the recording")
    one = model_side(left, every)
    values = None if recorded is None else read_recording(Path(recorded))
    outputs = list(chosen(left, fetch).names)
    feed = _feed(left, inputs, values, watcher)
    with watcher.progress("running A"):
        mine = one.record(feed, outputs)
    if values is not None:
        other = _as_recorded(mine, values, outputs)
        pairs = pair(one.model.program, None, (mine, other), {name: name for name in outputs}, allowed)
        return _result(one, None, str(recorded), (mine, other), pairs, allowed, bisect, overwrite, watcher)
    two = _other_side(right or left, left, paddle, timeout, every)
    names = _partners(two.model, outputs)
    fed = _fed_to(two.model, feed, left)
    with watcher.progress("running B"):
        other = two.record(fed, list(names.values()))
    with watcher.progress("comparing"):
        pairs = pair(one.model.program, two.model.program, (mine, other), names, allowed)
    return _result(one, two, two.computes, (mine, other), pairs, allowed, bisect, overwrite, watcher)


def _other_side(model: Model, left: Model, paddle: str | None, timeout: float, every: bool) -> Side:
    side = model_side(model, every)
    return side if paddle is None else PaddleSide(side.model, paddle, timeout)


# ---------------------------------------------------------------- feeds, outputs, recordings
def read_recording(path: Path) -> dict[str, LoDTensor]:
    """The values of a folder or a file; raises UnreadableError."""
    return read_folder(path) if path.is_dir() else read_values(path)


def _feed(
    model: Model, inputs: Inputs | None, values: Mapping[str, LoDTensor] | None, watcher: Watcher
) -> dict[str, LoDTensor]:
    """The feeds: those that are given, those of the recording, else random ones."""
    inputs = inputs or Inputs()
    if values is None:
        feed = gather(model, replace(inputs, random=inputs.random or not inputs.feeds), watcher)
    else:
        given = gather(model, replace(inputs, random=False, shapes=()), watcher) if inputs.feeds else {}
        feed = {name: values[name] for name in model.feeds if name in values} | given
        if inputs.random:
            missing = gather(model, inputs, watcher)
            feed = missing | feed
    model.check_feed(feed)
    return feed


def _fed_to(model: Model, feed: Mapping[str, Any], left: Model) -> dict[str, Any]:
    """The same feeds for B: by name, or in order where B calls its inputs otherwise. Raises FeedError for what does not fit."""
    if all(name in model.program.global_block().vars for name in feed):
        fed = dict(feed)
    elif len(model.feeds) == len(left.feeds) and set(feed) == set(left.feeds):
        fed = {name: feed[own] for name, own in zip(model.feeds, left.feeds, strict=True)}
    else:
        raise FeedError(
            f"B takes {model.describe_inputs() or 'no inputs'}, and A {left.describe_inputs()}: they cannot take the same feeds"
        )
    try:
        model.check_feed(fed)
    except FeedError as error:
        raise FeedError(f"B cannot take the feeds of A: {error}") from error
    return fed


def _partners(model: Model, outputs: Sequence[str]) -> dict[str, str]:
    """The names in B of the outputs of A: the same, or in order. Raises FetchError."""
    known = set(places(model.program)) | set(model.feeds)
    if all(name in known for name in outputs):
        return {name: name for name in outputs}
    if len(model.fetches) == len(outputs):
        return dict(zip(outputs, model.fetches, strict=True))
    unknown = next(name for name in outputs if name not in known)
    raise FetchError(
        f"B does not compute {unknown}; its outputs are {', '.join(model.fetches) or 'none'}: name common values with --fetch"
    )


def _as_recorded(mine: Recording, values: Mapping[str, LoDTensor], outputs: Sequence[str]) -> Recording:
    """What was recorded, as values of the kinds that A has; arrays without names stand for the outputs."""
    if are_unnamed(values):
        values = {output: values[name] for name, output in in_order(outputs).items() if name in values}
    found = {name: value for name, like in mine.values.items() if (value := _like(name, like, values)) is not None}
    return Recording({name: found[name] for name in outputs if name in found}, found)


def _like(name: str, like: Any, values: Mapping[str, LoDTensor]) -> Any:
    """A value of several entries, as files keep them (fluidtool/io/arrays.py)."""
    if isinstance(like, LoDTensorArray):
        items = [values[f"{name}.{index}"] for index in range(len(like) + 1) if f"{name}.{index}" in values]
        return LoDTensorArray(items) if items else None
    value = values.get(name)
    if isinstance(like, SelectedRows) and value is not None and f"{name}.rows" in values:
        return SelectedRows(values[f"{name}.rows"].numpy(), like.height(), value.numpy())
    return value


# ---------------------------------------------------------------- results
def _result(
    one: ModelSide,
    two: Side | None,
    computed_by: str,
    recordings: tuple[Recording, Recording],
    pairs: Pairs,
    allowed: Allowed,
    bisect: str | Path | None,
    overwrite: bool,
    watcher: Watcher,
) -> CompareResult:
    differing = [each for each in pairs.values if each.differs]
    strange = next((each for each in pairs.values if each.left != each.right or each.left.nan or each.left.inf), None)
    notes = tuple(_notes(recordings, pairs, one.every))
    part = None
    if differing and bisect is not None:
        part = _narrowed(one, two, recordings, differing, pairs, allowed, Path(bisect), overwrite, watcher)
        if part is None:
            within = all(each.place is not None and each.place.block for each in differing)
            where = (
                "the values that differ do not leave their loop or branch"
                if within
                else "no part alone shows the difference"
            )
            notes = (*notes, f"{where}: nothing was saved")
    first = _difference(one, two, differing[0], pairs) if differing else None
    return CompareResult(one.computes, computed_by, pairs, allowed, first, strange, notes, part)


def _notes(recordings: tuple[Recording, Recording], pairs: Pairs, every: bool) -> Iterable[str]:
    for side, recording in zip("AB", recordings, strict=True):
        if recording.disturbed:
            names = ", ".join(recording.disturbed)
            yield f"{side} gives {names} differently when intermediate values are fetched; its outputs are those without them"
    if every:
        yield "every intermediate value was fetched, which keeps engines from computing several operators at once"
    rewritten = [each.name for each in pairs.values if each.rewritten]
    if rewritten:
        yield f"computed differently in B, but not counted, since what follows agrees: {', '.join(rewritten)}"


def _difference(one: Side, two: Side | None, value: Compared, pairs: Pairs) -> Difference:
    """What is known about the first difference."""
    if value.place is None:
        return Difference(value, (), {}, (), ())
    state = {each.name: "differs" if each.differs else "agrees" for each in pairs.values}
    behind = list(_behind(value.place, state, places(one.model.program)))
    written = {name for place in behind for name in place.op.output_arg_names}
    block = value.place.op.block
    inputs = {
        name: state.get(name) or _kind(block.find_var_recursive(name), one.model, name)
        for place in behind
        for name in place.op.input_arg_names
        if name in state or name not in written or _persists(block, name)
    }
    parameters = [name for name, kind in inputs.items() if kind == "parameter"]
    if two is None:
        return Difference(value, tuple(behind), inputs, (), ())
    differing = tuple(_differing(one.model, two.model, parameters))
    return Difference(
        value, tuple(behind), inputs, differing, tuple(_changes(behind, value.partner, two.model.program))
    )


def _changes(behind: Sequence[Place], partner: str, program: Program) -> Iterable[Change]:
    """The attributes in which operators differ from those of B that write the same values."""
    writers = {name: op for op in program.global_block().ops for name in op.output_arg_names}
    for place in behind:
        op = place.op
        other = next((writers[name] for name in (*op.output_arg_names, partner) if name in writers), None)
        if other is None or other.type != op.type:
            continue
        for name in sorted({*op.attr_names, *other.attr_names} - FRAMEWORK_ATTR_TYPES.keys() - {ORIGINAL_NAMES_ATTR}):
            mine, theirs = op.get_attr(name), other.get_attr(name)
            if mine != theirs and not op.sub_blocks():
                yield Change(f"{name} of operator {place.operator}", mine, theirs)


def _behind(place: Place, compared: Mapping[str, str], where: Mapping[str, Place]) -> Iterable[Place]:
    """The operators between a value and those that were compared before it, in program order."""
    found: dict[tuple[int, int], Place] = {}
    waiting = [place]
    while waiting:
        each = waiting.pop()
        if (each.block, each.operator) not in found:
            found[each.block, each.operator] = each
            waiting += [where[name] for name in each.op.input_arg_names if name in where and name not in compared]
    return (found[key] for key in sorted(found))


def _persists(block: Block, name: str) -> bool:
    var = block.find_var_recursive(name)
    return var is not None and var.persistable


def _kind(var: Any, model: Model, name: str) -> str:
    if name in model.feeds:
        return "input"
    return "parameter" if var is not None and var.persistable else "not compared"


def _differing(left: Model, right: Model, names: Iterable[str]) -> Iterable[Comparison]:
    """The parameters of these names that differ."""
    mine, other = left.files.parameters, right.files.parameters
    if mine is other:
        return
    for name in names:
        if name in mine and name in other:
            found = compare_values(name, mine[name], other[name], Allowed(0.0, 0.0))
            if not found.agrees:
                yield found


# ---------------------------------------------------------------- the smallest part
def _narrowed(
    one: ModelSide,
    two: Side | None,
    recordings: tuple[Recording, Recording],
    differing: Sequence[Compared],
    pairs: Pairs,
    allowed: Allowed,
    folder: Path,
    overwrite: bool,
    watcher: Watcher,
) -> SavedPart | None:
    """Narrow the first value that can be fetched, or else the first output that differs."""
    outputs = {each.name for each in pairs.outputs}
    first = next((each for each in differing if each.place is not None and each.place.block == 0), None)
    last = next((each for each in differing if each.name in outputs and each.place is not None), None)
    total = sum(op.type not in ("feed", "fetch") for op in one.model.program.global_block().ops)
    with watcher.progress("narrowing") as advance:
        search = Narrowing(one, two, recordings[0].values, recordings[1].values, allowed, advance)
        for each in dict.fromkeys((first, last)):
            part = None if each is None else search.narrow(each.name, each.partner)
            if part is not None:
                return _saved(part, one, two, allowed, folder, total, overwrite)
    return None


def _saved(
    part: Part, one: ModelSide, two: Side | None, allowed: Allowed, folder: Path, total: int, overwrite: bool
) -> SavedPart:
    """Write the part: a/, b/ if B is another model, feed.npz, and what was recorded."""
    files = _model_files("a", part.left, one.model)
    if two is not None and part.right is not None and _differ(part, one.model, two.model):
        files |= _model_files("b", part.right, two.model)
    if part.feed:
        files["feed.npz"] = [archive_bytes(part.feed)]
    if two is None:
        files["recorded.npz"] = [archive_bytes(part.expected)]
    with new_folder(folder, replace=overwrite) as temporary:
        write_into(temporary, files)
    command = shlex.join(_command(part, one.model, two, allowed, folder, "b/" + PROGRAM in files))
    paths = tuple(folder / name for name in files)
    return SavedPart(part.target, part.operators, total, tuple(part.feed), part.comparison, paths, command)


def _differ(part: Part, left: Model, right: Model) -> bool:
    assert part.right is not None
    same_program = part.left.serialize_to_string() == part.right.serialize_to_string()
    return not same_program or left.files.parameters is not right.files.parameters


def _model_files(folder: str, program: Program, model: Model) -> dict[str, Iterable[Any]]:
    store = model.files.parameters
    values = {var.name: store[var.name] for var in persistables(program) if var.name in store}
    files: dict[str, Iterable[Any]] = {f"{folder}/{PROGRAM}": [program.serialize_to_string()]}
    return files | ({f"{folder}/{PARAMETERS}": combined_parts(values)} if values else {})


def device_name(place: Any) -> str:
    """A place as options name it: cpu, or gpu:0."""
    return f"gpu:{place.device_id}" if isinstance(place, CUDAPlace) else "cpu"


def _command(part: Part, left: Model, two: Side | None, allowed: Allowed, folder: Path, other: bool) -> list[str]:
    """The command line that shows the difference of the saved part."""
    words = ["fluidtool", "compare", str(folder / "a")]
    words += [str(folder / "b")] if other else []
    words += ["--feed", str(folder / "feed.npz")] if part.feed else []
    words += ["--engine", left.engine, *(["--precision", left.precision] if left.precision != "float32" else [])]
    words += ["--device", device_name(left.place)] if left.place != CPUPlace() else []
    if two is None:
        words += ["--recorded", str(folder / "recorded.npz")]
    elif isinstance(two, PaddleSide):
        words += ["--paddle", two.interpreter]
    else:
        words += ["--engine-b", two.model.engine]
        words += ["--precision-b", two.model.precision] if two.model.precision != "float32" else []
        words += ["--device-b", device_name(two.model.place)] if two.model.place != left.place else []
    words += ["--rtol", f"{allowed.rtol:g}"]
    return words + (["--atol", f"{allowed.atol:g}"] if allowed.atol is not None else [])
