"""Every operator's schema is the one that Paddle 1.8.5 registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.ops.index import EXCLUDED, MODULES
from fluidtool.ops.registry import get_op
from fluidtool.ops.schema import AttrSpec, Slot, slots
from tests.support.tables import table

TABLE = table("op_table_185")
IMPLEMENTED = sorted(set(TABLE) & set(MODULES))


def slots_of(entries: list[dict[str, Any]]) -> list[Slot]:
    return [Slot(e["name"], e["duplicable"], e["dispensable"], e["intermediate"]) for e in entries]


def without_later(declared: tuple[Slot, ...]) -> list[Slot]:
    """The slots as they were before Paddle 2.x."""
    return [
        Slot(
            slot.name,
            slot.duplicable and "*" not in slot.later,
            slot.dispensable and "?" not in slot.later,
            slot.intermediate,
        )
        for slot in declared
        if "+" not in slot.later
    ]


@pytest.mark.parametrize("op_type", IMPLEMENTED)
def test_slots_are_those_of_the_table(op_type: str) -> None:
    info, entry = get_op(op_type), TABLE[op_type]
    assert without_later(info.inputs) == slots_of(entry["inputs"])
    assert without_later(info.outputs) == slots_of(entry["outputs"])


def test_marks_of_slots() -> None:
    assert slots("X* Bias? XShape~ Scale/? Index/+*") == (
        Slot("X", duplicable=True),
        Slot("Bias", dispensable=True),
        Slot("XShape", intermediate=True),
        Slot("Scale", dispensable=True, later="?"),
        Slot("Index", duplicable=True, dispensable=True, later="+*"),
    )


@pytest.mark.parametrize("op_type", IMPLEMENTED)
def test_attributes_are_those_of_the_table(op_type: str) -> None:
    declared, expected = get_op(op_type).attrs, {attr["name"]: attr for attr in TABLE[op_type]["attrs"]}
    assert sorted(declared) == sorted(expected)
    for name, attr in expected.items():
        spec = declared[name]
        assert spec.type.name == attr["type"], name
        assert spec.required == ("default" not in attr), name
        if "default" in attr:
            assert_same_default(spec, attr["default"], name)


def assert_same_default(spec: AttrSpec, default: Any, name: str) -> None:
    if isinstance(default, (float, list)) and spec.type.name in ("FLOAT", "FLOATS"):
        np.testing.assert_array_equal(np.float32(spec.default), np.float32(default), err_msg=name)
    else:
        assert spec.default == default, name


def test_nothing_of_the_table_is_missing_but_the_listed_exclusions() -> None:
    assert sorted(set(TABLE) - set(MODULES) - set(EXCLUDED)) == []


def test_every_exclusion_has_a_reason_and_is_not_implemented() -> None:
    assert all(len(reason) > 20 for reason in EXCLUDED.values())
    assert sorted(set(EXCLUDED) & set(MODULES)) == []
