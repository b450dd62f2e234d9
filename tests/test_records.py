"""`fluidtool.records.dataclass` makes what `dataclasses.dataclass` makes."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

import fluidtool.ops
from fluidtool import records

MAKERS: list[Callable[..., Any]] = [dataclasses.dataclass, records.dataclass]
OTHERS = ("/records.py", "/generate_abi.py", "/fleet/collective.py", "/compat/predictor.py")


@records.dataclass(frozen=True, slots=True)
class Point:
    """Pickled by its name, so that it stands here."""

    x: int
    y: int = 2
    seen: list[int] = field(default_factory=list, repr=False, compare=False)


@pytest.fixture(params=MAKERS, ids=["dataclasses", "records"])
def dataclass(request: pytest.FixtureRequest) -> Any:
    return request.param


def point(dataclass: Any, **options: bool) -> Any:
    class Point:
        x: int
        y: int = 2
        seen: list[int] = field(default_factory=list, repr=False, compare=False)

    return dataclass(**options)(Point)


def test_values_come_by_position_by_name_and_from_defaults(dataclass: Any) -> None:
    made = point(dataclass)(1, seen=[3])
    assert (made.x, made.y, made.seen) == (1, 2, [3])


def test_each_object_gets_a_new_value_from_a_factory(dataclass: Any) -> None:
    cls = point(dataclass)
    assert cls(1).seen is not cls(1).seen


def test_a_missing_value_is_a_type_error(dataclass: Any) -> None:
    with pytest.raises(TypeError, match="x"):
        point(dataclass)()


def test_compared_fields_decide_equality(dataclass: Any) -> None:
    cls = point(dataclass)
    assert cls(1, 2, [1]) == cls(1, 2, [2])
    assert cls(1) != cls(2)
    assert cls(1) != (1, 2)


def test_objects_of_two_classes_differ(dataclass: Any) -> None:
    assert point(dataclass)(1) != point(dataclass)(1)


def test_frozen_objects_are_keys_by_value(dataclass: Any) -> None:
    cls = point(dataclass, frozen=True, slots=True)
    assert {cls(1): "a"}[cls(1)] == "a"


def test_objects_that_change_are_no_keys(dataclass: Any) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(point(dataclass)(1))


def test_without_equality_an_object_equals_itself_alone(dataclass: Any) -> None:
    cls = point(dataclass, eq=False)
    one = cls(1)
    assert one == one and one != cls(1) and len({one, cls(1)}) == 2


def test_a_frozen_object_refuses_changes(dataclass: Any) -> None:
    made = point(dataclass, frozen=True)(1)
    with pytest.raises(FrozenInstanceError, match="x"):
        made.x = 2
    with pytest.raises(FrozenInstanceError, match="x"):
        del made.x
    assert made.x == 1


def test_slots_leave_no_dictionary(dataclass: Any) -> None:
    made = point(dataclass, slots=True)(1)
    with pytest.raises(AttributeError):
        made.z = 1


def test_the_text_names_the_shown_fields(dataclass: Any) -> None:
    assert repr(point(dataclass)(1)).endswith("Point(x=1, y=2)")


def test_written_methods_stay(dataclass: Any) -> None:
    @dataclass(frozen=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

    assert repr(Named("a")) == "a"


def test_post_init_runs_after_all_fields(dataclass: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Sum:
        a: int
        b: int = 1
        both: int = field(init=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "both", self.a + self.b)

    assert Sum(2).both == 3


def test_fields_and_replace_know_the_class(dataclass: Any) -> None:
    made = point(dataclass, frozen=True, slots=True)(1)
    assert [each.name for each in fields(made)] == ["x", "y", "seen"]
    assert replace(made, y=5).y == 5


def test_patterns_match_by_position(dataclass: Any) -> None:
    assert point(dataclass).__match_args__ == ("x", "y", "seen")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_frozen_objects_with_slots_are_copied_and_pickled(again: Callable[[Point], Point]) -> None:
    made = again(Point(1, seen=[4]))
    assert made == Point(1) and made.seen == [4]


def test_a_field_of_a_base_comes_first(dataclass: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Base:
        x: int

    @dataclass(frozen=True, slots=True)
    class Derived(Base):
        y: int

    made = Derived(1, 2)
    assert (made.x, made.y, made) == (1, 2, Derived(1, 2))


def test_every_module_makes_its_records_here() -> None:
    """Also a module that no run imports today may be imported by one tomorrow."""
    imported = re.compile(r"^from dataclasses import .*\bdataclass\b", re.MULTILINE)
    folders = [Path(package.__file__).parent for package in (fluidtool, fluidtool.ops)]
    paths = (path for folder in folders for path in folder.rglob("*.py"))
    found = {path.as_posix() for path in paths if imported.search(path.read_text("utf-8"))}
    assert [path for path in found if not path.endswith(OTHERS)] == []
