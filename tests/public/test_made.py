"""Files that are made for public scripts: the same every time, and every line in the format that the scripts read."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.public.made import MADE
from tests.public.made_language import LANGUAGE, bert, understood

MAKERS = sorted({make for make in [*MADE.values(), *LANGUAGE.values()]}, key=lambda make: make.__name__)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_files_are_the_same_every_time_and_have_names_of_their_own(make: object) -> None:
    files = list(make())  # type: ignore[operator]
    assert files == list(make())  # type: ignore[operator]
    names = [name for name, _ in files]
    assert len(set(names)) == len(names)
    assert not any(name.startswith("/") for name in names)


def test_answers_are_where_they_are_said_to_be() -> None:
    (article, *_) = json.loads(dict(bert())["squad/train.json"])["data"]
    (paragraph,) = article["paragraphs"]
    for question in paragraph["qas"]:
        (answer,) = question["answers"]
        start = answer["answer_start"]
        assert paragraph["context"][start : start + len(answer["text"])] == answer["text"]


def test_every_word_of_text_to_be_pretrained_on_has_a_sentence_and_a_position() -> None:
    for line in gzip.decompress(dict(bert())["pre/train/part.gz"]).decode().splitlines():
        words, sentences, positions, follows = line.split(";")
        assert len(words.split()) == len(sentences.split()) == len(positions.split())
        assert follows in ("0", "1")


def test_every_word_has_a_slot() -> None:
    for line in dict(understood())["data/small/atis_slot/train.txt"].decode().splitlines():
        said, slots = line.split("\t")
        assert len(said.split()) == len(slots.split())
