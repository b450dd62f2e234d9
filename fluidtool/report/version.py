"""The document of `version`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NotRequired, TypedDict

from fluidtool.report.common import NativeEngine


class Engines(TypedDict):
    """The engines, and whether they are available."""

    in_use: Annotated[str, "the engine that computes by default: native or numpy"]
    native: Annotated[NativeEngine, "the native engine"]
    numpy: Annotated[str, "what numpy computes"]
    cupy: Annotated[str, "the GPUs, or why there are none"]
    cuda: Annotated[str, "whether regions run as CUDA graphs, and why"]
    onnxruntime: Annotated[str, "its version, or how to install it"]
    openvino: Annotated[str, "its version, or how to install it"]


class VersionReport(TypedDict):
    """The version of fluidtool, and of what it uses."""

    schema: Annotated[Literal["fluidtool.version/1"], "the kind of this document"]
    fluidtool: Annotated[str, "the version of fluidtool"]
    python: NotRequired[Annotated[str, "the version and path of Python (--verbose)"]]
    platform: NotRequired[Annotated[str, "the operating system (--verbose)"]]
    packages: NotRequired[Annotated[Mapping[str, str], "the versions of installed packages (--verbose)"]]
    engines: NotRequired[Annotated[Engines, "the engines (--verbose)"]]
