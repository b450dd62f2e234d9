"""Run by every Python that starts below `fluidtool exec`: the first import of paddle brings in fluidtool's.

It stands in the way of another `sitecustomize`, which it therefore runs. Pythons too old for fluidtool are left alone.
"""

import os
import sys
from importlib import import_module
from typing import Any


class _Waiting:
    """Waits for the first import of paddle; importing fluidtool takes time, which other processes need not spend."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """The spec of fluidtool's paddle; None for all other modules."""
        if fullname != "paddle":
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        if find_spec("fluidtool") is None:
            sys.path.append(os.environ["FLUIDTOOL_HOME"])
        from fluidtool.compat.children import begin

        begin()
        return find_spec(fullname)


def _run_the_other() -> None:
    """Import the `sitecustomize` that this one hides, if there is one."""
    here, me = os.path.dirname(os.path.abspath(__file__)), sys.modules.pop(__name__, None)
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    try:
        import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if me is not None:
            sys.modules[__name__] = me


if sys.version_info >= (3, 11) and "FLUIDTOOL_CHILDREN" in os.environ:
    sys.meta_path.insert(0, _Waiting())
    _run_the_other()
