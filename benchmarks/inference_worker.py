"""fluidtool in the rounds of an inference benchmark (rounds.py):

python -m benchmarks.inference_worker MODELDIR --bs N --threads N [--executors N] [--precision bf16|int8] [--cold].

MODELDIR holds `model.pdmodel`, `model.pdiparams` and `io.npz` (`in_NAME`, `bs1_out_I`); with int8 the model below it runs
(int8_models.py). `--executors`: so many threads run the model
at once, each with threads of its own. `--cold` runs once and ends.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any


def resident() -> tuple[float, float]:
    """(resident now, at most so far) in MB; (0, 0) where the system does not say."""
    try:
        with open("/proc/self/status") as status:
            lines = dict(line.split(":", 1) for line in status)
    except OSError:
        return 0.0, 0.0
    return tuple(int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


def arena(model: Any) -> int | None:
    """Bytes of activations that the native engine keeps for what the model was run with; None without it."""
    from fluidtool.runtime.engines.native.region import NativeRegion
    from fluidtool.runtime.partition import Region

    if model.start is not None:
        specializations = list(model.start.regions.values())
    else:
        regions = model.executor.plan(model.program, model.fetches, True).block(0).work
        specializations = [
            each for item in regions if isinstance(item, Region) for each in item.specializations.kept.values()
        ]
    sizes = [each.frames[0].arena.nbytes for each in specializations if isinstance(each, NativeRegion)]
    return sum(sizes) if sizes else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--bs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--executors", type=int, default=1)
    parser.add_argument("--precision", default="float32", choices=("float32", "bf16", "int8"), help="of the weights")
    parser.add_argument("--cold", action="store_true")
    args = parser.parse_args()
    for name in ("FLUIDTOOL_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(args.threads)

    start = time.perf_counter()
    import numpy as np

    import fluidtool
    from benchmarks.feeds import with_lod
    from benchmarks.repeats import milliseconds

    of_8_bits = args.precision == "int8"  # another model, of float32
    path = os.path.join(args.model, *(["int8"] if of_8_bits else []), "model.pdmodel")
    model = fluidtool.load(path, precision="float32" if of_8_bits else args.precision)
    with np.load(os.path.join(args.model, "io.npz")) as stored:
        feeds = with_lod(model, {name: stored[f"in_{name}"] for name in model.feeds}, args.bs)
        wanted = [stored[f"bs1_out_{number}"] for number in range(len(model.fetches))]
    loaded = time.perf_counter()
    outputs = [np.asarray(value) for value in model.run(feeds).values()]
    first = time.perf_counter()
    if args.cold:
        print(json.dumps({"rss_peak_mb": resident()[1]}))
        return
    errors = [float(np.abs(a[: len(b)] - b).max() / np.abs(b).max()) for a, b in zip(outputs, wanted, strict=True)]
    now, most = resident()
    fields = {"load_s": loaded - start, "first_s": first - loaded, "rel_err": errors, "arena_bytes": arena(model)}
    print(json.dumps(fields | {"rss_mb": now, "rss_peak_mb": most}), flush=True)
    runs = [lambda: model.run(feeds)] * args.executors  # threads may share a model
    for line in sys.stdin:
        print(json.dumps(milliseconds(runs, int(line))), flush=True)


if __name__ == "__main__":
    main()
