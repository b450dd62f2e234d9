"""Endpoints as the user writes them."""

from __future__ import annotations

import pytest

from fluidtool.distribute.endpoints import host_and_port, parse_endpoints
from fluidtool.errors import ArgumentTypeError, UsageError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("127.0.0.1:6174", ("127.0.0.1:6174",)),
        ("a:1, b:2", ("a:1", "b:2")),
        (["a:1", "b:65535"], ("a:1", "b:65535")),
        ("[::1]:6174", ("[::1]:6174",)),
    ],
)
def test_endpoints_are_text_or_lists(given: object, expected: tuple[str, ...]) -> None:
    assert parse_endpoints(given, "pservers") == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["", "a", "a:", ":1", "a:0", "a:65536", "a:b", "a:1,", "a b:1", "a:-1"])
def test_a_malformed_endpoint_is_named(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"pservers must list host:port, such as .*, found '.*'"):
        parse_endpoints(wrong, "pservers")


def test_an_endpoint_given_twice_is_named() -> None:
    with pytest.raises(UsageError, match=r"pservers names b:2 twice; give each process a separate endpoint"):
        parse_endpoints("a:1,b:2,b:2", "pservers")


def test_no_endpoint_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="pservers names no endpoint"):
        parse_endpoints([], "pservers")


@pytest.mark.parametrize("wrong", [6174, None, [6174]])
def test_other_types_are_refused(wrong: object) -> None:
    with pytest.raises(ArgumentTypeError, match="pservers takes endpoints"):
        parse_endpoints(wrong, "pservers")  # type: ignore[arg-type]


def test_host_and_port_for_a_connection() -> None:
    assert host_and_port("127.0.0.1:6174") == ("127.0.0.1", 6174)
    assert host_and_port("[::1]:6174") == ("::1", 6174)
