"""Who is here to be measured: fluidtool, the peers of this interpreter, and Paddle in the interpreters named."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.rounds import Engine

OURS = "fluidtool"
NUMPY = Engine(
    f"{OURS} numpy", (sys.executable, "-m", "benchmarks.inference_worker"), (("FLUIDTOOL_NATIVE", "0"),), rare=True
)
PADDLES = (("paddle1", "PADDLE_1"), ("paddle2", "PADDLE_2"))
WORKER = str(Path(__file__).with_name("peer_worker.py"))


def engines(wanted: Sequence[str] = ()) -> tuple[list[Engine], dict[str, str]]:
    """(the engines that may be there, why others are not). `wanted`: only these beside ours; none means all."""
    ours = (sys.executable, "-m", "benchmarks.inference_worker")
    found = [Engine(OURS, ours), NUMPY]
    missing: dict[str, str] = {}
    if why := absence_of_native():
        missing["native engine"] = why
    else:
        found.append(Engine(f"{OURS} bf16", (*ours, "--precision", "bf16"), precision="bf16"))
        found.append(Engine(f"{OURS} int8", (*ours, "--precision", "int8"), precision="int8"))
    for name in ("onnxruntime", "openvino"):
        if find_spec(name) is None or find_spec("onnx") is None:
            missing[name] = f"not installed: pip install 'fluidtool[{name}]' onnx"
            continue
        found.append(Engine(name, (sys.executable, WORKER, name)))
        if find_spec("onnxruntime") is not None:  # whose quantization makes the file
            found.append(Engine(f"{name} int8", (sys.executable, WORKER, f"{name}_int8"), precision="int8"))
        if name == "openvino":
            found.append(Engine("openvino bf16", (sys.executable, WORKER, "openvino_bf16"), precision="bf16"))
    for name, variable in PADDLES:
        python = os.environ.get(variable)
        if not python:
            missing[name] = f"{variable} names no interpreter that has it"
            continue
        found.append(Engine(name, (python, WORKER, name), rare=True))
        found.append(Engine(f"{name} mkldnn", (python, WORKER, f"{name}_mkldnn")))
    if wanted:
        found = [engine for engine in found if engine.name in wanted or engine.name == OURS]
    return found, missing


def absence_of_native() -> str:
    """Why the native engine is not there; '' where it is."""
    from fluidtool.runtime.engines.native.library import absence

    return absence()


def processors() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """What the numbers were measured on; no names of people or folders."""
    from fluidtool.runtime.engines.native.library import library

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    native = library()
    versions = {}
    for name in ("fluidtool", "numpy", "onnxruntime", "openvino"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "processor": models[0] if models else platform.processor(),
        "processors": processors(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "native": None if native is None else native.instructions,
        "versions": versions,
    }
