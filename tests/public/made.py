"""`python -m tests.public.made FOLDER`: small files in the formats that scripts of PaddlePaddle/models read, for --data."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Iterator
from pathlib import Path

WORDS = 200


def sentences(count: int, lengths: tuple[int, int]) -> Iterator[list[int]]:
    """Lists of words by number, from 1 on: some are more frequent than others."""
    draw = random.Random(count)
    for _ in range(count):
        yield [1 + int((WORDS - 1) * draw.random() ** 2) for _ in range(draw.randint(*lengths))]


def text(numbers: list[int]) -> str:
    """Numbers, parted by blanks."""
    return " ".join(map(str, numbers))


def interest_network() -> Iterator[tuple[str, bytes]]:
    """`ctr/din`: bought items; their categories; an item; its category; whether it is bought next."""
    lines = (
        f"{text(s)};{text([n % 9 for n in s])};{s[0] + 1};{(s[0] + 1) % 9};{s[0] % 2}" for s in sentences(64, (2, 9))
    )
    data = "\n".join(lines).encode()
    yield "config.txt", f"{WORDS}\n{WORDS + 2}\n9\n".encode()
    yield "paddle_train.txt", data
    yield "paddle_test.txt", data


def sessions() -> Iterator[tuple[str, bytes]]:
    """`gnn`: items of sessions, and the item that follows each."""
    found = list(sentences(220, (3, 9)))
    yield "config.txt", f"{WORDS + 1}\n".encode()
    for name in ("train.txt", "test.txt"):
        yield name, pickle.dumps(([each[:-1] for each in found], [each[-1] for each in found]), 2)


def corpus() -> Iterator[tuple[str, bytes]]:
    """`word2vec`: lines of words by number, and how often each occurs."""
    found = [[number - 1 for number in each] for each in sentences(60, (5, 12))]
    flat = [number for each in found for number in each]
    yield "text/part-0", "\n".join(map(text, found)).encode()
    yield "1-billion_dict", "\n".join(f"word{number} {1 + flat.count(number)}" for number in range(WORDS)).encode()
    yield "1-billion_dict_word_to_id_", "\n".join(f"word{number} {number}" for number in range(WORDS)).encode()


def pictures() -> Iterator[tuple[str, bytes]]:
    """`image_classification`: pictures of 64 by 64, in a format that is read alike everywhere, and lists of them with classes."""
    draw = random.Random(0)
    for number in range(16):
        yield f"made/{number}.ppm", b"P6 64 64 255\n" + bytes(draw.randrange(256) for _ in range(3 * 64 * 64))
    for name in ("train_list.txt", "val_list.txt"):
        yield name, "\n".join(f"made/{number}.ppm {number % 10}" for number in range(16)).encode()


MADE = {
    "PaddleCV/image_classification/data/ILSVRC2012": pictures,
    "PaddleRec/ctr/din/data": interest_network,
    "PaddleRec/gnn/data/diginetica": sessions,
    "PaddleRec/word2vec/data": corpus,
}

if __name__ == "__main__":
    for folder, make in MADE.items():
        for name, data in make():
            path = Path(sys.argv[1]) / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
