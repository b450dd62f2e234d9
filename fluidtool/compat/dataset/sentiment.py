"""`paddle.dataset.sentiment` (NLTK's movie_reviews): samples are (word ids of a review, 0 for a bad one and 1 for a good one).

corpora/movie_reviews.zip holds movie_reviews/neg/*.txt and movie_reviews/pos/*.txt. Words are runs of letters, digits and
underscores, or runs of other signs, as NLTK cuts them. Bad and good reviews alternate; the first 1600 are for training.
As in Paddle, `train` and `test` are readers themselves.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterator

from fluidtool.compat.dataset.common import data_file, random, synthetic
from fluidtool.errors import UnreadableError

__all__ = ["get_word_dict", "test", "train"]

NUM_TRAINING_INSTANCES = 1600
WORD = re.compile(r"\w+|[^\w\s]+")
MADE_UP = 1000
DIFFERENT_WORDS = 39768

Review = tuple[list[str], int]


def get_word_dict() -> list[tuple[str, int]]:
    """(word, id), by falling number; words of the same number as they come first, bad reviews before good ones."""
    return _numbered(_reviews())


def train() -> Iterator[tuple[list[int], int]]:
    """The first 1600 reviews."""
    return iter(_samples()[:NUM_TRAINING_INSTANCES])


def test() -> Iterator[tuple[list[int], int]]:
    """The other reviews."""
    return iter(_samples()[NUM_TRAINING_INSTANCES:])


def _numbered(reviews: list[Review]) -> list[tuple[str, int]]:
    counts = Counter(word for words, _ in reviews for word in words)
    if synthetic():
        counts.update({f"rare{number}": 1 for number in range(DIFFERENT_WORDS - len(counts))})
    return [(word, index) for index, (word, _) in enumerate(counts.most_common())]


def _samples() -> list[tuple[list[int], int]]:
    reviews = _reviews()
    ids = dict(_numbered(reviews))
    bad, good = ([review for review in reviews if review[1] == label] for label in (0, 1))
    pairs = zip(bad, good, strict=False)  # surplus reviews of one side are left out
    return [([ids[word] for word in words], label) for pair in pairs for words, label in pair]


def _reviews() -> list[Review]:
    """The words of the reviews, bad ones before good ones, by file name."""
    return list(_made_up()) if synthetic() else _read()


def _read() -> list[Review]:
    archive = data_file("sentiment", "movie_reviews.zip", folder_name="corpora")
    reviews = []
    try:
        with zipfile.ZipFile(archive) as package:
            for label, kind in enumerate(("neg", "pos")):
                names = [name for name in package.namelist() if name.startswith(f"movie_reviews/{kind}/")]
                for name in sorted(name for name in names if name.endswith(".txt")):
                    reviews.append((WORD.findall(package.read(name).decode("ascii").lower()), label))
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise UnreadableError(f"{archive} must be a zip file with texts in ASCII: {error}") from error
    if not reviews:
        raise UnreadableError(f"{archive} must contain movie_reviews/neg/*.txt and movie_reviews/pos/*.txt")
    return reviews


def _made_up() -> Iterator[Review]:
    """A thousand reviews of each kind, of 10 to 40 of a hundred words; three in four are from the half that goes with it."""
    generator = random("sentiment", "all")
    for label in (0, 1):
        for _ in range(MADE_UP):
            length = int(generator.integers(10, 41))
            halves = (generator.random(length) < 0.25) != bool(label)
            yield [f"word{word}" for word in generator.integers(0, 50, length) + 50 * halves], label
