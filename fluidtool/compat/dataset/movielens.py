"""`paddle.dataset.movielens`: samples are [user id, 0 for a man, age group, job, film id, categories, title, [rating]].

Ratings run from -3 to 5 (Paddle 1.8.5: stars · 2 - 5). Words of titles and categories are numbered by name; in Paddle their
numbers change from process to process.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator

import numpy as np

from fluidtool.compat.dataset.common import data_file, random, synthetic
from fluidtool.errors import UnreadableError
from fluidtool.fluid.reader_decorators import Reader
from fluidtool.records import dataclass

__all__ = [
    "age_table",
    "get_movie_title_dict",
    "max_job_id",
    "max_movie_id",
    "max_user_id",
    "movie_categories",
    "movie_info",
    "test",
    "train",
    "user_info",
]

ARCHIVES = ("movielens%2Fml-1m.zip", "ml-1m.zip")
TEST_SHARE = 0.1
GENRES = (
    "Action Adventure Animation Children's Comedy Crime Documentary Drama Fantasy Film-Noir Horror Musical Mystery Romance Sci-Fi "
    "Thriller War Western"
)
USERS, RATINGS, LAST_FILM, NO_FILM = 6040, 8000, 3952, 57  # there are 3,883 films: every 57th number is unused
SEQUELS = 1312  # with their words titles have 5,174 different ones

age_table = [1, 18, 25, 35, 45, 50, 56]


@dataclass(frozen=True)
class MovieInfo:
    """A film: its id, its categories by name, its title without the year."""

    index: int
    categories: tuple[str, ...]
    title: str


@dataclass(frozen=True)
class UserInfo:
    """A user: id, sex, position in `age_table`, job."""

    index: int
    is_male: bool
    age: int
    job_id: int

    def value(self) -> list[int]:
        """The numbers of a sample."""
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]


def train() -> Reader:
    """The reader of nine tenths of the ratings, drawn with seed 0."""
    return lambda: _samples(False)


def test() -> Reader:
    """The reader of the other tenth of the ratings."""
    return lambda: _samples(True)


def movie_info() -> dict[int, MovieInfo]:
    """The films by id."""
    films = {}
    for number, title, categories in _rows("movies", 3):
        without_year = re.match(r"^(.*)\((\d+)\)$", title)
        name = title if without_year is None else without_year.group(1)
        films[int(number)] = MovieInfo(int(number), tuple(categories.split("|")), name)
    return films


def user_info() -> dict[int, UserInfo]:
    """The users by id."""
    return {
        int(number): UserInfo(int(number), sex == "M", age_table.index(int(age)), int(job))
        for number, sex, age, job, _ in _rows("users", 5)
    }


def get_movie_title_dict() -> dict[str, int]:
    """Ids of the words of titles, in lower case."""
    return _numbered({word.lower() for film in movie_info().values() for word in film.title.split()})


def movie_categories() -> dict[str, int]:
    """Ids of the categories."""
    return _numbered({category for film in movie_info().values() for category in film.categories})


def max_movie_id() -> int:
    """The greatest id of a film."""
    return max(movie_info())


def max_user_id() -> int:
    """The greatest id of a user."""
    return max(user_info())


def max_job_id() -> int:
    """The greatest job."""
    return max(user.job_id for user in user_info().values())


def _samples(is_test: bool) -> Iterator[list[object]]:
    films, users, words, genres = movie_info(), user_info(), get_movie_title_dict(), movie_categories()
    draw = np.random.RandomState(0)
    for user, number, stars, _ in _rows("ratings", 4):
        if (draw.random_sample() < TEST_SHARE) == is_test:
            film = films[int(number)]
            categories = [genres[category] for category in film.categories]
            title = [words[word.lower()] for word in film.title.split()]
            yield [*users[int(user)].value(), film.index, categories, title, [float(stars) * 2 - 5.0]]


def _numbered(names: set[str]) -> dict[str, int]:
    return {name: index for index, name in enumerate(sorted(names))}


def _rows(table: str, columns: int) -> Iterator[list[str]]:
    for line in _made_up(table) if synthetic() else _read(table):
        row = line.strip().split("::")
        if len(row) != columns:
            raise UnreadableError(f"ml-1m/{table}.dat must have {columns} columns, found the line {line.strip()!r}")
        yield row


def _read(table: str) -> Iterator[str]:
    archive = data_file("movielens", *ARCHIVES)
    try:
        with zipfile.ZipFile(archive) as package, package.open(f"ml-1m/{table}.dat") as file:
            for line in file:
                yield line.decode("latin1")
    except (zipfile.BadZipFile, KeyError) as error:
        raise UnreadableError(f"{archive} must be a zip file with ml-1m/{table}.dat: {error}") from error


def _made_up(table: str) -> Iterator[str]:
    """As many films, users, words and categories as there are; whether user and film are both even or both odd makes most of a
    rating.
    """
    generator, genres = random("movielens", table), GENRES.split()
    if table == "movies":
        for film in (number for number in range(1, LAST_FILM + 1) if number % NO_FILM):
            title = f"Film number {film}" if film > SEQUELS else f"Film number {film} sequel{film}"
            yield f"{film}::{title} (19{film % 70 + 30})::{genres[film % 18]}|{genres[(film // 18 + 1) % 18]}"
    elif table == "users":
        for user in range(1, USERS + 1):
            yield f"{user}::{'MF'[user % 2]}::{age_table[user % 7]}::{user % 21}::00000"
    else:
        for _ in range(RATINGS):
            user, film = int(generator.integers(1, USERS + 1)), int(generator.integers(1, LAST_FILM + 1))
            film -= not film % NO_FILM
            stars = (4 if user % 2 == film % 2 else 2) + int(generator.integers(-1, 2))
            yield f"{user}::{film}::{stars}::0"
