"""Backward operators and the sums of their gradients, in time: `mpiexec -n 2 python -m benchmarks.overlap trace.json`.

Trains a network of fully connected layers in the mode collective, with FLUIDTOOL_COLLECTIVE_OVERLAP=1, and writes the last step
of rank 0 as a Chrome trace (chrome://tracing, Perfetto): operators on one line, sums on the other. Prints how much of the
time of sums operators ran in. `--compression` trains with each way of sending gradients and prints the losses.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

import numpy as np

import fluidtool.fluid as fluid
from fluidtool.distribute.collective.compression import COMPRESSION
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.executor import communicators_of

Span = tuple[str, float, float]
WAYS = ["none", "fp16", "bf16", "topk:0.1", "topk:0.01"]


def programs(rank: int, ranks: int, width: int, layers: int) -> tuple[Any, Any, Any]:
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [width]), fluid.layers.data("y", [1], dtype="int64")
        hidden = x
        for _ in range(layers):
            hidden = fluid.layers.fc(hidden, width, act="relu")
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(fluid.layers.fc(hidden, 10), y))
        fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
        config = fluid.DistributeTranspilerConfig()
        config.mode, config.collective_mode = "collective", "grad_allreduce"
        endpoints = ",".join(f"127.0.0.1:{6170 + index}" for index in range(ranks))
        fluid.DistributeTranspiler(config).transpile(
            rank, main, trainers=endpoints, startup_program=startup, current_endpoint=f"127.0.0.1:{6170 + rank}"
        )
    return main, startup, loss


def batch(step: int, rank: int, width: int, size: int) -> dict[str, Any]:
    """Ten classes: which of ten random directions a vector is nearest to."""
    directions = np.random.default_rng(7).normal(size=(width, 10))
    x = np.random.default_rng([step, rank]).normal(size=(size, width)).astype("float32")
    return {"x": x, "y": (x @ directions).argmax(axis=1)[:, None].astype("int64")}


def train(rank: int, ranks: int, args: argparse.Namespace) -> tuple[list[float], list[Span], list[Span]]:
    """The losses of this rank, and the spans of the last step: operators, sums."""
    main, startup, loss = programs(rank, ranks, args.width, args.layers)
    scope, executor = Scope(), Executor(engine="numpy")
    rings = communicators_of(scope, executor.place, executor.policy)
    operators: list[Span] = []
    sums: list[Span] = []
    rings.listener = lambda name, start, end: sums.append((name, start, end))

    def observe(step: Any, block: int) -> None:
        start = time.perf_counter()
        step.run()
        operators.append((step.context.op.type, start, time.perf_counter()))

    executor.run(startup, {}, [], scope)
    losses = []
    for step in range(args.steps):
        operators.clear()
        sums.clear()
        feed = batch(step, rank, args.width, args.batch_size)
        losses.append(float(np.mean(executor.run(main, feed, [loss.name], scope, observer=observe)[0].numpy())))
    executor.close()
    rings.close()
    return losses, operators, sums


def overlapped(operators: list[Span], sums: list[Span]) -> float:
    """The part of the time of sums in which operators ran that do not wait for them."""
    busy = [span for span in operators if not span[0].startswith("c_sync")]
    inside = sum(
        max(0.0, min(end, other_end) - max(start, other)) for _, start, end in sums for _, other, other_end in busy
    )
    return inside / sum(end - start for _, start, end in sums)


def trace(operators: list[Span], sums: list[Span]) -> str:
    origin = operators[0][1]
    events: list[dict[str, Any]] = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": line, "args": {"name": name}}
        for line, name in enumerate(["operators", "sums of gradients"])
    ]
    for line, spans in enumerate([operators, sums]):
        events += [
            {"name": name, "ph": "X", "pid": 0, "tid": line, "ts": (start - origin) * 1e6, "dur": (end - start) * 1e6}
            for name, start, end in spans
        ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", help="a file for the trace")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--compression", action="store_true", help="the losses with each way of sending gradients")
    args = parser.parse_args()
    from mpi4py import MPI

    rank, ranks = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    os.environ["FLUIDTOOL_COLLECTIVE"] = "mpi"
    if args.compression:
        for way in WAYS:
            os.environ[COMPRESSION] = way
            losses, _, _ = train(rank, ranks, args)
            if rank == 0:
                shown = ", ".join(
                    f"{np.mean(losses[max(0, end - 10) : end]):.4f}" for end in (10, args.steps // 2, args.steps)
                )
                print(f"{way:10} loss around step 5, half way, at the end: {shown}", flush=True)
        return
    os.environ |= {"FLUIDTOOL_COLLECTIVE_OVERLAP": "1", "FLAGS_fuse_parameter_memory_size": "1"}
    _, operators, sums = train(rank, ranks, args)
    if rank == 0:
        print(f"{len(sums)} sums; operators ran in {overlapped(operators, sums):.0%} of their time")
        if args.trace:
            with open(args.trace, "w") as file:
                file.write(trace(operators, sums))


if __name__ == "__main__":
    main()
