"""The native engine under sanitizers: python -m tests.runtime.native.sanitize address|thread [MODULE ARGUMENT ...].

Builds the library with them into a temporary folder and runs the tests of this folder on it, or a module (`tests.fuzz shapes
--minutes 3`). `address` also finds undefined behavior. Without a compiler, or without the sanitizer's library, it says so
and does nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fluidtool.runtime.engines.native.build import build
from tests.support.checkout import child_environment

FLAGS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "thread": ("-fsanitize=thread",),
}
RUNTIMES = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
# What Python itself leaks and races is not ours: leaks are off, and ThreadSanitizer sees our library only.
OPTIONS = {
    "address": {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=4096"},
    "thread": {"TSAN_OPTIONS": "ignore_noninstrumented_modules=1"},
}
# A sanitizer keeps memory for the memory that it watches.
TESTS = {"address": "not fork and not takes_no_memory", "thread": "residual or once or batch or lstm_cut"}


def runtime_library(name: str) -> str:
    """The path of a sanitizer's library; empty when the compiler has none."""
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return found if os.path.isabs(found) else ""


def main(kind: str, *module: str) -> int:
    try:
        libraries = [runtime_library(name) for name in RUNTIMES[kind]]
    except OSError:
        libraries = [""]
    if not all(libraries):
        print(f"not run: there is no gcc with {' and '.join(RUNTIMES[kind])}")
        return 0
    processes = ("-n", "2") if kind == "address" else ()  # a process of its own is what few tests are worth
    tests = ("pytest", "-q", "-p", "no:cacheprovider", *processes, "tests/runtime/native", "-k", TESTS[kind])
    with tempfile.TemporaryDirectory() as folder:
        path = build(
            Path(folder, "engine.so"),
            (*FLAGS[kind], "-g", "-O1", "-fno-omit-frame-pointer"),
            wanted="all" if module else "",
        )
        environment = child_environment(FLUIDTOOL_NATIVE=str(path), LD_PRELOAD=":".join(libraries), **OPTIONS[kind])
        return subprocess.run([sys.executable, "-m", *(module or tests)], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
