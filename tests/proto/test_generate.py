"""The committed protobuf modules are what the pinned generators make of the schemas."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from fluidtool.proto import framework_pb2
from fluidtool.proto.generate import RUNTIME_CHECK, differences, generate
from tests.support.checkout import ROOT

FOLDER = ROOT / "proto"
WITHOUT_GENERATORS = find_spec("grpc_tools") is None or find_spec("mypy_protobuf") is None


@pytest.mark.skipif(WITHOUT_GENERATORS, reason="not run: the generators are in the dev extra; .ci/run has them")
def test_committed_modules_are_current() -> None:
    assert differences(FOLDER, generate(FOLDER)) == []


def test_changed_module_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a_pb2.py").write_text("old\n")
    assert differences(tmp_path, {"a_pb2.py": "new\n"})[-2:] == ["-old", "+new"]


def test_module_that_was_never_written_is_reported(tmp_path: Path) -> None:
    assert differences(tmp_path, {"a_pb2.py": "new\n"})[-1] == "+new"


def test_module_without_schema_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a_pb2.py").write_text("old\n")
    assert differences(tmp_path, {})[-1] == "-old"


def test_module_that_agrees_is_not_reported(tmp_path: Path) -> None:
    (tmp_path / "a_pb2.py").write_text("same\n")
    assert differences(tmp_path, {"a_pb2.py": "same\n"}) == []


def test_generated_code_does_not_refuse_other_protobuf_runtimes() -> None:
    for name in ("framework_pb2.py", "send_recv_pb2.py"):
        assert "runtime_version" not in (FOLDER / name).read_text()


def test_nothing_but_the_runtime_check_is_taken_out() -> None:
    text = (
        "# Protobuf Python Version: 7.35.1\nimport a\n"
        "from google.protobuf import runtime_version as _runtime_version\n"
        "_runtime_version.ValidateProtobufRuntimeVersion(\n    _runtime_version.Domain.PUBLIC,\n    7\n)\nimport b\n"
    )
    assert RUNTIME_CHECK.sub("", text) == "import a\nimport b\n"


def test_schema_stands_under_its_import_path() -> None:
    assert framework_pb2.__name__ == "fluidtool.proto.framework_pb2"
