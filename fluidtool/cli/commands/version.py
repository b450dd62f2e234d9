"""`fluidtool version`."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Annotated, Any

import typer

from fluidtool._version import __version__
from fluidtool.cli.options.outputs import Json
from fluidtool.cli.render import fields, show, show_json
from fluidtool.cli.views.engines import delegate_texts, native_fields, native_text

PACKAGES = ("numpy", "protobuf", "typer", "rich")
OPTIONAL = ("cupy", "ml_dtypes", "grpcio", "mpi4py", "ray", "onnx", "onnxruntime", "openvino", "matplotlib")


def version(
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also show Python, the packages in use, the engines and their devices."),
    ] = False,
    json: Json = False,
) -> None:
    """Show the version of fluidtool."""
    found: dict[str, Any] = {"fluidtool": __version__}
    if verbose:
        found |= {"Python": f"{platform.python_version()} ({sys.executable})", "platform": platform.platform()}
        found |= {name: text for name in PACKAGES if (text := _installed(name))}
        found |= {name: text for name in OPTIONAL if (text := _installed(name))}
        native = native_fields()
        found["engine in use"] = "native" if native["in_use"] else "numpy"
        found["engine native"] = native if json else native_text(native)
        found |= {"engine numpy": "every operator, on the CPU", "engine cupy": _gpus()}
        found |= delegate_texts()
    if json:
        show_json(found)
    elif verbose:
        show(fields("", found.items()))
    else:
        print(f"fluidtool {__version__}")


def _installed(package: str) -> str:
    """The version of an installed package, or ''; cupy is published under one name for each version of CUDA."""
    for name in (package, "cupy-cuda12x", "cupy-cuda13x") if package == "cupy" else (package,):
        try:
            return installed_version(name)
        except PackageNotFoundError:
            continue
    return ""


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
