"""Does harm to distributed jobs at random moments and counts what became of every single update.

    python -m tests.faults.exactly --faults 200

Two trainers, two servers. Every example is another row of two tables, one of them sparse, and its gradient is 1 there. The
optimizer is momentum of 1 with a rate of 1: the velocity of a row is how often its update was applied, and a row moves by as
many steps as updates came since, its own included. So the rows of a table with N updates end as -1 to -N, each once, in the
order in which the updates were applied: a value that is there twice, or is not there, is an update lost or repeated. All
these numbers are whole, and exact in float32.

Asynchronous jobs: the values are such a serial order, in which each trainer's updates are in the order of its steps.
Synchronous jobs: both updates of a round move together, which makes each value known. Processes are killed (SIGKILL) from
the moment in which they start, halted for a while, or halted forever; or a proxy before every server delays, drops and
repeats calls, with fluidtool's socket or stream or with Paddle's single calls.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fluidtool.distribute.checkpoints import load
from fluidtool.distribute.checkpoints import steps as saved_steps
from fluidtool.distribute.launch.contract import CHECKPOINT_DIR, CHECKPOINT_EVERY
from fluidtool.distribute.launch.jobs import move_job, read_job
from fluidtool.distribute.launch.ports import free_endpoints
from fluidtool.tensor import LoDTensor
from tests.distribute.launch.jobs import parameters_of, transpile
from tests.faults.proxy import WAYS, Proxy
from tests.faults.storm import (
    ENDPOINTS,
    LIMIT,
    RATES,
    SERVERS,
    TRAINERS,
    Events,
    Outcome,
    await_end,
    harm,
    left_behind,
    roles,
    start,
)

ROWS = 6000
TABLES = ("dense", "sparse")
LEAST_WAIT, MOST_WAIT = 0.1, 4.0  # seconds between two faults
PATIENCE = 600.0
Rows = np.ndarray[Any, np.dtype[np.float64]]


# ---------------------------------------------------------------- the job
def prepare(folder: Path, sync: bool, rows: int) -> Path:
    """A job whose updates can be counted, and its data."""
    import fluidtool.fluid as fluid

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.layers.data("ids", [1], dtype="int64")
        found = [_looked_up(fluid, ids, name, rows) for name in TABLES]
        loss = fluid.layers.mean(fluid.layers.sum(found))
        # A synchronous server takes the mean over the trainers.
        fluid.optimizer.Momentum(float(TRAINERS if sync else 1), 1.0).minimize(loss)
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in (("main", main), ("startup", startup)):
        (folder / f"{name}.pb").write_bytes(program.serialize_to_string())
    np.savez(folder / "data.npz", ids=np.arange(rows, dtype=np.int64).reshape(-1, 1))
    mode = [] if sync else ["--async"]
    return transpile(folder, "--pservers", ENDPOINTS, "--trainers", str(TRAINERS), "--no-slice", *mode)


def _looked_up(fluid: Any, ids: Any, name: str, rows: int) -> Any:
    zero = fluid.ParamAttr(name=name, initializer=fluid.initializer.Constant(0.0))
    return fluid.layers.embedding(ids, [rows, 1], is_sparse=name == "sparse", param_attr=zero)


def words(folder: Path, save: Path) -> list[str]:
    """What trainers are told: one example in each step."""
    return [
        "--data",
        str(folder / "data.npz"),
        "--batch-size",
        "1",
        "--epochs",
        "1",
        "--no-shuffle",
        "--save",
        str(save),
    ]


# ---------------------------------------------------------------- the check
def learnt(folder: Path, save: Path) -> dict[str, Rows]:
    """What trainer 0 has saved after the last round of a synchronous job."""
    return {name: flat(array) for name, array in parameters_of(folder, save).items()}


def left(kept: Path) -> dict[str, Rows]:
    """What asynchronous servers had when the last trainer was done: the tables, and their velocities."""
    found: dict[str, Rows] = {}
    for role in (f"pserver_{number}" for number in range(SERVERS)):
        values = load(kept, role, saved_steps(kept, role)[-1]).values
        found |= {name: flat(value.numpy()) for name, value in values.items() if isinstance(value, LoDTensor)}
    return found


def flat(array: Any) -> Rows:
    """Its elements, exactly."""
    return np.asarray(array, np.float64).reshape(-1)


def faults_of(moved: Rows, sync: bool) -> list[str]:
    """What is wrong with a table, in which row r is the example of trainer r mod TRAINERS in step r // TRAINERS."""
    rows = len(moved)
    if sync:
        rounds = rows // TRAINERS
        expected = np.repeat(np.arange(rounds, 0, -1), TRAINERS).astype(np.float64)
        return [] if np.array_equal(moved, expected) else [f"{int((moved != expected).sum())} rows are not as known"]
    if not np.array_equal(np.sort(moved), np.arange(1, rows + 1)):
        never, often = int((moved == 0).sum()), rows - len(np.unique(moved))
        return [f"no serial order: {never} rows never moved, {often} values come again, the largest is {moved.max():g}"]
    late = [trainer for trainer in range(TRAINERS) if (np.diff(moved[trainer::TRAINERS]) >= 0).any()]
    return [f"the updates of trainer {trainer} are not in the order of its steps" for trainer in late]


def check(found: dict[str, Rows], sync: bool) -> list[str]:
    """What is wrong with the tables of a job."""
    velocities = [name for name in found if "velocity" in name]
    uneven = [f"{name}: not every update came once" for name in velocities if (found[name] != 1).any()]
    return uneven + [f"{name}: {fault}" for name in TABLES for fault in faults_of(-found[name], sync)]


# ---------------------------------------------------------------- harm
def storm(folder: Path, job: Path, faults: int, seed: int, *, sync: bool, often: int | None = None) -> Outcome:
    """One job that is harmed so often, or until it is done. often: steps from one checkpoint to the next."""
    dice, outcome, begin = random.Random(seed), Outcome(), time.monotonic()
    kept, save = folder / f"kept_{seed}", folder / f"saved_{seed}"
    every = dice.choice((5, 50, 500, 10**6)) if often is None else often
    options = ["--checkpoint", str(kept), "--checkpoint-every", str(every), "--restarts", str(10 * faults + 10)]
    limits = ["--hang-after", "15" if faults else "60", "--grace", "3", "--any-ports", "--json"]
    command = ["launch", *options, *limits, str(job), *words(folder, save)]
    env = {"FLAGS_rpc_deadline": "20000"}
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as launched:
        talk: list[str] = []
        drain = threading.Thread(target=lambda: talk.extend(launched.stderr or ()), daemon=True)
        drain.start()
        events = Events(launched)
        while launched.poll() is None and outcome.faults.total() < faults:
            time.sleep(dice.uniform(LEAST_WAIT, MOST_WAIT))
            victims = list(events.now.items())
            if victims and launched.poll() is None:
                role, process = dice.choice(victims)
                try:
                    done = harm(process, dice)
                except ProcessLookupError:
                    continue
                early = "" if saved_steps(kept, role) else ", before its first checkpoint"
                outcome.faults[f"{role.rpartition('_')[0]} {done}{early}"] += 1
        await_end(launched, events, outcome, LIMIT + PATIENCE)
        drain.join(10)
    if launched.returncode:
        outcome.wrong.append(f"exit code {launched.returncode}: {''.join(talk[-20:])}")
    else:
        outcome.wrong += check(learnt(folder, save) if sync else left(kept), sync)
    outcome.wrong += left_behind(events.ever, events.ports)
    outcome.seconds = time.monotonic() - begin
    return outcome


def storm_of_network(folder: Path, job: Path, faults: int, seed: int, *, sync: bool, way: str) -> Outcome:
    """One job whose trainers reach the servers through proxies that delay, drop and repeat calls, so often at most."""
    outcome, begin = Outcome(), time.monotonic()
    kept, save = folder / f"kept_{seed}", folder / f"saved_{seed}"
    env = {"FLAGS_rpc_deadline": "30000", "FLAGS_rpc_retry_times": "20"}
    env |= {CHECKPOINT_DIR: str(kept), CHECKPOINT_EVERY: str(10**6)}
    env["FLUIDTOOL_RPC"] = WAYS[way]
    ends, most = free_endpoints(SERVERS), -(-faults // SERVERS)
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(end, RATES, seed + number, most)) for number, end in enumerate(ends)]
        whole = read_job(job)
        real = move_job(whole, tuple(ends), folder / f"real_{seed}").path
        proxied = move_job(whole, tuple(proxy.endpoint for proxy in proxies), folder / f"proxied_{seed}").path
        running = stack.enter_context(roles(real, proxied, words(folder, save), env))
        due = time.monotonic() + LIMIT + PATIENCE
        for process in running:
            try:
                process.wait(max(0.1, due - time.monotonic()))
            except subprocess.TimeoutExpired:
                outcome.wrong.append("the job hangs")
                break
            if process.returncode and process.stderr is not None:
                outcome.wrong.append(f"exit code {process.returncode}: {process.stderr.read()[-600:]}")
        for proxy in proxies:
            outcome.faults += proxy.faults
    if not outcome.wrong:
        outcome.wrong = check(learnt(folder, save) if sync else left(kept), sync)
    outcome.seconds = time.monotonic() - begin
    return outcome


def told(faults: Counter[str]) -> str:
    """Faults by kind."""
    return ", ".join(f"{count} {name}" for name, count in sorted(faults.items())) or "none"


STORMS: dict[str, Callable[..., Outcome]] = {
    "kills": storm,
    **{way: partial(storm_of_network, way=way) for way in WAYS},
}


def campaign(
    faults: int, minutes: float, seed: int, modes: Sequence[bool], kinds: Sequence[str], most: int, rows: int
) -> int:
    """Jobs of `most` faults each, of each mode and kind in turn, until there were so many; how many jobs went wrong."""
    total, wrong, jobs, begin = Counter[str](), 0, 0, time.monotonic()
    with TemporaryDirectory(prefix="exactly-") as scratch:
        made = {sync: Path(scratch) / ("sync" if sync else "async") for sync in modes}
        prepared = {sync: prepare(folder, sync, rows) for sync, folder in made.items()}
        while total.total() < faults and time.monotonic() - begin < 60 * minutes:
            sync, kind = modes[jobs % len(modes)], kinds[jobs // len(modes) % len(kinds)]
            share = min(most, faults - total.total())
            outcome = STORMS[kind](made[sync], prepared[sync], share, seed + 10 * jobs, sync=sync)
            jobs += 1
            total += outcome.faults
            wrong += bool(outcome.wrong)
            what = "; ".join(outcome.wrong) or "every update once"
            mode = "sync" if sync else "async"
            print(f"{jobs:3d} {mode}, {kind}: {told(outcome.faults)}; {outcome.seconds:.1f} s; {what}", flush=True)
    print(f"{total.total()} faults in {jobs} jobs of {rows} examples, {wrong} jobs went wrong: {told(total)}")
    return wrong + (total.total() < faults)


def main() -> int:
    """Run the campaign; exit code 1 when an update was lost or repeated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--mode", choices=["async", "sync"], help="only these jobs")
    parser.add_argument("--kind", choices=list(STORMS), help="only these faults: kills, or dropped connections")
    parser.add_argument("--most", type=int, default=20, metavar="N", help="faults of one job")
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help="examples, and rows of each table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60, help="start no further job after so long")
    chosen = parser.parse_args()
    modes = (False, True) if chosen.mode is None else (chosen.mode == "sync",)
    kinds = tuple(STORMS) if chosen.kind is None else (chosen.kind,)
    failed = campaign(chosen.faults, chosen.minutes, chosen.seed, modes, kinds, chosen.most, chosen.rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
