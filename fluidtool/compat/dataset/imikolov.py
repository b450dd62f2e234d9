"""`paddle.dataset.imikolov` (Penn Treebank): samples are n word ids in a row, or (words, next words); words are bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fluidtool.compat.dataset.common import archive_member, data_file, random, ranked, rare_words, synthetic
from fluidtool.errors import UsageError
from fluidtool.fluid.reader_decorators import Reader

__all__ = ["DataType", "build_dict", "test", "train"]

ARCHIVES = ("imikolov%2Fsimple-examples.tgz", "simple-examples.tgz")
WORDS = 80
RARE = (9916, 50, 1991)  # with them the made-up dictionary has the real one's size: 2,074 words, cutoff 50


class DataType:
    """The kind of samples."""

    NGRAM = 1
    SEQ = 2


def build_dict(min_word_freq: int = 50) -> dict[bytes | str, int]:
    """Ids of the words that occur more than `min_word_freq` times, the most frequent first; '<unk>' is the last."""
    counts: Counter[bytes | str] = Counter(rare_words(*RARE) if synthetic() else {})
    for part in ("train", "valid"):
        for line in _lines(part):
            counts.update(line.split())
            counts.update(("<s>", "<e>"))
    return ranked(counts, min_word_freq)


def train(word_idx: Mapping[bytes | str, int], n: int, data_type: int = DataType.NGRAM) -> Reader:
    """The reader of ptb.train.txt: all n-grams, or the sentences of at most n words (n <= 0: all)."""
    return _reader("train", word_idx, n, data_type)


def test(word_idx: Mapping[bytes | str, int], n: int, data_type: int = DataType.NGRAM) -> Reader:
    """The reader of ptb.valid.txt: all n-grams, or the sentences of at most n words (n <= 0: all)."""
    return _reader("valid", word_idx, n, data_type)


def _reader(part: str, word_idx: Mapping[bytes | str, int], n: int, data_type: int) -> Reader:
    if data_type not in (DataType.NGRAM, DataType.SEQ):
        raise UsageError(f"data_type must be DataType.NGRAM or DataType.SEQ, found {data_type!r}")
    if data_type == DataType.NGRAM:
        if n < 0:
            raise UsageError(f"the length of an n-gram must not be negative, found {n}")
        return lambda: _ngrams(_lines(part), word_idx, n)
    return lambda: _sequences(_lines(part), word_idx, n)


def _ngrams(lines: Iterable[bytes], word_idx: Mapping[bytes | str, int], n: int) -> Iterator[tuple[int, ...]]:
    unknown = word_idx["<unk>"]
    for line in lines:
        words: list[bytes | str] = ["<s>", *line.split(), "<e>"]
        ids = [word_idx.get(word, unknown) for word in words]
        for end in range(n, len(ids) + 1):
            yield tuple(ids[end - n : end])


def _sequences(lines: Iterable[bytes], word_idx: Mapping[bytes | str, int], n: int) -> Iterator[tuple[Any, Any]]:
    unknown = word_idx["<unk>"]
    for line in lines:
        ids = [word_idx.get(word, unknown) for word in line.split()]
        if n <= 0 or len(ids) < n:
            yield [word_idx["<s>"], *ids], [*ids, word_idx["<e>"]]


def _lines(part: str) -> Iterator[bytes]:
    return _made_up(part) if synthetic() else _read(part)


def _read(part: str) -> Iterator[bytes]:
    archive = data_file("imikolov", *ARCHIVES)
    return iter(archive_member(archive, f"simple-examples/data/ptb.{part}.txt").splitlines())


def _made_up(part: str) -> Iterator[bytes]:
    """Sentences of 4 to 15 words; three in four words determine the next one."""
    generator = random("imikolov", part)
    for _ in range(2000 if part == "train" else 400):
        word, words = int(generator.integers(WORDS)), []
        for surprise in generator.random(int(generator.integers(4, 16))) < 0.25:
            words.append(f"word{word}")
            word = int(generator.integers(WORDS)) if surprise else (3 * word + 1) % WORDS
        yield " ".join(words).encode()
