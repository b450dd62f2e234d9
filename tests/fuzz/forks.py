"""Forks, spawned processes and threads in every order, while threads of the parent run models: all compute the same bits.

A case is a word of f (a child of a fork goes on with the rest of the word), t (several threads run), r (a run) and, rarely, s (a
new process goes on). A child that does not end within its time counts as hanging.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from tests.fuzz._runs import Source, run, sources
from tests.fuzz.campaign import Budget, Finding
from tests.fuzz.threads import fault_of

PATIENCE = 60  # seconds for a child, with all that it starts
BUSY = 3  # threads that run models all the time
SPAWNING = 0.01  # how often a new process is part of a case
TOGETHER = 10  # cases while the same threads run
SPAWNED = "import sys; from tests.fuzz.forks import in_new_process; in_new_process(*sys.argv[1:])"


def search(budget: Budget) -> Iterator[Finding]:
    """Native models only: OpenBLAS, which numpy multiplies with, cannot be forked beside threads that multiply."""
    seeds = budget.seeds()
    with sources(engines=("native",)) as found:
        while several := list(islice(seeds, TOGETHER)):
            choose = random.Random(several[0])
            chosen = choose.choices(found, k=BUSY)
            for source in chosen:
                source.case(3)
            models = [source.load() if choose.random() < 0.5 else source.calm for source in chosen]
            with busy(models, chosen):
                for seed in several:
                    word = word_of(random.Random(seed))
                    fault = follow(word, chosen[0])
                    if fault:
                        yield Finding(f"seed {seed}, {word} on {', '.join(source.name for source in chosen)}", fault)


def word_of(choose: random.Random) -> str:
    """What a case does, in order; it ends with a run."""
    letters = "".join(choose.choice("fftr") for _ in range(choose.randint(1, 5)))
    return ("s" if choose.random() < SPAWNING else "") + "f" + letters + "r"


def follow(word: str, source: Source) -> str:
    """Do what a word says, the rest of it in a child from the first f or s on; what went wrong, or ''."""
    for position, letter in enumerate(word):
        rest = word[position + 1 :]
        if letter == "f":
            return in_child(lambda rest=rest: follow(rest, source))  # type: ignore[misc]
        if letter == "s":
            return in_process(rest, source)
        fault = by_threads(source) if letter == "t" else computed(source)
        if fault:
            return fault
    return ""


def computed(source: Source) -> str:
    """What is wrong with a run of the model that threads of the parent run, or ''."""
    value, want = source.case(3)
    return fault_of(lambda: run(source.calm, value), want)


def by_threads(source: Source) -> str:
    """The same with four threads."""
    faults: list[str] = []
    threads = [threading.Thread(target=lambda: faults.append(computed(source))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return next(filter(None, faults), "")


def in_child(work: Callable[[], str]) -> str:
    """What went wrong in the child of a fork."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            signal.alarm(PATIENCE)
            os.write(writing, work().encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        said = answers.read().decode()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "the child hangs" if number == signal.SIGALRM else f"the child ended by signal {number}"
    return said or ("" if status == 0 else f"the child ended with code {os.WEXITSTATUS(status)}")


def in_process(word: str, source: Source) -> str:
    """What went wrong in a new process that loads the model and does the rest."""
    command = [sys.executable, "-c", SPAWNED, word, source.name, str(source.folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return "the new process hangs"
    return done.stdout.strip() or done.stderr.strip()


def in_new_process(word: str, name: str, folder: str) -> None:
    """What a new process does: it prints what went wrong."""
    print(follow(word, Source(name, Path(folder), "native")))


@contextmanager
def busy(models: list[Any], chosen: list[Source]) -> Iterator[None]:
    """Threads that run models, each with its own number of rows, from before the body until after it."""
    stop, begun = threading.Event(), threading.Barrier(len(models) + 1)

    def work(number: int) -> None:
        value = chosen[number].case(3)[0]
        begun.wait()
        while not stop.is_set():
            run(models[number], value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(models))]
    for thread in threads:
        thread.start()
    begun.wait()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
