"""Unique names, counted per prefix as in Paddle: `fc_0`, `fc_1`, `fc_0.tmp_0` …"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from fluidtool.errors import ArgumentTypeError


class UniqueNameGenerator:
    """Counts what has been handed out for each key; `prefix` stands before every name."""

    def __init__(self, prefix: str | None = None) -> None:
        self.ids: defaultdict[str, int] = defaultdict(int)
        self.prefix = prefix or ""

    def __call__(self, key: str) -> str:
        if not isinstance(key, str):
            raise ArgumentTypeError(f"the key of a unique name must be a string, found {key!r}")
        number = self.ids[key]
        self.ids[key] += 1
        return f"{self.prefix}{key}_{number}"


generator = UniqueNameGenerator()  # the current one; scripts copy it


def generate(key: str) -> str:
    """The next name of this key."""
    return generator(key)


def generate_with_ignorable_key(key: str) -> str:
    """The same: only in dynamic graphs does Paddle ignore the key."""
    return generator(key)


Switched = tuple[UniqueNameGenerator, None]


def switch(new_generator: UniqueNameGenerator | Switched | None = None, new_para_name_checker: None = None) -> Switched:
    """Make another generator the current one and return the one before, in a pair that may be given back as it is.

    The pair is that of Paddle 1.8.5, where its second part is for dynamic graphs: None here.
    """
    global generator
    if isinstance(new_generator, tuple):
        new_generator, _ = new_generator
    old, generator = generator, UniqueNameGenerator() if new_generator is None else new_generator
    return old, None


@contextmanager
def guard(new_generator: UniqueNameGenerator | str | bytes | None = None) -> Iterator[None]:
    """Within the block names count from zero (or go on with the generator given); a string becomes a prefix."""
    if isinstance(new_generator, bytes):
        new_generator = new_generator.decode()
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    old = switch(new_generator)
    try:
        yield
    finally:
        switch(old)
