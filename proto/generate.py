"""Generate the `*_pb2.py` and `*_pb2.pyi` files from the `.proto` files beside this script.

Usage: python proto/generate.py [--check]

Needs the `dev` extra, which pins the two generators (grpcio-tools and mypy-protobuf).
"""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# Where the files stand in the installed package: the import path, and the file name in protobuf's descriptor pool.
VIRTUAL_FOLDER = "fluidtool/proto"
# The compiler writes its own version into the code and lets it refuse older protobuf runtimes. Nothing these schemas
# use depends on that version: pyproject.toml states the range of runtimes.
RUNTIME_CHECK = re.compile(
    r"^# NO CHECKED-IN PROTOBUF GENCODE\n"
    r"|^# Protobuf Python Version: .*\n"
    r"|^from google\.protobuf import runtime_version as _runtime_version\n"
    r"|^_runtime_version\.ValidateProtobufRuntimeVersion\(\n(?: .*\n)*\)\n",
    re.MULTILINE,
)


def generate(folder: Path) -> dict[str, str]:
    """Compile every `.proto` file of `folder`; return the text of each generated file by its name."""
    plugin = shutil.which("protoc-gen-mypy", path=str(Path(sys.executable).parent)) or shutil.which("protoc-gen-mypy")
    if plugin is None:
        raise SystemExit("protoc-gen-mypy is not installed: pip install -e '.[dev]'")
    with tempfile.TemporaryDirectory() as out:
        command = [
            *(sys.executable, "-m", "grpc_tools.protoc"),
            f"-I{VIRTUAL_FOLDER}={folder}",
            f"--plugin=protoc-gen-mypy={plugin}",
            f"--python_out={out}",
            f"--mypy_out=quiet:{out}",
            *(f"{VIRTUAL_FOLDER}/{source.name}" for source in sorted(folder.glob("*.proto"))),
        ]
        subprocess.run(command, check=True)
        generated = sorted(Path(out, VIRTUAL_FOLDER).iterdir())
        return {path.name: RUNTIME_CHECK.sub("", path.read_text(encoding="utf-8")) for path in generated}


def differences(folder: Path, generated: dict[str, str]) -> list[str]:
    """Lines of a unified diff between the files in `folder` and what they should be; empty when they agree."""
    lines: list[str] = []
    for name in sorted(generated.keys() | {path.name for path in folder.glob("*_pb2.py*")}):
        path = folder / name
        found = path.read_text(encoding="utf-8") if path.exists() else ""
        expected = generated.get(name, "")
        lines += difflib.unified_diff(
            found.splitlines(), expected.splitlines(), name, f"{name} (generated)", lineterm=""
        )
    return lines


def main() -> int:
    """Write the generated files, or with `--check` only compare them; 1 when they differ."""
    parser = argparse.ArgumentParser(description="Generate the protobuf modules of fluidtool.")
    parser.add_argument("--check", action="store_true", help="compare with the committed files and write nothing")
    check = parser.parse_args().check
    generated = generate(FOLDER)
    if not check:
        for name, text in generated.items():
            (FOLDER / name).write_text(text, encoding="utf-8")
        return 0
    lines = differences(FOLDER, generated)
    if lines:
        print(*(line[:200] for line in lines), sep="\n")
        print("The committed protobuf modules are stale: run python proto/generate.py", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
