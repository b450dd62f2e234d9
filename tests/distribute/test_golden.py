"""Every role's programs are those of real Paddle 1.8.5, operator by operator, attribute by attribute."""

from __future__ import annotations

import pytest

from tests.distribute.golden import cases, compare, siphash


@pytest.mark.parametrize("case", cases())
def test_programs_are_those_of_real_paddle(case: str) -> None:
    assert list(compare(case)) == []


def test_the_hash_is_that_of_python_3_7() -> None:
    # PYTHONHASHSEED=0 python3.7 -c 'print(hash("fc_0.w_0"), hash("12345678"))'
    assert [siphash(b"fc_0.w_0"), siphash(b"12345678")] == [-5620013543008512343, 6766637294834280856]
