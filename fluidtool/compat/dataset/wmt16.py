"""`paddle.dataset.wmt16` (Multi30K): samples are (source ids, target ids after <s>, target ids before <e>), English or German.

wmt16/wmt16.tar.gz holds wmt16/train, wmt16/test and wmt16/val (English, tab, German, in words). Ids are those of <s>, <e>,
<unk> and then of the words of wmt16/train by falling number, words of the same number as they come first. Paddle writes the
words it chose into wmt16/en_<size>.dict and de_<size>.dict beside the archive: these are read where they are there, and
complete; nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

from fluidtool.compat.dataset.common import archive_member, data_file, data_home, synthetic, text_lines
from fluidtool.compat.dataset.wmt14 import made_up_pairs
from fluidtool.errors import UsageError
from fluidtool.fluid.reader_decorators import Reader

__all__ = ["get_dict", "test", "train", "validation"]

TOTAL_WORDS = {"en": 11250, "de": 19220}
MARKS = ["<s>", "<e>", "<unk>"]
LANGUAGES = ("en", "de")
MADE_UP = {"train": 1000, "test": 200, "val": 200}

Pair = tuple[list[int], list[int], list[int]]


def train(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """The reader of wmt16/train."""
    return _reader("train", src_dict_size, trg_dict_size, src_lang)


def test(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """The reader of wmt16/test."""
    return _reader("test", src_dict_size, trg_dict_size, src_lang)


def validation(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """The reader of wmt16/val."""
    return _reader("val", src_dict_size, trg_dict_size, src_lang)


def get_dict(lang: str, dict_size: int, reverse: bool = False) -> dict[str, int] | dict[int, str]:
    """Ids of the words of a language, or with reverse=True words by id."""
    ids = _dictionary(lang, dict_size)
    return {number: word for word, number in ids.items()} if reverse else ids


def _reader(part: str, src_dict_size: int, trg_dict_size: int, src_lang: str) -> Reader:
    _check_language(src_lang)
    return partial(_samples, part, src_dict_size, trg_dict_size, src_lang)


def _check_language(lang: str) -> None:
    if lang not in LANGUAGES:
        raise UsageError(f"a language of wmt16 is 'en' (English) or 'de' (German), found {lang!r}")


def _samples(part: str, src_dict_size: int, trg_dict_size: int, src_lang: str) -> Iterator[Pair]:
    column = LANGUAGES.index(src_lang)
    source_dict, target_dict = _dictionary(src_lang, src_dict_size), _dictionary(LANGUAGES[1 - column], trg_dict_size)
    start, end, unknown = (source_dict[mark] for mark in MARKS)

    def ids(words: str, dictionary: Mapping[str, int]) -> list[int]:
        return [dictionary.get(word, unknown) for word in words.split()]

    for pair in _pairs(part):
        source, target = ids(pair[column], source_dict), ids(pair[1 - column], target_dict)
        yield [start, *source, end], [start, *target], [*target, end]


def _pairs(part: str) -> Iterator[list[str]]:
    if synthetic():
        lines = list(made_up_pairs("wmt16", part, MADE_UP[part], "en", "de"))
    else:
        archive = data_file("wmt16", "wmt16.tar.gz")
        lines = text_lines(archive_member(archive, f"wmt16/{part}"), f"{archive}, wmt16/{part}")
    for line in lines:
        columns = line.strip().split("\t")
        if len(columns) == 2:
            yield columns


def _dictionary(lang: str, dict_size: int) -> dict[str, int]:
    _check_language(lang)
    size = min(dict_size, TOTAL_WORDS[lang])
    if size < len(MARKS):
        raise UsageError(f"a dictionary of wmt16 must have room for {', '.join(MARKS)}, found the size {dict_size}")
    written = data_home() / "wmt16" / f"{lang}_{size}.dict"
    if not synthetic() and written.is_file():
        words = [line.strip() for line in text_lines(written.read_bytes(), str(written))]
        if len(words) == size:
            return {word: number for number, word in enumerate(words)}
    counts = Counter(word for pair in _pairs("train") for word in pair[LANGUAGES.index(lang)].split())
    if synthetic():
        counts.update({f"{lang}{number}": 0 for number in range(TOTAL_WORDS[lang])})
    frequent = [word for word, _ in counts.most_common(size - len(MARKS))]
    return {word: number for number, word in enumerate([*MARKS, *frequent])}
