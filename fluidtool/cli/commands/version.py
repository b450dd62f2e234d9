"""`fluidtool version`."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING, Annotated

import typer

from fluidtool._version import __version__
from fluidtool.cli.options.outputs import Json
from fluidtool.cli.render import fields, show, show_json
from fluidtool.cli.views.engines import delegate_texts, native_fields, native_text

if TYPE_CHECKING:
    from fluidtool.report.version import Engines, VersionReport

PACKAGES = ("numpy", "protobuf", "typer", "rich")
OPTIONAL = (
    "cupy", "nvmath-python", "nvidia-cudnn-frontend", "ml_dtypes", "grpcio", "mpi4py", "ray", "onnx", "onnxruntime", "openvino",
    "matplotlib",
)  # fmt: skip


def version(
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also show Python, the packages in use, the engines and their devices."),
    ] = False,
    json: Json = False,
) -> None:
    """Show the version of fluidtool."""
    found: VersionReport = {"schema": "fluidtool.version/1", "fluidtool": __version__}
    if verbose:
        found["python"] = f"{platform.python_version()} ({sys.executable})"
        found["platform"] = platform.platform()
        found["packages"] = {name: text for name in (*PACKAGES, *OPTIONAL) if (text := _installed(name))}
        found["engines"] = _engines()
    if json:
        show_json(found)
    elif verbose:
        show(fields("", _rows(found)))
    else:
        print(f"fluidtool {__version__}")


def _engines() -> Engines:
    native, delegates = native_fields(), delegate_texts()
    return {
        "in_use": "native" if native["in_use"] else "numpy",
        "native": native,
        "numpy": "every operator, on the CPU",
        "cupy": _gpus(),
        "cuda": _cuda(),
        "onnxruntime": delegates["onnxruntime"],
        "openvino": delegates["openvino"],
    }


def _rows(found: VersionReport) -> Iterator[tuple[str, str]]:
    """The document as names and texts."""
    yield "fluidtool", found["fluidtool"]
    yield "Python", found["python"]
    yield "platform", found["platform"]
    yield from found["packages"].items()
    engines = found["engines"]
    yield "engine in use", engines["in_use"]
    yield "engine native", native_text(engines["native"])
    for name in ("numpy", "cupy", "cuda", "onnxruntime", "openvino"):
        yield f"engine {name}", engines[name]


def _installed(package: str) -> str:
    """The version of an installed package, or ''; cupy is published under one name for each version of CUDA."""
    for name in (package, "cupy-cuda12x", "cupy-cuda13x") if package == "cupy" else (package,):
        try:
            return installed_version(name)
        except PackageNotFoundError:
            continue
    return ""


def _cuda() -> str:
    """Whether regions run on a GPU, and why."""
    try:
        import_module("cupy")
    except ImportError:
        return "not in use, since cupy is not installed, or cannot be loaded"
    from fluidtool.runtime.engines.cuda.engine import state

    return state()


def _gpus() -> str:
    """What the cupy engine finds on this machine."""
    try:
        import cupy
    except ImportError:
        return "not installed (pip install 'fluidtool[gpu-cuda12]' or 'fluidtool[gpu-cuda13]')"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        names = [cupy.cuda.runtime.getDeviceProperties(index)["name"].decode() for index in range(count)]
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no usable GPU ({error})"
    return ", ".join(f"gpu:{index} {name}" for index, name in enumerate(names)) or "no GPU"
