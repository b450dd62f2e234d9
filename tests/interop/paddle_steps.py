"""Trains programs under real Paddle 1.8.5: `PYTHON paddle_steps.py JOBS.json`.

JOBS is a list of {folder, main, steps, feed, fetch, final, out}: `folder` a training case (startup.pb, init/), `main` the
program to train, `feed` an npz of arrays `<step>/<name>` (and `<step>/<name>@lod` as JSON text), `fetch` and `final` names
to write to the npz `out`: as fetch_<step>_<i> after every step, and final_<i> at the end.
"""

import json
import os
import sys
import warnings

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import paddle.fluid as fluid  # noqa: E402


def program_of(path):
    """The program in a file."""
    with open(path, "rb") as file:
        return fluid.Program.parse_from_string(file.read())


def feed_of(arrays, step, place):
    """What `feed=` takes in a step: arrays, and LoDTensors where there is a LoD."""
    feed, start = {}, f"{step}/"
    for key in arrays.files:
        if not key.startswith(start) or key.endswith("@lod"):
            continue
        name = key[len(start) :]
        feed[name] = arrays[key]
        if key + "@lod" in arrays.files:
            tensor = fluid.LoDTensor()
            tensor.set(arrays[key], place)
            tensor.set_recursive_sequence_lengths(json.loads(str(arrays[key + "@lod"])))
            feed[name] = tensor
    return feed


def run(job):
    """Start, train, and return what was asked for."""
    place, out = fluid.CPUPlace(), {}
    executor, scope = fluid.Executor(place), fluid.Scope()
    main, saved = program_of(job["main"]), set(os.listdir(os.path.join(job["folder"], "init")))
    with fluid.scope_guard(scope), np.load(job["feed"]) as arrays:
        executor.run(program_of(os.path.join(job["folder"], "startup.pb")))
        fluid.io.load_vars(executor, os.path.join(job["folder"], "init"), main, predicate=lambda var: var.name in saved)
        for step in range(job["steps"]):
            values = executor.run(
                main, feed=feed_of(arrays, step, place), fetch_list=job["fetch"], scope=scope, return_numpy=False
            )
            out.update((f"fetch_{step}_{i}", np.array(value)) for i, value in enumerate(values))
        finals = [scope.find_var(name).get_tensor() for name in job["final"]]
        out.update((f"final_{i}", np.array(tensor)) for i, tensor in enumerate(finals))
    return out


def main():
    with open(sys.argv[1]) as file:
        jobs = json.load(file)
    for job in jobs:
        try:
            values = run(job)
        except Exception as error:
            with open(job["out"] + ".error", "w") as file:
                file.write(f"{type(error).__name__}: {error}")
            continue
        np.savez(job["out"], **values)


if __name__ == "__main__":
    main()
