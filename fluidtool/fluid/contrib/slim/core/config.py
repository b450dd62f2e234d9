"""Strategies from a YAML file (Paddle 1.8.5 contrib/slim/core/config.py).

Sections `pruners`, `quantizers`, `distillers`, `controllers` and `strategies` make objects: a name, `class`, and arguments, in
which the name of an earlier object stands for it. `compressor` has `epoch`, `strategies` and paths; `include` lists further files.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fluidtool.errors import DependencyError, UsageError
from fluidtool.fluid.contrib.slim import distillation, nas, prune, quantization, searcher
from fluidtool.fluid.contrib.slim.strategy import Strategy

__all__ = ["ConfigFactory"]

SECTIONS = ("pruners", "quantizers", "distillers", "strategies", "controllers")
SETTINGS = ("init_model", "checkpoint_path", "eval_epoch")


class ConfigFactory:
    """The objects of a file by name in `instances`, and the settings of the Compressor in `compressor`."""

    def __init__(self, config: str) -> None:
        self.instances: dict[str, Any] = {}
        self.compressor: dict[str, Any] = {}
        self.version: int | None = None
        self._parse_config(config)

    def instance(self, name: str) -> Any:
        """An object by its name, None if there is none."""
        return self.instances.get(name)

    def _parse_config(self, config: str) -> None:
        for key, value in _read(config).items():
            if key == "version" and self.version is None:
                self.version = int(value)
            elif key in SECTIONS:
                for name, attrs in value.items():
                    if name not in self.instances:
                        self.instances[name] = self._made(name, attrs)
            elif key == "compressor":
                self._take_settings(value)
            elif key == "include":
                for path in value:
                    self._parse_config(path.strip())

    def _take_settings(self, given: Mapping[str, Any]) -> None:
        named = [self.instances.get(name) for name in given.get("strategies", ())]
        kept = {name: given[name] for name in SETTINGS if name in given}
        self.compressor = {"strategies": named, "epoch": given["epoch"], **kept}

    def _made(self, name: str, attrs: Mapping[str, Any]) -> Any:
        kind = _class(name, attrs)
        wanted = inspect.signature(kind).parameters
        return kind(**{key: self._value(value) for key, value in attrs.items() if key in wanted})

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.instances.get(item, item) if isinstance(item, str) else item for item in value]
        if not isinstance(value, str):
            return value
        return None if value.lower() == "none" else self.instances.get(value, value)


def _class(name: str, attrs: Mapping[str, Any]) -> type:
    """The class that an entry names; raises UsageError."""
    offered = {"Strategy": Strategy}
    for module in (prune, quantization, distillation, searcher, nas):
        offered |= {each: vars(module)[each] for each in module.__all__ if isinstance(vars(module).get(each), type)}
    if attrs.get("class") not in offered:
        raise UsageError(f"{name} has class {attrs.get('class')!r}; expected one of {', '.join(sorted(offered))}")
    return offered[attrs["class"]]


def _read(path: str) -> dict[str, Any]:
    """The sections of a file, in order; raises DependencyError without PyYAML, UsageError for what has none."""
    if find_spec("yaml") is None:
        raise DependencyError("the configuration of a Compressor is YAML: pip install 'fluidtool[slim]', or PyYAML")
    import yaml

    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} has no sections such as strategies and compressor")
    return found
