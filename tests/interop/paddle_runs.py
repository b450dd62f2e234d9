"""Runs saved inference models under real Paddle: `PYTHON paddle_runs.py JOBS.json`.

Works with Paddle 1.8.5 (Python 3.7) and 2.6.2. JOBS is a list of {folder, model, params, feed, out}: `feed` an npz with the
arrays by input name and `<name>@lod` as JSON text, `out` the npz to write, fetches as fetch_0, fetch_1 …
"""

import json
import sys
import warnings
import zlib

zlib.decompress(zlib.compress(b"a"))  # Paddle 2.6.2 wants zlib loaded before itself
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import paddle  # noqa: E402


def feed_of(path, place, tensor_class):
    """What `feed=` takes: arrays, and LoDTensors where there is a LoD."""
    feed = {}
    with np.load(path) as arrays:
        for name in arrays.files:
            if name.endswith("@lod"):
                continue
            feed[name] = arrays[name]
            if name + "@lod" in arrays.files:
                tensor = tensor_class()
                tensor.set(arrays[name], place)
                tensor.set_recursive_sequence_lengths(json.loads(str(arrays[name + "@lod"])))
                feed[name] = tensor
    return feed


def run_185(job):
    """Load and run one model through paddle.fluid."""
    import paddle.fluid as fluid

    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = fluid.io.load_inference_model(job["folder"], executor, job["model"], job["params"])
        feed = feed_of(job["feed"], place, fluid.LoDTensor)
        return executor.run(program, feed=feed, fetch_list=fetches, return_numpy=False)


def run_262(job):
    """Load and run one model through paddle.static."""
    from paddle.base import core

    place = paddle.CPUPlace()
    executor = paddle.static.Executor(place)
    with paddle.static.scope_guard(paddle.static.Scope()):
        program, _, fetches = paddle.static.load_inference_model(
            job["folder"], executor, model_filename=job["model"], params_filename=job["params"]
        )
        return executor.run(program, feed_of(job["feed"], place, core.LoDTensor), fetches, return_numpy=False)


def main():
    with open(sys.argv[1]) as file:
        jobs = json.load(file)
    static = hasattr(paddle, "enable_static") and paddle.__version__.startswith("2")
    if static:
        paddle.enable_static()
    for job in jobs:
        try:
            values = (run_262 if static else run_185)(job)
        except Exception as error:
            with open(job["out"] + ".error", "w") as file:
                file.write(f"{type(error).__name__}: {error}")
            continue
        np.savez(job["out"], **{f"fetch_{i}": np.array(value) for i, value in enumerate(values)})


if __name__ == "__main__":
    main()
