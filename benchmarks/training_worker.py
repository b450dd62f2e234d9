"""One implementation of `fluid`, training one network, in rounds (rounds.py): python training_worker.py MODULE NETWORK THREADS.

Runs on Python 3.7 too, beside real Paddle.
"""

import importlib
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


SEED = 7


def draw_apart(startup):
    """Give each initializer a seed of its own; drawn alike, parameters of one shape would be the same numbers."""
    for number, op in enumerate(startup.global_block().ops):
        if op.has_attr("seed"):
            op._set_attr("seed", SEED + number)


def most_resident_mb():
    """What this process had at most so far; None where the system does not say (ru_maxrss begins with the parent's)."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 1024.0 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return None


def main():
    module, network, threads = sys.argv[1], sys.argv[2], sys.argv[3]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "FLUIDTOOL_THREADS"):
        os.environ[name] = threads
    os.environ["CPU_NUM"] = "1"
    import training_networks

    fluid = importlib.import_module(module)
    build, batch = training_networks.NETWORKS[network]
    main_program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main_program, startup):
        loss, optimizer, feed = build(fluid, batch)
        if optimizer is not None:
            optimizer.minimize(loss)
    draw_apart(startup)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup)
    for _ in range(3):
        value = executor.run(main_program, feed=feed, fetch_list=[loss])[0]
    loss_now = float(value.ravel()[0])
    print(json.dumps({"batch": batch, "loss": loss_now, "rss_peak_mb": most_resident_mb()}), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            executor.run(main_program, feed=feed, fetch_list=[loss])
            times.append((time.perf_counter() - start) * 1e3)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
