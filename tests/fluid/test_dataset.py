"""Data sets of text files, and `Executor.train_from_dataset`. The numbers and texts are Paddle 1.8.5's, for one thread."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import (
    ArgumentTypeError,
    DataFileNotFoundError,
    FetchError,
    NotOfferedError,
    UnreadableError,
    UnsupportedOperatorError,
    UsageError,
)
from fluidtool.fluid.dataset_runs import FetchHandler
from fluidtool.fluid.multi_slot import parse_line, slot_of

CPU = fluid.CPUPlace()
LINES = """2 5 6 3 0.1 0.2 0.3 1 1
1 0 3 0.4 0.5 0.6 1 0
3 0 0 7 3 0 0 0.6 1 0
1 3 3 0.4 0.5 0.6 1 1
2 3 4 3 1 1 1 1 1
"""
WORDS = [[5, 6, 0], [0, 0, 7, 3], [3, 4]]  # of batches of two
KEPT = [[5, 6, 0], [7, 3], [3, 4]]  # in memory
LOSSES = [0.693147, 0.697549, 0.694419]  # of a QueueDataset
PARAMETERS = {  # after an InMemoryDataset
    "fc_0.w_0": [
        0.287487447,
        0.312512577,
        0.287487447,
        0.312512577,
        0.287487447,
        0.312512577,
        0.287487447,
        0.312512577,
    ],
    "fc_0.w_1": [0.247537971, 0.352462053, 0.245012373, 0.354987651, 0.257434249, 0.342565775],
    "fc_0.b_0": [-0.0502032712, 0.0502032749],
    "embedding_0.w_0": [0.1] * 12 + [0.100379005] * 4 + [0.100252725] * 4 + [0.1] * 8 + [0.0998754427] * 4,
}


@pytest.fixture(autouse=True)
def new_programs() -> Iterator[None]:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield


def variables() -> list[Any]:
    return [
        fluid.layers.data("words", [1], dtype="int64", lod_level=1),
        fluid.layers.data("dense", [3], dtype="float32"),
        fluid.layers.data("label", [1], dtype="int64"),
    ]


def loss_of(inputs: list[Any]) -> Any:
    """The mean cross entropy of a bag of words beside dense numbers; constants to start from, plain descent."""
    words, dense, label = inputs
    constant = fluid.initializer.Constant
    embedded = fluid.layers.embedding(words, [20, 4], param_attr=fluid.ParamAttr(initializer=constant(0.1)))
    pooled = fluid.layers.sequence_pool(embedded, "sum")
    attr = fluid.ParamAttr(initializer=constant(0.3))
    probability = fluid.layers.fc([pooled, dense], 2, act="softmax", param_attr=attr)
    loss = fluid.layers.mean(fluid.layers.cross_entropy(probability, label))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def make(folder: Path, kind: str = "QueueDataset", *contents: str, inputs: list[Any] | None = None) -> Any:
    """A data set of batches of two, with a file for each content."""
    files = []
    for number, content in enumerate(contents or (LINES,)):
        files.append(folder / f"{number}.txt")
        files[-1].write_text(content)
    dataset = fluid.DatasetFactory().create_dataset(kind)
    dataset.set_use_var(variables() if inputs is None else inputs)
    dataset.set_batch_size(2)
    dataset.set_filelist([str(file) for file in files])
    return dataset


def loaded(folder: Path, *contents: str, **options: Any) -> Any:
    dataset = make(folder, "InMemoryDataset", *contents, **options)
    dataset.load_into_memory()
    return dataset


def words_of(dataset: Any, readers: int = 1) -> list[list[int]]:
    return [feed["words"].numpy().ravel().tolist() for _, feed in dataset.batches(readers)]


# ---------------------------------------------------------------- the format
def test_files_are_read_in_order_and_batches_span_them(tmp_path: Path) -> None:
    lines = LINES.splitlines(keepends=True)
    assert words_of(make(tmp_path, "QueueDataset", "".join(lines[:1]), "".join(lines[1:]))) == WORDS


def test_slots_become_tensors(tmp_path: Path) -> None:
    """Sparse ones have a sequence for each sample. The LoD of dense ones counts numbers, as in Paddle."""
    (_, feed), *_ = make(tmp_path).batches(1)
    words, dense, label = feed["words"], feed["dense"], feed["label"]
    assert (words.numpy().shape, words.numpy().dtype, words.lod()) == ((3, 1), np.int64, [[0, 2, 3]])
    assert (dense.numpy().shape, dense.numpy().dtype, dense.lod()) == ((2, 3), np.float32, [[0, 3, 6]])
    assert (label.numpy().tolist(), label.lod()) == ([[1], [0]], [[0, 1, 2]])


def test_memory_keeps_no_zeros_of_sparse_slots(tmp_path: Path) -> None:
    """A slot of zeros alone stays one zero; dense slots keep theirs."""
    dataset = loaded(tmp_path)
    assert words_of(dataset) == KEPT
    dense = [feed["dense"].numpy() for _, feed in dataset.batches(1)]
    np.testing.assert_array_equal(dense[1], np.array([[0, 0, 0.6], [0.4, 0.5, 0.6]], "float32"))


def test_ids_have_64_bits(tmp_path: Path) -> None:
    dataset = make(tmp_path, "QueueDataset", f"2 {2**64 - 1} {2**63} 3 1 2 3 1 1\n")
    assert words_of(dataset) == [[-1, -(2**63)]]


def test_what_follows_the_last_slot_is_ignored(tmp_path: Path) -> None:
    assert words_of(make(tmp_path, "QueueDataset", "1 4 3 1 2 3 1 1 9 9\n")) == [[4]]


def test_ids_and_contents_of_samples_are_passed_over(tmp_path: Path) -> None:
    dataset = make(tmp_path, "InMemoryDataset", "1 name 1 text 1 4 3 1 2 3 1 1\n")
    dataset.set_parse_ins_id(True)
    dataset.set_parse_content(True)
    dataset.load_into_memory()
    assert words_of(dataset) == [[4]]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (
            "0 3 1 2 3 1 1",
            "slot words should begin with the count of its numbers, found '0': The number of ids can not be",
        ),
        ("", "slot words should begin with the count of its numbers, found ''"),
        ("1 4 3 1 2 3", "slot label should begin with the count of its numbers, found ''"),
        ("1 4 3 1 2", "the line ends within slot dense, which should have 3 numbers"),
        ("1 x 3 1 2 3 1 1", "slot words is of type uint64"),
        ("1 1 3 1 y 3 1 1", "slot dense is of type float"),
        ("1 1 2 1 2 1 1", r"slot dense has 2 numbers, but the variable is declared \(-1, 3\)"),
    ],
)
def test_lines_that_are_no_samples(line: str, what: str) -> None:
    with pytest.raises(UnreadableError, match=rf"part, line 3: .*{what}"):
        parse_line(line.encode(), [slot_of(var) for var in variables()], 0, "part, line 3")


def test_errors_name_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"0\.txt, line 6: slot words"):
        words_of(make(tmp_path, "QueueDataset", LINES + "\n"))


def test_a_missing_file(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    dataset.set_filelist(["none.txt"])
    with pytest.raises(DataFileNotFoundError, match=r"none\.txt does not exist"):
        words_of(dataset)


def test_other_data_types_have_no_slot() -> None:
    with pytest.raises(UsageError, match="only supports dtype=float32 and dtype=int64; q is FP64"):
        slot_of(fluid.layers.data("q", [1], dtype="float64"))


# ---------------------------------------------------------------- pipe commands
def test_a_pipe_command_makes_the_samples(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    dataset.set_pipe_command("sed s/5/9/")
    assert words_of(dataset)[0] == [9, 6, 0]


def test_a_pipe_command_that_fails(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    dataset.set_pipe_command("cat; exit 3")
    with pytest.raises(UnreadableError, match="'cat; exit 3' ended with 3 for"):
        words_of(dataset)


def test_a_pipe_command_is_not_read_to_the_end_if_nobody_asks(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    dataset.set_pipe_command(f"{sys.executable} -c \"while True: print('1 4 3 1 2 3 1 1')\"")
    batches = dataset.batches(1)
    assert next(batches)[1]["words"].numpy().ravel().tolist() == [4, 4]
    batches.close()


# ---------------------------------------------------------------- readers
def test_readers_take_turns_with_files_of_their_own(tmp_path: Path) -> None:
    other = "1 9 3 9 9 9 1 1\n" * 3
    dataset = make(tmp_path, "QueueDataset", LINES, other)
    assert words_of(dataset, 2) == [WORDS[0], [9, 9], WORDS[1], [9], WORDS[2]]


def test_a_queue_has_no_more_readers_than_files(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    dataset.set_thread(4)
    assert dataset.readers() == 1


def test_readers_share_the_memory(tmp_path: Path) -> None:
    dataset = loaded(tmp_path)
    batches = list(dataset.batches(2))
    assert [number for number, _ in batches] == [0, 1, 1]
    assert sum((feed["label"].numpy().size for _, feed in batches), 0) == 5


# ---------------------------------------------------------------- memory
def test_memory_can_be_filled_in_the_background(tmp_path: Path) -> None:
    dataset = make(tmp_path, "InMemoryDataset")
    dataset.preload_into_memory()
    dataset.wait_preload_done()
    assert (dataset.get_memory_data_size(), dataset.get_shuffle_data_size()) == (5, 0)


def test_what_background_reading_meets_is_raised(tmp_path: Path) -> None:
    dataset = make(tmp_path, "InMemoryDataset", "x\n")
    dataset.preload_into_memory()
    with pytest.raises(UnreadableError, match="line 1"):
        dataset.wait_preload_done()


def test_nothing_to_wait_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="preload_into_memory"):
        make(tmp_path, "InMemoryDataset").wait_preload_done()


def test_a_shuffle_keeps_every_sample(tmp_path: Path) -> None:
    dataset = loaded(tmp_path, LINES * 4)
    before = words_of(dataset)
    dataset.local_shuffle(seed=1)
    after = words_of(dataset)
    assert before != after and sorted(chain(*before)) == sorted(chain(*after))


def test_a_global_shuffle_of_one_trainer_keeps_its_data(tmp_path: Path) -> None:
    dataset = loaded(tmp_path)
    dataset.global_shuffle()
    assert words_of(dataset) == KEPT


def test_values_of_a_slot_can_be_exchanged(tmp_path: Path) -> None:
    dataset = loaded(tmp_path, LINES * 4)
    labels = [feed["label"].numpy().tolist() for _, feed in dataset.batches(1)]
    words = sorted(chain(*words_of(dataset)))
    dataset.set_fea_eval(1)
    dataset.slots_shuffle(["words"])
    assert [feed["label"].numpy().tolist() for _, feed in dataset.batches(1)] == labels
    assert sorted(chain(*words_of(dataset))) == words


def test_released_memory_holds_nothing(tmp_path: Path) -> None:
    dataset = loaded(tmp_path)
    dataset.release_memory()
    assert dataset.get_memory_data_size() == 0
    with pytest.raises(UsageError, match="call load_into_memory first"):
        words_of(dataset)


@pytest.mark.parametrize("method", ["local_shuffle", "global_shuffle"])
def test_a_queue_cannot_be_shuffled(tmp_path: Path, method: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match="please use InMemoryDataset"):
        getattr(make(tmp_path), method)()


@pytest.mark.parametrize("method", ["global_shuffle", "get_memory_data_size", "get_shuffle_data_size"])
def test_samples_are_not_exchanged_between_workers(tmp_path: Path, method: str) -> None:
    dataset = loaded(tmp_path)
    getattr(dataset, method)(SimpleNamespace(worker_num=lambda: 1))
    with pytest.raises(UnsupportedOperatorError, match=r"fleet of 2 workers.* omit fleet"):
        getattr(dataset, method)(SimpleNamespace(worker_num=lambda: 2))


@pytest.mark.parametrize("method", ["set_hdfs_config", "set_pv_batch_size", "set_download_cmd"])
def test_methods_that_are_not_offered_say_why(tmp_path: Path, method: str) -> None:
    with pytest.raises(NotOfferedError, match=f"InMemoryDataset.{method} is not offered: it "):
        getattr(make(tmp_path, "InMemoryDataset"), method)


def test_slots_are_exchanged_in_memory_only(tmp_path: Path) -> None:
    with pytest.raises(NotOfferedError, match="use InMemoryDataset"):
        make(tmp_path).slots_shuffle(["words"])
    with pytest.raises(UsageError, match="allowed first"):
        loaded(tmp_path).slots_shuffle(["words"])


def test_an_unknown_slot_is_not_exchanged(tmp_path: Path) -> None:
    dataset = loaded(tmp_path)
    dataset.set_fea_eval(1)
    with pytest.raises(UsageError, match="no slot 'x'; the slots are words, dense, label"):
        dataset.slots_shuffle(["x"])


def test_an_unknown_class_of_data_sets() -> None:
    with pytest.raises(UsageError, match="there is no datafeed class X"):
        fluid.DatasetFactory().create_dataset("X")


def test_a_data_set_without_variables(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="call set_use_var first"):
        words_of(make(tmp_path, inputs=[]))


def test_the_description_is_paddles(tmp_path: Path) -> None:
    assert make(tmp_path, inputs=variables()[:2]).desc() == (
        'name: "MultiSlotDataFeed"\nbatch_size: 2\nmulti_slot_desc {\n'
        '  slots {\n    name: "words"\n    type: "uint64"\n    is_used: true\n  }\n'
        '  slots {\n    name: "dense"\n    type: "float"\n    is_dense: true\n    is_used: true\n    shape: -1\n    shape: 3\n  }\n'
        '}\npipe_command: "cat"\n'
    )


# ---------------------------------------------------------------- running
def train(dataset: Any, **options: Any) -> None:
    executor = fluid.Executor(CPU)
    executor.run(fluid.default_startup_program())
    executor.train_from_dataset(fluid.default_main_program(), dataset, **options)


def test_variables_are_written_every_period(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = variables()
    train(make(tmp_path, inputs=inputs), fetch_list=inputs[:2], fetch_info=["w", "d"], print_period=2)
    assert capsys.readouterr().out == (
        "w\twords\t\tlod: {{0, 3, 4}}\n\tdim: 4, 1\n\tlayout: NCHW\n\tdtype: int64_t\n\tdata: [0 0 7 3]\n\t\n"
        "d\tdense\t\tlod: {{0, 3, 6}}\n\tdim: 2, 3\n\tlayout: NCHW\n\tdtype: float\n\tdata: [0 0 0.6 0.4 0.5 0.6]\n\t\n"
    )


def test_losses_are_paddles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = variables()
    loss = loss_of(inputs)
    train(make(tmp_path, inputs=inputs), fetch_list=[loss], fetch_info=["loss"], print_period=1)
    losses = [float(line[8:-1]) for line in capsys.readouterr().out.splitlines() if line.startswith("\tdata: [")]
    np.testing.assert_allclose(losses, LOSSES, rtol=2e-6)


def test_parameters_are_paddles(tmp_path: Path) -> None:
    inputs = variables()
    loss_of(inputs)
    train(loaded(tmp_path, inputs=inputs))
    found = {name: np.array(fluid.fetch_var(name)) for name in PARAMETERS}
    for name, values in PARAMETERS.items():
        np.testing.assert_allclose(found[name].ravel()[: len(values)], values, rtol=2e-6, err_msg=name)


def test_inference_runs_every_operator_as_in_paddle(tmp_path: Path) -> None:
    inputs = variables()
    loss_of(inputs)
    executor = fluid.Executor(CPU)
    executor.run(fluid.default_startup_program())
    before = np.array(fluid.fetch_var("embedding_0.w_0"))
    executor.infer_from_dataset(fluid.default_main_program(), make(tmp_path, inputs=inputs))
    assert (np.array(fluid.fetch_var("embedding_0.w_0")) != before).any()


class Keep(FetchHandler):
    """Keeps what it is told."""

    def __init__(self, var_dict: Any) -> None:
        super().__init__(var_dict, period_secs=0)
        self.found: list[Any] = []

    def handler(self, res_dict: Any) -> None:
        self.found.append(res_dict)


def test_a_handler_is_told_of_variables(tmp_path: Path) -> None:
    inputs = variables()
    handler = Keep({"loss": loss_of(inputs), "text": "y"})
    train(make(tmp_path, inputs=inputs), fetch_handler=handler)
    assert [found["loss"].shape for found in handler.found] == [(1,)] * 3
    assert handler.found[0]["text"] is None


def test_a_handler_cannot_be_told_of_sequences(tmp_path: Path) -> None:
    inputs = variables()
    with pytest.raises(FetchError, match="hold LoD information"):
        train(make(tmp_path, inputs=inputs), fetch_handler=Keep({"words": inputs[0]}))


def test_a_handler_writes_first_elements(capsys: pytest.CaptureFixture[str]) -> None:
    FetchHandler({}).handler({"a": np.array([3.5, 1]), "b": None})
    assert capsys.readouterr().out == "a[0]: 3.5 \n"


def test_a_handler_needs_variables() -> None:
    with pytest.raises(UsageError, match="takes var_dict"):
        FetchHandler()


def test_the_help_of_handlers_is_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    FetchHandler.help()
    assert "class FetchHandlerExample(FetchHandler):" in capsys.readouterr().out


def test_every_variable_needs_its_text(tmp_path: Path) -> None:
    inputs = variables()
    with pytest.raises(UsageError, match="fetch_list has 1 variables, but fetch_info has 0 texts"):
        train(make(tmp_path, inputs=inputs), fetch_list=inputs[:1])


def test_running_needs_a_data_set() -> None:
    with pytest.raises(UsageError, match="dataset is need and should be initialized"):
        train(None)
    with pytest.raises(ArgumentTypeError, match="found list"):
        train([1])


def test_running_needs_a_program(tmp_path: Path) -> None:
    compiled = fluid.CompiledProgram(fluid.default_main_program())
    with pytest.raises(ArgumentTypeError, match="not through a CompiledProgram"):
        fluid.Executor(CPU).train_from_dataset(compiled, make(tmp_path))  # type: ignore[arg-type]


def test_a_closed_executor_does_not_run(tmp_path: Path) -> None:
    executor = fluid.Executor(CPU)
    executor.close()
    with pytest.raises(RuntimeError, match="closed Executor"):
        executor.train_from_dataset(fluid.default_main_program(), make(tmp_path))


# ---------------------------------------------------------------- DataLoader.from_dataset
@pytest.mark.parametrize(("drop_last", "count"), [(True, 2), (False, 3)])
def test_loaders_give_the_batches_of_a_data_set(tmp_path: Path, drop_last: bool, count: int) -> None:
    loader = fluid.reader.DataLoader.from_dataset(make(tmp_path), fluid.cpu_places(1), drop_last)
    for _ in range(2):
        found = [feed["words"].numpy().ravel().tolist() for (feed,) in loader()]
        assert found == WORDS[:count]


def test_loaders_give_a_batch_for_every_place(tmp_path: Path) -> None:
    dataset = make(tmp_path, "QueueDataset", LINES, LINES)
    groups = list(fluid.reader.DataLoader.from_dataset(dataset, fluid.cpu_places(2), True))
    assert [len(group) for group in groups] == [2, 2]


def test_loaders_need_a_file_for_every_place(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="must be not less than place number 2"):
        fluid.reader.DataLoader.from_dataset(make(tmp_path), fluid.cpu_places(2))
    with pytest.raises(AssertionError, match="must be type of DatasetBase"):
        fluid.reader.DataLoader.from_dataset(3, [CPU])  # type: ignore[arg-type]


# ---------------------------------------------------------------- DataFeedDesc
DESC = """name: "MultiSlotDataFeed"
batch_size: 2  # a comment
multi_slot_desc {
  slots { name: "words" type: "uint64" is_dense: false is_used: false }
  slots: { name: "label" type: 'uint64' shape: [-1, 3] }
}
"""


def description(folder: Path, text: str = DESC) -> Any:
    (folder / "feed.proto").write_text(text)
    return fluid.DataFeedDesc(str(folder / "feed.proto"))


def test_a_description_is_changed(tmp_path: Path) -> None:
    desc = description(tmp_path)
    desc.set_batch_size(128)
    desc.set_dense_slots(["label"])
    desc.set_use_slots(["words"])
    assert desc.desc() == (
        'name: "MultiSlotDataFeed"\nbatch_size: 128\nmulti_slot_desc {\n'
        '  slots {\n    name: "words"\n    type: "uint64"\n    is_dense: false\n    is_used: true\n  }\n'
        '  slots {\n    name: "label"\n    type: "uint64"\n    is_dense: true\n    shape: -1\n    shape: 3\n  }\n'
        '}\npipe_command: "cat"\n'
    )


def test_slots_of_a_description_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no slot 'x'; the slots are words, label"):
        description(tmp_path).set_use_slots(["x"])
    with pytest.raises(UsageError, match="Only MultiSlotDataFeed needs set_dense_slots"):
        description(tmp_path, 'name: "Other"').set_dense_slots(["words"])


@pytest.mark.parametrize("text", ["name {", "name", "}", 'name: "a" $', 'multi_slot_desc { slots { name: "w" } }'])
def test_a_file_that_is_no_description(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnreadableError, match=r"feed\.proto is not a DataFeedDesc"):
        description(tmp_path, text)


def test_a_missing_description(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="cannot read"):
        fluid.DataFeedDesc(str(tmp_path / "none"))


def test_names_are_where_paddle_has_them() -> None:
    from fluidtool.fluid import executor

    assert executor.FetchHandler is FetchHandler  # type: ignore[attr-defined]
    assert fluid.DatasetFactory is fluid.dataset.DatasetFactory
    assert fluid.incubate.data_generator.__all__ == ["MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]
