"""Everything that no machine without a GPU can check, on a machine that has one: python -m tests.gpu.device --out FOLDER

Operator cases, models and training steps of the corpus, by cupy and as CUDA graphs; models with halves in memory; what cuDNN fuses,
or refuses; convolutions in both layouts; steps of loops; random programs as CUDA graphs; twenty cases under compute-sanitizer;
networks beside PyTorch. FOLDER gets `failures.json`, with the reason for each case that failed, and `results.json` with the rest. A
process that dies is told as the failure of its case, and another one goes on after it.
Cases run in several processes at once, and what has no time left is told as not run. --standin is a dry run on a machine without
a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, chdir, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from fluidtool.runtime import Executor
from fluidtool.tensor import CUDAPlace
from tests.gpu import cases
from tests.gpu.budgets import operator_cases
from tests.gpu.standin import installed
from tests.support.golden import names_in

SWITCH = "FLUIDTOOL_CUDA"
ROOT = Path(__file__).parents[2]
SEEDS = 200
SANITIZED = 20
SECONDS = 120  # for one case
CASES_OF_A_PROCESS = 100
TRACE = 2500  # characters of a traceback
LATER = 20  # seconds that a process has after the end
NO_TIME = "not run: the time was over"


# ---------------------------------------------------------------- cases, in a process of their own
def random_program(name: str) -> None:
    """A random program gives numpy's numbers as CUDA graphs, three times."""
    from tests.fuzz._networks import network

    case = network(random.Random(int(name)))

    def outcome(executor: Executor) -> Any:
        try:
            return [value.numpy() for value in executor.run(case.program, case.feeds, case.fetches, case.scope())]
        except Exception as error:  # what is refused is refused on both sides
            return type(error).__name__

    want, executor = outcome(Executor(engine="numpy", seed=1)), Executor(CUDAPlace(0), seed=1)
    for _ in range(3):
        found = outcome(executor)
        if isinstance(want, str) or isinstance(found, str):
            assert found == want
            continue
        for a, b in zip(found, want, strict=True):
            largest = np.abs(b[np.isfinite(b)]).max(initial=1.0) if b.dtype.kind == "f" else 0
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * float(largest))


FUSED = [
    f"{what}/{half}" for what in ("relu", "gelu", "stem", "attention", "mask") for half in ("float32", "bf16", "fp16")
]
"""An activation at the end of a convolution, that of a first layer of 3 channels, or attention without and with a mask; and a
precision.
"""


def fused_call(name: str) -> None:
    """What cuDNN may compute at once gives numpy's numbers; told, too, if it has no plan for it here."""
    from tests.gpu.test_cuda_channels import stem
    from tests.gpu.test_cuda_fused import ROUNDING, attention, block, compiled, on_gpu
    from tests.runtime.native.checking import Net

    (what, half), net = name.split("/"), Net()
    os.environ[f"{SWITCH}_PRECISION"] = half
    if what in ("attention", "mask"):
        y = net.op("relu", "Out", {"X": attention(net, 2, what == "mask", size=32)})
        net.feeds = {each: array / 8 for each, array in net.feeds.items()}  # scores of the order of 1
    elif what == "stem":
        net, y = stem(3, 64)
    else:
        y = block(net, what, {"approximate": False} if what == "gelu" else {}, 16)
    (want,), (found,) = net.run("numpy", y), on_gpu(net, y)
    error = float(np.linalg.norm(found - want) / np.linalg.norm(want))
    assert error < ROUNDING.get(half, 1e-5), f"off by {error:.2g} of its norm"
    if half == "float32":
        return  # cuDNN fuses on tensor cores, which round
    assert not compiled(net).work.refused, f"cuDNN has no plan for it; computed call by call, off by {error:.2g}"


LAYOUTS = [f"{what}/{how}" for what in ("inference", "training") for how in ("measured", "first", "by_window")]
"""Convolutions of float32 by a region or a step, in the layouts that are the fastest here, or in others."""


def layout_case(name: str) -> None:
    """Convolutions give the CPU's numbers in any layout, small ones too."""
    from tests.gpu import test_cuda_layouts as layouts
    from tests.gpu.test_cuda_fused import on_gpu

    what, how = name.split("/")
    seconds = {"first": layouts.first_is_faster, "by_window": layouts.by_window}.get(how)
    with ExitStack() as patches:
        patches.enter_context(patch.object(layouts.layouts, "LEAST", 1))
        if seconds is not None:
            patches.enter_context(patch.object(layouts.plans.Copies, "seconds", return_value=0.0))
            patches.enter_context(patch.object(layouts.cudnn.Cudnn, "seconds", side_effect=seconds))
        if what == "training":
            layouts.trained(layouts.odd(3, 12), [layouts.pictures(3, seed) for seed in range(3)])
            return
        net, y = layouts.bottleneck()
        (want,), (found,) = net.run("numpy", y), on_gpu(net, y)
    error = float(np.linalg.norm(found - want) / np.linalg.norm(want))
    assert error < 1e-5, f"off by {error:.2g} of its norm"


def image_cases() -> list[str]:
    """Operators of images and volumes between convolutions, and a precision."""
    from tests.gpu.test_training_images import OPERATORS

    return [f"{name}/{half}" for name in OPERATORS for half in ("float32", "bf16", "fp16")]


def image_case(name: str) -> None:
    """Three training steps give the CPU's losses and parameters."""
    from tests.gpu.test_training_halves import near
    from tests.gpu.test_training_images import OPERATORS, between, images
    from tests.gpu.test_training_softmax import jobs

    what, half = name.split("/")
    os.environ[f"{SWITCH}_PRECISION"] = half
    build = between(OPERATORS[what][0])
    if half == "float32":
        jobs(build, images(), 1e-4)
    else:
        near(build, images(), half, growth=4.0)


def loop_cases() -> list[str]:
    """Loops whose steps nobody knows beforehand: what steps do, in inference over words or beside a context, and in training."""
    from tests.gpu.test_cuda_filled_regions import FITTING
    from tests.gpu.test_cuda_inner_training import LAYERS

    steps = [*(f"words/{name}" for name in FITTING), "context/attention", *(f"training/{name}" for name in LAYERS)]
    return [name.replace(" ", "_") for name in steps]


def loop_case(name: str) -> None:
    """Runs of different lengths give the CPU's numbers; in training also its parameters."""
    from tests.gpu import test_cuda_filled_regions as words
    from tests.gpu import test_cuda_inner_regions as inner
    from tests.gpu import test_cuda_inner_training as training

    kind, _, what = name.replace("_", " ").partition("/")
    if kind == "training":
        training.both(training.loop(training.LAYERS[what]), [training.fed(n, n) for n in (3, 1, 5, 3)], rtol=1e-4)
    elif kind == "context":
        found = inner.job(inner.with_context(inner.attended))
        for steps in (3, 1, 5, 3):
            found.run(inner.with_words(steps, steps), rtol=1e-4)
    else:
        found = words.job(words.over_words(words.FITTING[what]))
        for lengths in (*words.SENTENCES, *words.SENTENCES):
            found.run(words.with_sentences(lengths), rtol=1e-4)


def graph_seeds() -> list[str]:
    """The random programs."""
    return [str(seed) for seed in range(SEEDS)]


PARTS: dict[str, tuple[Callable[[], Sequence[str]], Callable[[str], Any], str]] = {
    "operators": (operator_cases, cases.operator_counts, "0"),
    "models": (lambda: names_in("models"), cases.model_counts, "0"),
    "training": (lambda: names_in("train"), cases.training_counts, "0"),
    "models as graphs": (lambda: names_in("models"), cases.graph_counts, "1"),
    "models in halves": (lambda: names_in("models"), cases.model_in_halves, "1"),
    "fused calls": (lambda: FUSED, fused_call, "1"),
    "layouts": (lambda: LAYOUTS, layout_case, "1"),
    "training as graphs": (lambda: names_in("train"), cases.step_counts, "1"),
    "training in halves": (lambda: names_in("train"), cases.training_in_halves, "1"),
    "operators in training steps": (cases.step_operators, cases.operator_in_a_step, "1"),
    "images in training steps": (image_cases, image_case, "1"),
    "steps of loops": (loop_cases, loop_case, "1"),
    "random programs as graphs": (graph_seeds, random_program, "1"),
}
"""By name: the cases, what runs one, and whether regions are CUDA graphs."""


def work(part: str, names: Sequence[str], standin: bool) -> None:
    """Run cases; a line of JSON for each, before and after it. Stops after a fault of the driver, which stays."""
    _, run, switch = PARTS[part]
    os.environ[SWITCH] = switch
    with installed() if standin else nullcontext(), tempfile.TemporaryDirectory() as folder, chdir(folder):
        for name in names:
            print(json.dumps({"begun": name}), flush=True)
            start, why, trace = time.monotonic(), "", {}
            try:
                run(name)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                trace = {"trace": traceback.format_exc()[-TRACE:]}
            seconds = round(time.monotonic() - start, 3)
            print(json.dumps({"done": name, "why": why, "seconds": seconds, **trace}), flush=True)
            if "GPU 0 has failed" in why or "CUDARuntimeError" in why:
                return


# ---------------------------------------------------------------- the process that watches
def results_of(
    part: str,
    names: Sequence[str],
    standin: bool,
    before: Sequence[str] = (),
    end: float = math.inf,
) -> Iterator[dict[str, Any]]:
    """What came of each case; a process that dies or hangs is replaced, until `end` (of the monotonic clock).

    before: a command that runs Python.
    """
    left = list(names)
    while left:
        if time.monotonic() > end:
            yield from ({"part": part, "case": name, "why": NO_TIME, "seconds": 0.0} for name in left)
            return
        command = [
            *before,
            sys.executable,
            "-m",
            "tests.gpu.device",
            "--work",
            part,
            *(["--standin"] if standin else []),
        ]
        shown, fault = outcome_of(command, left, end)
        begun = ""
        for line in shown.splitlines():
            told = json.loads(line) if line.startswith('{"') else {}
            begun = told.get("begun", begun)
            if "done" in told:
                left.remove(name := told.pop("done"))
                yield {"part": part, "case": name, **told}
                begun = ""
        if left and (begun or fault):
            name = begun or left[0]
            yield {"part": part, "case": name, "why": fault or "the process ended in the middle", "seconds": 0.0}
            left.remove(name)
        elif left and not shown:
            return


def results_of_parts(
    parts: Sequence[str], cases: int, standin: bool, processes: int, end: float
) -> Iterator[dict[str, Any]]:
    """What came of each case of these parts, as some of them are done; so many processes at once."""
    slices = []
    for part in parts:
        names = PARTS[part][0]()[:cases]
        size = max(1, min(CASES_OF_A_PROCESS, -(-len(names) // processes)))
        slices += [(part, names[start : start + size]) for start in range(0, len(names), size)]
    with ThreadPoolExecutor(processes) as pool:
        started = [
            pool.submit(lambda part, names: list(results_of(part, names, standin, end=end)), part, names)
            for part, names in slices
        ]
        for each in as_completed(started):
            yield from each.result()


def limit_of(names: Sequence[str]) -> int:
    """The seconds that a process may take for some cases."""
    return SECONDS + 10 * len(names)


def outcome_of(command: Sequence[str], names: Sequence[str], end: float) -> tuple[str, str]:
    """(what a process showed of these cases, how it ended unless well); one that hangs, or outlasts the end, is ended."""
    limit = min(limit_of(names), max(end - time.monotonic(), 0) + LATER)
    try:
        done = subprocess.run(
            command, input="\n".join(names), text=True, capture_output=True, cwd=ROOT, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired as hung:
        shown = hung.stdout or b""
        return shown if isinstance(shown, str) else shown.decode(
            errors="replace"
        ), f"it hung: {limit:.0f} s have passed"
    fault = f"the process ended with {done.returncode}: {done.stderr[-600:].strip()}" if done.returncode else ""
    return done.stdout, fault


def sanitized(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Some operator cases and random programs under compute-sanitizer."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        yield {"part": "sanitizer", "case": "all", "why": "not run: compute-sanitizer is not installed", "seconds": 0.0}
        return
    for part in ("operators", "random programs as graphs"):
        names = PARTS[part][0]()
        some = names[:: max(1, 2 * len(names) // SANITIZED)]
        for each in results_of(
            part, some, options.standin, (tool, "--error-exitcode", "9", "--target-processes", "all")
        ):
            yield {**each, "part": f"sanitizer: {part}"}


def benchmarked(options: argparse.Namespace) -> list[Any]:
    """Networks beside PyTorch."""
    command = [sys.executable, "-m", "benchmarks", "--device", "gpu", "--rounds", "7"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=1200, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return rows or [{"not_run": done.stderr[-600:]}]


def about(standin: bool) -> str:
    """The machine."""
    if standin:
        return "a dry run on a stand-in"
    shown = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    version = [sys.executable, "-m", "fluidtool", "version", "--verbose"]
    return shown.stdout + subprocess.run(version, capture_output=True, text=True, check=False).stdout


def main(given: Sequence[str] | None = None) -> int:
    """Run the parts; 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.device", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("device-results"))
    parser.add_argument("--standin", action="store_true", help="a dry run, without a GPU and without benchmarks")
    parser.add_argument(
        "--parts", nargs="+", choices=(*PARTS, "sanitizer", "benchmarks"), help="only these, in this order"
    )
    parser.add_argument("--cases", type=int, default=sys.maxsize, help="of each part, the first so many")
    parser.add_argument("--processes", type=int, default=1, help="so many at once, on one GPU; compute-sanitizer: one")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no process after so many")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.work:
        work(options.work, sys.stdin.read().split(), options.standin)
        return 0
    wanted = options.parts or (*PARTS, "sanitizer", *(() if options.standin else ("benchmarks",)))
    end = time.monotonic() + 60 * options.minutes

    parts = [part for part in wanted if part in PARTS]
    found = told(results_of_parts(parts, options.cases, options.standin, options.processes, end))
    if "sanitizer" in wanted:
        found += told(sanitized(options))
    report = {"machine": about(options.standin), "cases": found}
    if "benchmarks" in wanted:
        report["benchmarks"] = benchmarked(options)
    failures = [each for each in found if each["why"]]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(report, indent=1))
    (options.out / "failures.json").write_text(json.dumps(failures, indent=1))
    print(f"{len(found) - len(failures)} of {len(found)} cases passed; {options.out / 'failures.json'} has the others")
    return int(any(not each["why"].startswith("not run") for each in failures))


def told(results: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results, those that failed shown as they come."""
    found = []
    for each in results:
        found.append(each)
        if each["why"]:
            print(f"{each['part']}: {each['case']}: {each['why']:.300}", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
