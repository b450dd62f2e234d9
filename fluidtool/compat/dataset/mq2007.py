"""`paddle.dataset.mq2007` (LETOR 4.0): documents with 46 features each, ranked 0 to 2 for a query.

The package is a .rar archive, which is to be unpacked into the folder MQ2007, so that MQ2007/MQ2007/MQ2007/Fold1/train.txt
is there (or MQ2007/Fold1/train.txt). A line is `2 qid:10032 1:0.056537 … 46:0.076923 #docid = …`, and the documents of a
query stand together. Queries without a relevant document are left out. `train` and `test` are readers themselves; formats
are "pairwise": ([1], features of the better, of the worse document), for each pair of different rank;
"listwise": (ranks [n, 1], features [n, 46]), best first; "pointwise": (rank, features), and "plain_txt": (query, rank,
features), as in Paddle for the best document of a query alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.compat.dataset.common import data_file, random, synthetic, text_lines
from fluidtool.errors import UnreadableError, UsageError
from fluidtool.records import dataclass

__all__ = ["Query", "load_from_text", "test", "train"]

FEATURES = 46
DOCUMENT = re.compile(rf"\s*(?P<rank>\d+)\s+qid:(?P<query>\d+)(?P<features>(?:\s+\d+:[-+.\deE]+){{{FEATURES}}})\s*")
MADE_UP = {"train.txt": 60, "test.txt": 20}


@dataclass(frozen=True)
class Query:
    """A document for a query: how relevant it is (0 to 2), its features, and what is said of it."""

    query_id: int
    relevance_score: int
    feature_vector: list[float]
    description: str = ""


def train(format: str = "pairwise", shuffle: bool = False, fill_missing: float = -1) -> Iterator[Any]:
    """Fold1/train.txt in a format; `shuffle` and `fill_missing` do nothing, as in Paddle."""
    return _samples("train.txt", format)


def test(format: str = "pairwise", shuffle: bool = False, fill_missing: float = -1) -> Iterator[Any]:
    """Fold1/test.txt in a format; `shuffle` and `fill_missing` do nothing, as in Paddle."""
    return _samples("test.txt", format)


def load_from_text(filepath: str | Path) -> list[list[Query]]:
    """The documents of a file, a list for each query."""
    return _grouped(text_lines(Path(filepath).read_bytes(), str(filepath)), str(filepath))


def _grouped(lines: Iterable[str], source: str) -> list[list[Query]]:
    documents = [_parsed(line, source) for line in lines]
    return [list(group) for _, group in groupby(documents, key=lambda document: document.query_id)]


def _parsed(line: str, source: str) -> Query:
    values, _, description = line.partition("#")
    found = DOCUMENT.fullmatch(values)
    if found is None:
        raise UnreadableError(
            f"{source} must have lines of a rank, qid:number and {FEATURES} features such as 1:0.5, found {line[:60]!r}"
        )
    features = [float(feature.partition(":")[2]) for feature in found["features"].split()]
    return Query(int(found["query"]), int(found["rank"]), features, description.strip())


def _samples(part: str, format: str) -> Iterator[Any]:
    formats = {"pairwise": _pairs, "listwise": _listed, "pointwise": _best, "plain_txt": _best_with_query}
    if format not in formats:
        raise UsageError(f"a format of mq2007 is one of {', '.join(formats)}, found {format!r}")
    return _in_format(part, formats[format])


def _in_format(part: str, make: Any) -> Iterator[Any]:
    for documents in _queries(part):
        if any(document.relevance_score for document in documents):
            yield from make(sorted(documents, key=lambda document: -document.relevance_score))


def _queries(part: str) -> list[list[Query]]:
    if synthetic():
        return _grouped(_made_up(part), f"the made-up {part}")
    names = (f"MQ2007/MQ2007/Fold1/{part}", f"Fold1/{part}")
    return load_from_text(data_file("mq2007", *names, folder_name="MQ2007"))


def _pairs(documents: list[Query]) -> Iterator[tuple[Any, Any, Any]]:
    for better, worse in combinations(documents, 2):
        if better.relevance_score > worse.relevance_score:
            yield np.array([1]), np.array(better.feature_vector), np.array(worse.feature_vector)


def _listed(documents: list[Query]) -> Iterator[tuple[Any, Any]]:
    ranks = np.array([[document.relevance_score] for document in documents])
    yield ranks, np.array([document.feature_vector for document in documents])


def _best(documents: list[Query]) -> Iterator[tuple[int, Any]]:
    yield documents[0].relevance_score, np.array(documents[0].feature_vector)


def _best_with_query(documents: list[Query]) -> Iterator[tuple[int, int, Any]]:
    yield documents[0].query_id, documents[0].relevance_score, np.array(documents[0].feature_vector)


def _made_up(part: str) -> Iterator[str]:
    """Eight documents for each query; a weighted sum of the features, under noise, makes the rank."""
    weights = random("mq2007", "weights").normal(0, 1, FEATURES)
    generator = random("mq2007", part)
    for query in range(1, MADE_UP[part] + 1):
        for number in range(8):
            features = generator.random(FEATURES)
            fit = (features - 0.5) @ weights + generator.normal(0, 0.2)
            values = " ".join(f"{index}:{value:.6f}" for index, value in enumerate(features, start=1))
            yield f"{int(fit > 0.5) + int(fit > 1.5)} qid:{query} {values} #docid = {query}-{number}"
