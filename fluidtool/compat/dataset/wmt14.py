"""`paddle.dataset.wmt14`: samples are (source ids, target ids after <s>, target ids before <e>), English to French.

wmt14/wmt14.tgz holds src.dict and trg.dict (a word a line; its id is the line's number from 0: <s>, <e>, <unk>, …), and the
files train/train, test/test and gen/gen (source, tab, target). Source ids stand between <s> and <e>; pairs with more than
80 ids on a side, <s> and <e> of the source counted, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fluidtool.compat.dataset.common import (
    archive_member,
    archive_members,
    data_file,
    random,
    synthetic,
    text_lines,
)
from fluidtool.errors import UnreadableError
from fluidtool.fluid.reader_decorators import Reader

__all__ = ["gen", "get_dict", "test", "train"]

START, END, UNK, UNK_IDX = "<s>", "<e>", "<unk>", 2
LONGEST = 80
MADE_UP = {"train/train": 1000, "test/test": 200, "gen/gen": 50}
DICTIONARY = 30000
WORDS = 40  # that sentences are made of

Pair = tuple[list[int], list[int], list[int]]


def train(dict_size: int) -> Reader:
    """The reader of train/train, with ids of the first dict_size words."""
    return partial(_samples, "train/train", dict_size)


def test(dict_size: int) -> Reader:
    """The reader of test/test, with ids of the first dict_size words."""
    return partial(_samples, "test/test", dict_size)


def gen(dict_size: int) -> Reader:
    """The reader of gen/gen, with ids of the first dict_size words."""
    return partial(_samples, "gen/gen", dict_size)


def get_dict(
    dict_size: int, reverse: bool = True
) -> tuple[dict[int, str], dict[int, str]] | tuple[dict[str, int], ...]:
    """Words of the two languages by id, or with reverse=False ids by word."""
    source, target = _dictionaries(dict_size)
    if reverse:
        return {number: word for word, number in source.items()}, {number: word for word, number in target.items()}
    return source, target


def _samples(part: str, dict_size: int) -> Iterator[Pair]:
    source_dict, target_dict = _dictionaries(dict_size)
    for word in (START, END):
        if word not in target_dict:
            raise UnreadableError(f"the {dict_size} first words of trg.dict must include {word}")
    for line in _lines(part):
        columns = line.strip().split("\t")
        if len(columns) != 2:
            continue
        source = [source_dict.get(word, UNK_IDX) for word in [START, *columns[0].split(), END]]
        target = [target_dict.get(word, UNK_IDX) for word in columns[1].split()]
        if max(len(source), len(target)) <= LONGEST:
            yield source, [target_dict[START], *target], [*target, target_dict[END]]


def _dictionaries(dict_size: int) -> tuple[dict[str, int], dict[str, int]]:
    if synthetic():
        words = [[START, END, UNK, *(f"{lang}{number}" for number in range(DICTIONARY - 3))] for lang in ("en", "fr")]
    else:
        archive = data_file("wmt14", "wmt14.tgz")
        words = [
            [line.strip() for line in text_lines(archive_member(archive, name), f"{archive}, {name}")]
            for name in ("src.dict", "trg.dict")
        ]
    source, target = ({word: number for number, word in enumerate(one[:dict_size])} for one in words)
    return source, target


def _lines(part: str) -> Iterator[str]:
    if synthetic():
        yield from made_up_pairs("wmt14", part, MADE_UP[part], "en", "fr")
        return
    archive = data_file("wmt14", "wmt14.tgz")
    for name, data in archive_members(archive, lambda name: name.endswith(part)):
        yield from text_lines(data, f"{archive}, {name}")


def made_up_pairs(dataset: str, part: str, count: int, source: str, target: str) -> Iterator[str]:
    """Sentences of 3 to 8 words, and their translations: word by word, with the first two swapped."""
    generator = random(dataset, part)
    for _ in range(count):
        numbers = [int(number) for number in generator.integers(0, WORDS, generator.integers(3, 9))]
        swapped = [numbers[1], numbers[0], *numbers[2:]]
        yield "\t".join(" ".join(f"{lang}{n}" for n in ns) for lang, ns in ((source, numbers), (target, swapped)))
