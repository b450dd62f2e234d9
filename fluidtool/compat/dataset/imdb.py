"""`paddle.dataset.imdb`: samples are (word ids of a review, 0 for a good one and 1 for a bad one); words are bytes."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping

from fluidtool.compat.dataset.common import archive_members, data_file, random, ranked, rare_words, synthetic
from fluidtool.fluid.reader_decorators import Reader

__all__ = ["build_dict", "test", "tokenize", "train", "word_dict"]

ARCHIVES = ("imdb%2FaclImdb_v1.tar.gz", "aclImdb_v1.tar.gz")
PUNCTUATION = string.punctuation.encode()
CUTOFF = 150
RARE = (20000, CUTOFF, 5046)  # with them the made-up dictionary has the real one's size: 5,147 words


def tokenize(pattern: re.Pattern[str]) -> Iterator[list[bytes]]:
    """The words, in lower case and without punctuation, of each review whose file name the pattern matches."""
    for name, text in _made_up() if synthetic() else _read():
        if pattern.match(name):
            yield text.rstrip(b"\n\r").translate(None, PUNCTUATION).lower().split()


def build_dict(pattern: re.Pattern[str], cutoff: int) -> dict[bytes | str, int]:
    """Ids of the words that occur more than `cutoff` times, the most frequent first; '<unk>' is the last."""
    counts: Counter[bytes | str] = Counter(rare_words(*RARE) if synthetic() else {})
    for words in tokenize(pattern):
        counts.update(words)
    return ranked(counts, cutoff)


def word_dict() -> dict[bytes | str, int]:
    """`build_dict` of all reviews, cutoff 150."""
    return build_dict(re.compile(r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$"), CUTOFF)


def train(word_idx: Mapping[bytes | str, int]) -> Reader:
    """The reader of the training reviews, good ones first."""
    return _reader("train", word_idx)


def test(word_idx: Mapping[bytes | str, int]) -> Reader:
    """The reader of the test reviews, good ones first."""
    return _reader("test", word_idx)


def _reader(part: str, word_idx: Mapping[bytes | str, int]) -> Reader:
    unknown = word_idx["<unk>"]
    samples = [
        ([word_idx.get(word, unknown) for word in words], label)
        for label, kind in enumerate(("pos", "neg"))
        for words in tokenize(re.compile(rf"aclImdb/{part}/{kind}/.*\.txt$"))
    ]
    return lambda: iter(samples)


def _read() -> Iterator[tuple[str, bytes]]:
    return archive_members(data_file("imdb", *ARCHIVES), lambda name: True)


def _made_up() -> Iterator[tuple[str, bytes]]:
    """Reviews of 10 to 40 of a hundred words; three in four words are from the half for the review's class."""
    for part, count in (("train", 400), ("test", 100)):
        generator = random("imdb", part)
        for label, kind in enumerate(("pos", "neg")):
            for number in range(count):
                length = int(generator.integers(10, 41))
                halves = (generator.random(length) < 0.25) != bool(label)
                words = generator.integers(0, 50, length) + 50 * halves
                yield f"aclImdb/{part}/{kind}/{number}.txt", " ".join(f"word{word}" for word in words).encode()
