"""One process of a distributed job under real Paddle 1.8.5: `PYTHON paddle_job.py pserver|trainer|check FOLDER …`.

FOLDER holds `main.pb` and `startup.pb`. A server serves until it is stopped. A trainer is given DATA.npz (arrays by input
name, the first axis counts steps), the LOSS to fetch, the PARAMETERS to save (separated by commas) and OUT.npz. `check`
reads every program below FOLDER and prints its operators.
"""

import os
import sys
import warnings

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import paddle.fluid as fluid  # noqa: E402


def program(path):
    """The program of a file."""
    with open(path, "rb") as file:
        return fluid.Program.parse_from_string(file.read())


def serve(executor, folder):
    """Run a server's programs."""
    executor.run(program(os.path.join(folder, "startup.pb")))
    executor.run(program(os.path.join(folder, "main.pb")))


def train(executor, folder, data, loss, parameters, out):
    """Run a trainer's programs, a step for each batch; save losses and parameters."""
    executor.run(program(os.path.join(folder, "startup.pb")))
    main = program(os.path.join(folder, "main.pb"))
    with np.load(data) as arrays:
        batches = {name: arrays[name] for name in arrays.files}
    losses = []
    for step in range(len(next(iter(batches.values())))):
        feed = {name: values[step] for name, values in batches.items()}
        losses.append(float(np.ravel(executor.run(main, feed, [loss])[0])[0]))
    scope = fluid.global_scope()
    values = {name: np.array(scope.find_var(name).get_tensor()) for name in parameters.split(",")}
    executor.close()
    np.savez(out, losses=np.array(losses), **values)


def check(folder):
    """Read every program, which checks names, slots and attributes, and print what it holds."""
    for where, _, names in sorted(os.walk(folder)):
        for name in sorted(name for name in names if name.endswith(".pb")):
            found = program(os.path.join(where, name))
            types = [op.type for block in found.blocks for op in block.ops]
            print(os.path.relpath(os.path.join(where, name), folder), found.num_blocks, " ".join(types))


def main():
    role, folder = sys.argv[1], sys.argv[2]
    if role == "check":
        check(folder)
        return
    executor = fluid.Executor(fluid.CPUPlace())
    if role == "pserver":
        serve(executor, folder)
    else:
        train(executor, folder, *sys.argv[3:])


if __name__ == "__main__":
    main()
