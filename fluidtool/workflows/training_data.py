"""The examples of a training, from files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from fluidtool.errors import FeedError, Hint, Location, UsageError
from fluidtool.io.arrays import read_values
from fluidtool.io.layout import ModelFiles
from fluidtool.io.parameters import EMPTY_STORE
from fluidtool.model import Model
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor
from fluidtool.training import Examples, TrainingPrograms, stream_of
from fluidtool.training.examples import Source, is_stream, join
from fluidtool.workflows.feeds import DATA, as_declared, read_feed, set_lengths, split_spec


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Where the examples are: .npz, .npy or folders of NAME.npy, each 'FILE' or 'NAME=FILE'; the leading axis counts examples.

    lods: sequence lengths, 'NAME=[[2,3]]' or a JSON file. inputs: what feed0, feed1, … of ready mini-batches are for.
    """

    files: Sequence[str]
    lods: Sequence[str] = ()
    inputs: Sequence[str] = ()


def read_data(programs: TrainingPrograms, data: DataFiles) -> Source:
    """The examples that the files have; raises FeedError, UsageError, UnreadableError, LoDError."""
    unknown = [name for name in data.inputs if name not in programs.inputs]
    if unknown:
        text = f"{unknown[0]!r} is not an input; the inputs are {programs.described_inputs()}"
        raise FeedError(text, location=Location(variable=unknown[0]))
    if len(data.files) == 1 and data.files[0].endswith(".npz") and not split_spec(data.files[0])[0]:
        arrays = read_values(Path(data.files[0]))
        if is_stream(list(arrays)):
            return stream_of(arrays, list(data.inputs) or programs.inputs, data.files[0])
    if data.inputs:
        raise UsageError(
            "names of inputs are given for ready mini-batches (step0_feed0, ...) only",
            hint=Hint(
                "omit inputs=, and name arrays by their inputs", "omit --inputs, and name arrays by their inputs"
            ),
        )
    model = Model(programs.main, ModelFiles(programs.main, "the main program", EMPTY_STORE, "", "program"))
    parts: dict[str, list[LoDTensor]] = defaultdict(list)
    for spec in data.files:
        for file in _files(spec, programs):
            for name, value in read_feed(model, file, DATA).items():
                parts[name].append(as_declared(model, name, value))
    values = {name: join(name, tensors) for name, tensors in parts.items()}
    extra = [name for name in values if name not in programs.inputs]
    if extra:
        raise FeedError(f"{extra[0]} is not an input of the main program; the inputs are {programs.described_inputs()}")
    lengths = set_lengths(model, data.lods, values)
    unused = [name for name in lengths if name not in values]
    if unused:
        raise FeedError(
            f"{unused[0]} has sequence lengths, but no data",
            hint=Hint(f"give files=['{unused[0]}=FILE']", f"give --data {unused[0]}=FILE"),
            location=Location(variable=unused[0]),
        )
    return Examples(values)


def _files(spec: str, programs: TrainingPrograms) -> list[str]:
    """The specification itself, or one for every array of a folder."""
    folder = Path(spec)
    if not folder.is_dir():
        return [spec]
    files = [folder / f"{name}.npy" for name in programs.inputs if (folder / f"{name}.npy").is_file()]
    if not files:
        text = f"the folder {spec} has no NAME.npy for any input; {programs.described_inputs()}"
        raise FeedError(text, location=Location(spec))
    return [f"{file.stem}={file}" for file in files]
