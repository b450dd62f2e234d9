"""Runs a program in real Paddle: `PYTHON paddle_script.py FOLDER`. Imports nothing of fluidtool; for Python 3.6 and later.

FOLDER has program.pb, values.npz (parameters and feeds as a0, a1, …) and job.json: {"set": [{"name", "key", "lod", "rows",
"height"}], "get": [[name, whether it is a SelectedRows]]}; LoDs are lengths. Written are found.npz and found.json:
{"version": text, "found": [{"name", "key", "lod", "rows", "height"}]}, where LoDs are offsets; or {"import": text}, or {"error":
text}. All values that are fed, computed and read are persistable variables of the global scope.
"""

import json
import os
import sys
import traceback
import zlib
from typing import Any, Dict

zlib.decompress(zlib.compress(b"a"))  # Paddle 2.6.2 wants zlib loaded before itself

import numpy as np  # noqa: E402


def modules() -> Any:
    """(paddle, core, the class Program, the class Executor, the function global_scope) of any version since 1.0."""
    import paddle  # type: ignore[import-not-found]

    if hasattr(paddle, "enable_static"):
        paddle.enable_static()
    if hasattr(paddle, "static"):
        try:
            from paddle.base import core  # type: ignore[import-not-found]
        except ImportError:
            from paddle.fluid import core  # type: ignore[import-not-found]
        return paddle, core, paddle.static.Program, paddle.static.Executor, paddle.static.global_scope
    import paddle.fluid as fluid

    return paddle, fluid.core, fluid.Program, fluid.Executor, fluid.global_scope


def put(scope: Any, place: Any, item: Any, array: Any) -> None:
    """Give a variable of the scope a value."""
    if item["rows"] is not None:
        rows = scope.var(item["name"]).get_selected_rows()
        rows.set_rows(item["rows"])
        rows.set_height(item["height"])
        rows.get_tensor().set(array, place)
        return
    tensor = scope.var(item["name"]).get_tensor()
    tensor.set(array, place)
    if item["lod"]:
        tensor.set_recursive_sequence_lengths(item["lod"])


def get(variable: Any, name: str, sparse: bool, arrays: Dict[str, Any]) -> Any:
    """The description of a value, whose array goes into `arrays`; None if it has no memory."""
    item: Dict[str, Any] = {"name": name, "key": f"a{len(arrays)}", "lod": [], "rows": None, "height": 0}
    if sparse:
        rows = variable.get_selected_rows()
        tensor = rows.get_tensor()
        item["rows"], item["height"] = [int(row) for row in rows.rows()], rows.height()
    else:
        tensor = variable.get_tensor()
        item["lod"] = tensor.lod()
    if not tensor._is_initialized():
        return None
    arrays[item["key"]] = np.array(tensor)
    return item


def run(folder: str) -> Dict[str, Any]:
    """Run the program once."""
    paddle, core, program_class, executor_class, global_scope = modules()
    with open(os.path.join(folder, "job.json")) as file:
        job = json.load(file)
    with open(os.path.join(folder, "program.pb"), "rb") as data:
        program = program_class.parse_from_string(data.read())
    place = core.CPUPlace()
    scope = global_scope()
    with np.load(os.path.join(folder, "values.npz")) as values:
        for item in job["set"]:
            put(scope, place, item, values[item["key"]])
    executor_class(place).run(program)
    arrays: Dict[str, Any] = {}
    found = []
    for name, sparse in job["get"]:
        variable = scope.find_var(name)
        try:
            item = None if variable is None else get(variable, name, sparse, arrays)
        except Exception as error:  # of a kind other than declared: the comparison lists it as missing
            sys.stderr.write(f"{name}: {error}\n")
            continue
        if item is not None:
            found.append(item)
    np.savez(os.path.join(folder, "found.npz"), **arrays)
    return {"version": getattr(paddle, "__version__", "of unknown version"), "found": found}


def main() -> None:
    """Write what was found, or the error."""
    folder = sys.argv[1]
    try:
        result = run(folder)
    except ImportError as error:
        result = {"import": str(error)}
    except Exception:
        result = {"error": traceback.format_exc()}
    with open(os.path.join(folder, "found.json"), "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
