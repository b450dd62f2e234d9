"""One parameter server of fluidtool in a process of its own: `PYTHON server_process.py FOLDER OUT.npz PARAMETERS`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import fluidtool.fluid as fluid
from fluidtool.tensor import LoDTensor


def main() -> None:
    folder, out, parameters = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
    executor = fluid.Executor(fluid.CPUPlace())
    for name in ("startup", "main"):
        executor.run(fluid.Program.parse_from_string((folder / f"{name}.pb").read_bytes()))
    found = {name: fluid.global_scope().find_var(name) for name in parameters}
    kept = {name: each.value for name, each in found.items() if each is not None}
    np.savez(out, **{name: value.numpy() for name, value in kept.items() if isinstance(value, LoDTensor)})


if __name__ == "__main__":
    main()
