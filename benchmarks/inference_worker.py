"""fluidtool in the rounds of an inference benchmark: python -m benchmarks.inference_worker MODELDIR --bs N --threads N.

MODELDIR holds `model.pdmodel`, `model.pdiparams` and `io.npz` (`in_NAME`, `bsN_out_I`). Prints a line of JSON when it is
ready; then, for every number on standard input, runs so often and prints the milliseconds of each run. `--cold` runs once;
`--precision bf16` runs in that precision.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any


def resident() -> tuple[float, float]:
    """(resident now, at most so far) in MB."""
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return tuple(int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--bs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--precision", default="float32", choices=("float32", "bf16"), help="of the weights")
    args = parser.parse_args()
    for name in ("FLUIDTOOL_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(args.threads)

    start = time.perf_counter()
    import numpy as np

    import fluidtool
    from fluidtool.tensor import LoDTensor

    model = fluidtool.load(os.path.join(args.model, "model.pdmodel"), precision=args.precision)
    with np.load(os.path.join(args.model, "io.npz")) as stored:
        feeds: dict[str, Any] = {}
        for name in model.feeds:
            array = stored[f"in_{name}"]
            rows = np.concatenate([array] * args.bs)
            with_lod = model.program.global_block().vars[name].lod_level > 0
            feeds[name] = LoDTensor(rows, [list(range(0, len(rows) + 1, len(array)))]) if with_lod else rows
        prefix = f"bs{args.bs}_out_"
        wanted = [stored[f"{prefix}{i}"] for i in range(len(model.fetches)) if f"{prefix}{i}" in stored.files]
    loaded = time.perf_counter()
    outputs = [np.asarray(value) for value in model.run(feeds).values()]
    first = time.perf_counter()
    if args.cold:
        print(float(outputs[0].ravel()[0]))
        return
    errors = [
        float(np.abs(a - b).max() / np.abs(b).max())
        for a, b in zip(outputs, wanted, strict=False)
        if a.shape == b.shape
    ]
    now, most = resident()
    facts = {"engine": "fluidtool", "load_s": loaded - start, "first_s": first - loaded, "rel_err": errors}
    print(json.dumps(facts | {"rss_mb": now, "rss_peak_mb": most}), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            model.run(feeds)
            times.append((time.perf_counter() - begin) * 1e3)
        if not times:
            return
        print(json.dumps(times), flush=True)


main()
