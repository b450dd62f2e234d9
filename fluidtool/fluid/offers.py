"""The message for a name of Paddle that is not available: its module, similar names, and a short list of names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from fluidtool.errors import NotOfferedError

LISTED = 12

INSTEAD = {
    "paddle.fluid.incubate.fleet.parameter_server.pslib": "PSLIB, Baidu's own server, is not supported; "
    "fleet.parameter_server.distribute_transpiler has the same interface",
    "paddle.fluid.incubate.fleet.utils.fleet_util": "its FleetUtil works with PSLIB, Baidu's own server",
    "paddle.distributed.launch": "'fluidtool launch SCRIPT' starts the processes of a job",
    "paddle.fluid.dygraph": "dynamic graphs are not supported; build a program and run it with fluid.Executor",
}

INSTEAD_OF_ANY = {  # by the module that lacks the name
    "paddle.v2": "the API before Fluid is not supported, except what Fluid shared with it: batch, dataset, fluid, image, "
    "minibatch, plot and reader",
}


def not_offered(module: str, name: str, offered: Iterable[str]) -> str:
    """The message for `module.name`."""
    instead = INSTEAD.get(f"{module}.{name}", INSTEAD_OF_ANY.get(module))
    if instead is not None:
        return f"{module} has no {name!r} in fluidtool: {instead}"
    names = sorted(set(offered), key=lambda each: (each.lower(), each))
    near = get_close_matches(name, names, n=3, cutoff=0.65)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    if not names:
        return f"{module} has no {name!r} in fluidtool{hint}"
    more = f", … ({len(names)} names in all, see dir({module}))" if len(names) > LISTED else ""
    return f"{module} has no {name!r} in fluidtool{hint} It offers {', '.join(names[:LISTED])}{more}"


def refuse_other_names(module: str, offered: Iterable[str]) -> Callable[[str], Any]:
    """A module-level `__getattr__` that raises NotOfferedError with that message, for dunder names AttributeError."""

    def refuse(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise NotOfferedError(not_offered(module, name, offered))

    return refuse


def defined_in(names: Mapping[str, Any]) -> list[str]:
    """The public names of a module without `__all__`, from its `globals()`: classes and functions of fluidtool.fluid."""
    return [
        name
        for name, value in names.items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("fluidtool.fluid")
    ]
