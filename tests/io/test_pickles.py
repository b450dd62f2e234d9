"""Pickles are read as data: every protocol and writer, and nothing that a file could use against its reader."""

from __future__ import annotations

import pickle
import pickletools
import tracemalloc
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import UnreadableError, UnsafePickleError
from fluidtool.io import pickles
from fluidtool.io.pickles import machine
from fluidtool.io.pickles.arrays import DataType
from fluidtool.io.pickles.constructors import Name, construct
from fluidtool.io.pickles.operations import MalformedError

ARRAYS = {
    "floats": np.arange(6, dtype=np.float32).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "transposed": np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
    "big-endian": np.arange(5, dtype=">i4"),
    "half": np.arange(3, dtype=np.float16),
    "bool": np.array([True, False]),
    "complex": np.ones(2, np.complex64),
    "bytes": np.arange(256, dtype=np.uint8),
    "no dimensions": np.array(3.0),
    "empty": np.zeros((0, 3), np.float32),
    "text": np.array(["ab", "ü"]),
    "strings": np.array([b"ab", b"c"]),
}
PLAIN = {
    "numbers": [0, 1, -1, 255, 256, 65536, -(2**31), 2**31, 2**70, 2.5, float("inf"), True, False, None],
    "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    "sets": [{1, 2}, frozenset([3]), set(), frozenset()],
    "text": ["", "a", "\xff", "\u20ac\U0001f600", "quote' \" \\ \n", "x" * 300],
    "bytes": [b"", b"a\x00\xff", b"x" * 300, bytearray(b"abc"), bytearray()],
    "dicts": OrderedDict([("b", {}), ("a", {"x": [], 5: 6, None: 1, (1, "a"): 2})]),
    "complex": 1 + 2j,
    "scalars": [np.float32(1.5), np.int64(-3), np.bool_(True)],
}


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.generic) else value


# ---------------------------------------------------------------- what is read
@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back_in_the_order_of_bytes_of_this_machine(name: str, protocol: int) -> None:
    array = ARRAYS[name]
    found = pickles.load(pickle.dumps({"w": array}, protocol), "f")["w"]
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=") and found.shape == array.shape and found.flags.writeable
    assert found.flags.f_contiguous == array.flags.f_contiguous


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", PLAIN)
def test_plain_data_come_back(name: str, protocol: int) -> None:
    found = pickles.load(pickle.dumps({"value": PLAIN[name]}, protocol), "f")["value"]
    assert found == PLAIN[name] and type(found) is type(PLAIN[name])


def test_the_names_of_numpy_before_version_2_are_known() -> None:
    data = pickle.dumps({"w": ARRAYS["floats"]}, 2).replace(b"numpy._core", b"numpy.core")
    np.testing.assert_array_equal(pickles.load(data, "f")["w"], ARRAYS["floats"])


def test_a_state_that_python_2_wrote_is_read() -> None:
    """Bytes are text there, one character for each."""
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I2\ntcnumpy\ndtype\n(S'f4'\nI0\nI1\ntR"
    array += b"(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\nS'\\x00\\x00\\x80?\\x00\\x00\\x00@'\ntb"
    found = pickles.load(b"(dS'w'\n" + array + b"sS'a'\nU\x02\xff'sS'n'\nL12345678901234567890L\ns.", "f")
    assert found["w"].tolist() == [1, 2] and found["w"].dtype == np.float32
    assert found["a"] == "\xff'" and found["n"] == 12345678901234567890


def test_a_value_that_occurs_twice_is_one_object() -> None:
    array = np.arange(3)
    found = pickles.load(pickle.dumps([array, array, {"again": array}], 4), "f")
    assert found[0] is found[1] is found[2]["again"]


def test_slices_of_a_large_parameter_are_put_together() -> None:
    state = {
        "UnpackBigParamInfor@@": {"w": {"OriginShape": (2, 3), "slices": ["w@@.0", "w@@.1"]}},
        "w@@.0": np.arange(4.0),
        "w@@.1": np.arange(4.0, 6.0),
    }
    found = pickles.load_state(pickle.dumps(state, 2), "f")
    assert list(found) == ["w"] and found["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


class _Tensor:
    """Pickled as Paddle 2.1 and later pickles its tensors."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


def test_tensors_of_paddle_2_stand_for_their_arrays() -> None:
    array = np.arange(3)
    state = {"a": _Tensor(tuple, (("linear_0.w_0", array),)), "b": _Tensor(eval, ("data", {"data": array}))}
    found = pickles.load_state(pickle.dumps(state, 2), "f")
    assert found["a"].tolist() == found["b"].tolist() == [0, 1, 2]


def test_reading_takes_no_more_memory_than_the_file_and_its_arrays() -> None:
    data = pickle.dumps({f"w{n}": np.full(1 << 18, n, np.float32) for n in range(8)}, 2)
    tracemalloc.start()
    found = pickles.load(data, "f")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < sum(array.nbytes for array in found.values()) + (5 << 20)


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("__import__('os').system('true')", "builtins.eval is called"),
        ("data.shape", "builtins.eval is called"),
    ],
)
def test_no_expression_is_evaluated(expression: str, what: str) -> None:
    data = pickle.dumps({"w": _Tensor(eval, (expression, {"data": np.zeros(1)}))}, 2)
    with pytest.raises(UnreadableError, match=what):
        pickles.load(data, "f")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x02cnumpy\nfromfile\n.",
        b"\x80\x02cbuiltins\ngetattr\n.",
        b"\x80\x02cfluidtool.io.pickles\npickle.loads\n.",
        b"\x80\x02cnumpy\nndarray\n)\x81.",
        b"\x80\x02(cnumpy\nndarray\no.",
        b"Pname\n.",
        b"\x80\x02X\x01\x00\x00\x00aQ.",
        b"\x80\x02\x82\x01.",
        b"\x80\x05\x97.",
        b"\x80\x02]}b.",
        b"\x80\x02ccollections\nOrderedDict\n)R}b.",
    ],
)
def test_a_pickle_that_does_more_than_data_do_is_unsafe(data: bytes) -> None:
    with pytest.raises(UnsafePickleError, match="executes nothing"):
        pickles.load(data, "f")


def test_an_array_of_objects_is_unsafe() -> None:
    with pytest.raises(UnsafePickleError, match="an array of Python objects"):
        pickles.load(pickle.dumps({"w": np.array([{}, None], dtype=object)}, 2), "f")


DTYPE = b"cnumpy\ndtype\nX\x02\x00\x00\x00f4\x89\x88\x87R"
STATE = b"(K\x03X\x01\x00\x00\x00<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"


@pytest.mark.parametrize(
    "body",
    [
        b"cnumpy\nndarray\nJ\xe8\x03\x00\x00\x85X\x02\x00\x00\x00f4\x86R",  # memory that nothing was written to
        ARRAY,  # an array of which nothing is said
        DTYPE,  # a data type is no data
        b"cnumpy\nndarray\n",
        DTYPE.replace(b"f4", b"V4"),
        DTYPE.replace(b"f4", b"S0"),
        DTYPE.replace(b"f4", b"f5"),
        DTYPE + STATE.replace(b"NNN", b"}NN"),
        DTYPE + STATE.replace(b"J\xff\xff\xff\xff", b"J\xff\xff\xff\x7f", 1),  # the size is not the writer's to choose
        ARRAY + b"(K\x01K\x02\x85" + DTYPE + STATE + b"\x89C\x04abcdtb",  # two floats, four bytes
        ARRAY + b"(K\x01J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86" + DTYPE + STATE + b"\x89C\x04abcdtb",
        ARRAY + b"(K\x01K\x00\x8a\x09" + bytes(8) + b"\x01\x86" + DTYPE + STATE + b"\x89C\x00tb",
        ARRAY + b"(K\x01K\x01\x85" + DTYPE + STATE + b"\x89NtbK\x01",
        b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R",
        b"cbuiltins\nset\n]]a\x85R",
        b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00utf-8\x86R",
        b"ccollections\nOrderedDict\nK\x05\x85R",
        b"K\x05)R",
        b"h\x05",
        b"N0",
        b"00",
        b"(",
        b"t",
        b"]NN\x86s",
        b"}K\x01u",
        b"}(K\x01u",
        b"})}s]]ss",
        b"}]Ns",
        b"\x8b\x00\x01\x00\x00" + bytes(256),
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc",
        b"T\xff\xff\xff\xffabc",
        b"X\x02\x00\x00\x00\xff\xff",
        b"V\\ud800\n",
        b"Iabc\n",
        b"L" + b"9" * 5000 + b"L\n",
        b"Fabc\n",
        b"Sabc\n",
        b"S'\\'\n",
        b"S'\\q'\n",
        b"Iabc",
        b"\xfe",
        b"\x80\x09N",
        b"NN",
    ],
)
def test_a_malformed_pickle_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableError, match="f cannot be read as a pickled state") as found:
        pickles.load(b"\x80\x02" + body + b".", "f")
    assert not isinstance(found.value, UnsafePickleError)


FLOAT32 = DataType("f4")
CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("_reconstruct", (Name("numpy", "ndarray"), (0,), b"b")),
    ("dtype", ("f4", 0, 1)),
    ("scalar", (FLOAT32, bytes(4))),
    ("_frombuffer", (bytes(4), FLOAT32, (1,), "C")),
    ("_frombuffer", (bytes(4), FLOAT32, (1,), "F", None)),
    ("_frombuffer", (bytes(4), FLOAT32, (1,), "K", (0,))),
    ("encode", ("a", "latin1")),
    ("bytearray", ("a", "latin1")),
    ("complex", (1.0, 2.0)),
    ("set", ([1],)),
    ("tuple", ([1],)),
    ("OrderedDict", ([("a", 1)],)),
    ("eval", ("data", {"data": np.zeros(2)})),
]


@pytest.mark.parametrize(
    ("name", "arguments", "place"),
    [(name, arguments, place) for name, arguments in CALLS for place in range(len(arguments))],
)
def test_an_array_in_the_place_of_an_argument_is_refused(name: str, arguments: tuple[Any, ...], place: int) -> None:
    construct(Name("", name), arguments)
    with pytest.raises(MalformedError):
        construct(Name("", name), (*arguments[:place], np.zeros(2), *arguments[place + 1 :]))


def test_an_array_in_a_state_is_refused() -> None:
    with pytest.raises(MalformedError):
        DataType("f4").build((3, np.zeros(2), None, None, None, -1, -1, 0))


@pytest.mark.parametrize("length", [0, 1, 2, 10, 50, 100])
def test_a_pickle_that_was_cut_is_refused(length: int) -> None:
    with pytest.raises(UnreadableError, match="truncated or corrupted"):
        pickles.load(pickle.dumps(ARRAYS, 4)[:length], "f")


# ---------------------------------------------------------------- budgets
def nested(count: int) -> bytes:
    return b"\x80\x02" + b"]" * count + b"a" * (count - 1) + b"."


def test_lists_may_be_nested_a_hundred_deep_and_no_deeper() -> None:
    assert pickles.load(nested(100), "f") is not None
    for count in (103, 100_000):
        with pytest.raises(UnreadableError, match="nested more than 100 deep"):
            pickles.load(nested(count), "f")


def test_a_value_that_holds_itself_is_refused() -> None:
    with pytest.raises(UnreadableError, match="contains itself"):
        pickles.load(b"\x80\x02]q\x00h\x00a.", "f")


def test_depth_counts_through_shared_values() -> None:
    data = b"\x80\x02]" + b"]" * 60 + b"a" * 59 + b"q\x00a" + b"]" * 60 + b"h\x00a" + b"a" * 59 + b"a."
    with pytest.raises(UnreadableError, match="nested more than 100 deep"):
        pickles.load(data, "f")


def test_values_that_are_shared_without_end_are_refused() -> None:
    data = b"\x80\x02]q\x000" + b"".join(b"](" + b"h%c" % n * 9 + b"eq%c0" % (n + 1) for n in range(9)) + b"h\x09."
    with pytest.raises(UnreadableError, match="shared so often"):
        pickles.load(data, "f")


@pytest.mark.parametrize("one", [b"\x8f", b"}", b"(", b"]\x85"])
def test_a_small_file_does_not_become_much_memory(one: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LEAST_MEMORY", 0)  # which small files may take
    with pytest.raises(UnreadableError, match="request much more memory than data of that size takes"):
        pickles.load(b"\x80\x04(" + one * 10_000 + b"t.", "f")


def test_arrays_that_share_their_bytes_are_refused() -> None:
    state = b"(K\x01M\xe8\x03\x85" + DTYPE + STATE + b"\x89B\xa0\x0f\x00\x00" + bytes(4000) + b"tq\x01"
    data = b"\x80\x02]" + ARRAY + state + b"ba" + (ARRAY + b"h\x01ba") * 3 + b"."
    with pytest.raises(UnreadableError, match="its arrays have more bytes than the whole file"):
        pickles.load(data, "f")


def test_keys_cannot_be_chosen_to_collide() -> None:
    collide = b"".join(b"\x8a\x09" + (n * (2**61 - 1)).to_bytes(9, "little") + b"N" for n in range(2, 100))
    with pytest.raises(UnreadableError, match="bits is used as a key"):
        pickles.load(b"\x80\x02}(" + collide + b"u.", "f")


def test_a_deep_tuple_is_no_key() -> None:
    with pytest.raises(UnreadableError, match="a tuple is used as a key"):
        pickles.load(b"\x80\x02})" + b"\x85" * 100_000 + b"Ns.", "f")


# ---------------------------------------------------------------- states
@pytest.mark.parametrize(
    "state",
    [
        [1, 2],
        {1: np.zeros(1)},
        {"StructuredToParameterName@@": 5},
        {"StructuredToParameterName@@": {"w": 5}},
        {"UnpackBigParamInfor@@": 5},
        {"UnpackBigParamInfor@@": {"w": 5}},
        {"UnpackBigParamInfor@@": {"w": {"slices": 3, "OriginShape": 4}}},
        {"UnpackBigParamInfor@@": {"w": {"slices": [], "OriginShape": ()}}},
        {"UnpackBigParamInfor@@": {"w": {"slices": ["a"], "OriginShape": (1,)}}},
        {"UnpackBigParamInfor@@": {"w": {"slices": ["a"], "OriginShape": (2,)}}, "a": np.zeros(1)},
        {"UnpackBigParamInfor@@": {"w": {"slices": ["a"], "OriginShape": (-1,)}}, "a": np.zeros(1)},
        {"UnpackBigParamInfor@@": {"w": {"slices": ["a", "a"], "OriginShape": (2,)}}, "a": np.zeros(1)},
    ],
)
def test_a_state_that_is_none_is_refused(state: Any) -> None:
    with pytest.raises(UnreadableError, match=r"^f "):
        pickles.load_state(pickle.dumps(state, 2), "f")


def test_every_operation_of_pickles_is_carried_out_or_refused() -> None:
    refused = {op.name for op in pickletools.opcodes} - set(machine.STEPS) - {"STOP"}
    assert refused == {
        *("PERSID", "BINPERSID", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER")
    }
