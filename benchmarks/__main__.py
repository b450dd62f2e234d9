"""Every measurement in one command: `python -m benchmarks`.

fluidtool beside every peer that is here - ONNX Runtime and OpenVINO of this interpreter, Paddle by the interpreters that
PADDLE_1 and PADDLE_2 name (1.8.5 and 2.6) - on models built here, with random weights: latency in interleaved rounds,
cold process, memory, training, growth of the cost. Ratios are medians of the ratios within a round; a bracket after them is
the part of the processors that other programs used meanwhile. Results are kept in benchmarks/results, by date.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import growth, onnx_models
from benchmarks.inference_networks import NETWORKS, write
from benchmarks.rounds import ROOT, Absent, Engine, Worker, cold, take_turns
from fluidtool.cli.render import Table, number, plain, size, table

CASES = (("resnet50", 1), ("resnet50", 8), ("mobilenet_v1", 1), ("bert_base", 1), ("lstm", 1))
RESULTS = Path(__file__).parent / "results"
OURS = "fluidtool"
PARTS = ("latency", "cold", "training", "growth")


# ---------------------------------------------------------------- who is here
def engines(wanted: Sequence[str]) -> tuple[list[Engine], dict[str, str]]:
    """(the engines that may be there, why others are not)."""
    worker = str(Path(__file__).with_name("peer_worker.py"))
    ours = (sys.executable, "-m", "benchmarks.inference_worker")
    found = [Engine(OURS, ours), Engine("fluidtool numpy", ours, (("FLUIDTOOL_NATIVE", "0"),))]
    missing: dict[str, str] = {}
    for name in ("onnxruntime", "openvino"):
        if find_spec(name) is None or find_spec("onnx") is None:
            missing[name] = f"not installed: pip install 'fluidtool[{name}]' onnx"
            continue
        found.append(Engine(name, (sys.executable, worker, name)))
        if name == "openvino":
            found.append(Engine("openvino bf16", (sys.executable, worker, "openvino_bf16"), single=False))
    for name, variable in (("paddle1", "PADDLE_1"), ("paddle2", "PADDLE_2")):
        python = os.environ.get(variable)
        if not python:
            missing[name] = f"{variable} names no interpreter that has it"
            continue
        for kind in (name, f"{name}_mkldnn"):
            found.append(Engine(kind.replace("_", " "), (python, worker, kind)))
    if wanted:
        found = [engine for engine in found if engine.name in wanted or engine.name == OURS]
    return found, missing


def machine() -> dict[str, Any]:
    """What the numbers were measured on; no names of people or folders."""
    from fluidtool.runtime.engines.native.library import library

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    native = library()
    versions = {}
    for name in ("fluidtool", "numpy", "onnxruntime", "openvino"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return {
        "processor": model,
        "processors": os.cpu_count(),
        "memory_bytes": pages,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "native": None if native is None else native.instructions,
        "versions": versions,
    }


# ---------------------------------------------------------------- measuring
def latency(
    case: tuple[str, int], folder: Path, options: argparse.Namespace, present: Sequence[Engine]
) -> dict[str, Any]:
    """Rounds of one case: by engine the milliseconds, ratio to the best float32 peer, error, memory."""
    network, batch = case
    workers, absent = [], {}
    for engine in present:
        try:
            if engine.name.startswith("open") or engine.name.startswith("onnx"):
                onnx_models.write(folder / network, batch)
            workers.append(Worker.begin(engine, folder / network, batch, options.threads))
        except (Absent, ImportError) as error:
            absent[engine.name] = str(error)
    try:
        rounds = take_turns(workers, options.rounds, options.burst)
    finally:
        for worker in workers:
            worker.end()
    peers = [w.engine.name for w in workers if w.engine.single and not w.engine.name.startswith(OURS)]
    rows = {}
    for worker in workers:
        name = worker.engine.name
        ratios = [each[name] / min(each[peer] for peer in peers) for each in rounds] if peers else []
        errors: Any = worker.facts.get("rel_err") or []
        rows[name] = {
            "ratio": statistics.median(ratios) if ratios else None,
            "milliseconds": statistics.median(worker.bursts),
            "least": min(worker.bursts),
            "foreign": statistics.median(worker.foreign),
            "error": max(errors, default=None),
            "resident_mb": worker.facts["rss_mb"],
            "resident_most_mb": worker.facts["rss_peak_mb"],
        }
    return {"network": network, "batch": batch, "engines": rows, "absent": absent}


def cold_processes(
    folder: Path, network: str, options: argparse.Namespace, present: Sequence[Engine]
) -> dict[str, Any]:
    """By engine the median of whole processes, in turns; one round before that does not count."""
    times: dict[str, list[tuple[float, float]]] = {engine.name: [] for engine in present if engine.single}
    for turn in range(options.cold + 1):
        for engine in present:
            if engine.name in times:
                measured = cold(engine, folder / network, options.threads)
                if turn:
                    times[engine.name].append(measured)
    rows = {
        name: dict(zip(("seconds", "resident_most_mb"), map(statistics.median, zip(*found, strict=True)), strict=True))
        for name, found in times.items()
    }
    return {"network": network, "engines": rows}


def arena(folder: Path) -> int | None:
    """Bytes of activations that the native engine keeps for one input."""
    import numpy as np

    import fluidtool
    from benchmarks.inference_networks import with_lod
    from fluidtool.runtime.engines.native.stretch import Compiled
    from fluidtool.runtime.engines.native.stretches import Stretch

    model = fluidtool.load(folder / "model.pdmodel")
    with np.load(folder / "io.npz") as stored:
        model.run(with_lod(model, {name: stored[f"in_{name}"] for name in model.feeds}))
    work = model.executor.plan(model.program, model.fetches, True).block(0).work
    forms = [form.compiled for item in work if isinstance(item, Stretch) for form in item.forms.values()]
    sizes = [form.arena.nbytes for form in forms if isinstance(form, Compiled)]
    return sum(sizes) if sizes else None


def trained(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Examples per second beside Paddle 1.8.5."""
    from benchmarks.training import compare
    from benchmarks.training_networks import NETWORKS as TRAINED

    rows = []
    for name in TRAINED:
        ours, theirs, ratio = compare(name, os.environ["PADDLE_1"], options.rounds, options.threads)
        rows.append({"network": name, "examples_per_second": ours, "paddle1": theirs, "ratio": ratio})
    return rows


# ---------------------------------------------------------------- tables
def latency_table(case: Mapping[str, Any]) -> Table:
    title = f"{NETWORKS[case['network']].title}, batch {case['batch']}"
    out = table(title, ">ratio", "engine", ">ms", ">least", ">others", ">error", ">MB", ">most MB")
    for name, row in sorted(case["engines"].items(), key=lambda pair: pair[1]["milliseconds"]):
        others = f"({row['foreign'] * 100:.0f} %)"
        memory = [f"{row[key]:.0f}" for key in ("resident_mb", "resident_most_mb")]
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        out.add(
            ratio, name, number(row["milliseconds"]), number(row["least"]), others, number(row["error"], 2), *memory
        )
    for name, why in case["absent"].items():
        out.add("-", name, "-", "-", "-", "-", "-", why[:60])
    return out


def cold_table(found: Sequence[Mapping[str, Any]], arenas: Mapping[str, int | None]) -> Table:
    names = list(dict.fromkeys(name for each in found for name in each["engines"]))
    out = table("Cold process: seconds (most MB)", "network", *(f">{name}" for name in names), ">arena")
    for each in found:
        cells = [
            f"{row['seconds']:.2f} ({row['resident_most_mb']:.0f})" if (row := each["engines"].get(name)) else "-"
            for name in names
        ]
        kept = arenas.get(each["network"])
        out.add(each["network"], *cells, "-" if kept is None else size(kept))
    return out


def training_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    out = table("Training beside Paddle 1.8.5", ">ratio", "network", ">examples/s", ">Paddle")
    for row in rows:
        speeds = [f"{row[key]:.0f}" for key in ("examples_per_second", "paddle1")]
        out.add(f"{row['ratio']:.2f}", row["network"], *speeds)
    return out


def growth_table(curves: Sequence[growth.Curve]) -> Table:
    out = table("Growth of the cost: ms, and ms for one", "curve", "size", ">ms", ">ms for one")
    for curve in curves:
        for count, ms, one in zip(curve.sizes, curve.milliseconds, curve.per_unit, strict=True):
            out.add(curve.title, f"{count} {curve.each}", number(ms), number(one, 3))
    return out


# ---------------------------------------------------------------- the command
def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=tuple(NETWORKS), help="only these")
    parser.add_argument("--peers", nargs="+", default=(), metavar="NAME", help="only these engines beside ours")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--burst", type=float, default=0.5, help="seconds that an engine measures in a round")
    parser.add_argument("--cold", type=int, default=3, help="cold processes that a median is taken of")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--models", type=Path, default=ROOT / "build" / "benchmarks", help="where models are built and kept"
    )
    parser.add_argument("--no-save", action="store_true", help="keep no results")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print, keep."""
    options = arguments(given)
    os.environ["FLUIDTOOL_THREADS"] = str(options.threads)
    present, missing = engines(options.peers)
    for name, why in missing.items():
        print(f"not measured: {name}: {why}", file=sys.stderr)
    for name in options.networks:
        write(NETWORKS[name], options.models / name)
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        **machine_of(options),
    }
    curves: list[growth.Curve] = []
    if "latency" in options.parts:
        found["latency"] = []
        for case in CASES:
            if case[0] in options.networks:
                found["latency"].append(latency(case, options.models, options, present))
                print(plain(latency_table(found["latency"][-1])), flush=True)
    if "cold" in options.parts:
        found["cold"] = [cold_processes(options.models, name, options, present) for name in options.networks]
        found["arena_bytes"] = {name: arena(options.models / name) for name in options.networks}
        print(plain(cold_table(found["cold"], found["arena_bytes"])), flush=True)
    if "training" in options.parts:
        if "PADDLE_1" in os.environ:
            found["training"] = trained(options)
            print(plain(training_table(found["training"])), flush=True)
        else:
            print("not measured: training: PADDLE_1 names no interpreter that has Paddle 1.8.5", file=sys.stderr)
    if "growth" in options.parts:
        curves = growth.curves(options.models, options.burst)
        found["growth"] = [
            {"title": curve.title, "sizes": curve.sizes, "milliseconds": curve.milliseconds} for curve in curves
        ]
        print(plain(growth_table(curves)), flush=True)
    if not options.no_save:
        keep(found, curves)
    return 0


def machine_of(options: argparse.Namespace) -> dict[str, Any]:
    """The machine and the settings of this measurement."""
    settings = {"threads": options.threads, "rounds": options.rounds, "burst_seconds": options.burst}
    return {"machine": machine(), "settings": settings}


def keep(found: Mapping[str, Any], curves: Sequence[growth.Curve]) -> None:
    """The results as JSON, the curves as SVG, both by date."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"{str(found['date'])[:16].replace(':', '')}.json"
    target.write_text(json.dumps(found, indent=1) + "\n")
    print(f"kept in {target.relative_to(ROOT)}", file=sys.stderr)
    if curves:
        try:
            growth.plot(curves, target.with_suffix(".svg"))
        except ImportError:
            print("not plotted: matplotlib is not installed: pip install 'fluidtool[plot]'", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
