"""The plain enumerations say what the generated code says."""

from __future__ import annotations

import subprocess
import sys

from fluidtool.proto import framework_pb2
from fluidtool.proto.enums import AttrType, VarType
from tests.support.checkout import child_environment


def test_attribute_types() -> None:
    assert {item.name: item.value for item in AttrType} == dict(framework_pb2.AttrType.items())


def test_variable_types() -> None:
    assert {item.name: item.value for item in VarType} == dict(framework_pb2.VarType.Type.items())


def test_they_do_not_import_protobuf_or_numpy() -> None:
    code = "import sys, fluidtool.proto.enums; print(sorted({'google.protobuf', 'numpy'} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=child_environment()
    )
    assert done.stdout.strip() == "[]"
