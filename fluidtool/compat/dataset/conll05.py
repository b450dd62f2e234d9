"""`paddle.dataset.conll05`: semantic roles (CoNLL-2005, the WSJ test set, which is the public part).

A sample is nine lists as long as the sentence: word ids; the ids of the words two before, one before, at, one and two after
the verb, each repeated; the verb's id, repeated; 1 for those five words and 0 for others; label ids.

Files, in the folder conll05st:

* conll05st-tests.tar.gz with conll05st-release/test.wsj/words/test.wsj.words.gz (a word a line, an empty line behind each
  sentence) and props/test.wsj.props.gz (a line for each of those: the verb or `-`, then for each verb of the sentence a
  bracket column such as `(A0*`, `*`, `*)`, `(V*)`);
* wordDict.txt, verbDict.txt: one word per line, its id is the line number from 0; word 0 stands for unknown ones;
* targetDict.txt: tags such as B-A0, I-A0, O;
* emb: 16 bytes of header, then a float32 vector for each word.

In Paddle, tags are numbered by the order of a set, which changes from process to process; here by name: B, I, B, I, …, O.
"""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fluidtool.compat.dataset.common import archive_member, data_file, random, synthetic, text_lines
from fluidtool.errors import UnreadableError
from fluidtool.fluid.reader_decorators import Reader

__all__ = ["corpus_reader", "get_dict", "get_embedding", "load_dict", "load_label_dict", "reader_creator", "test"]

UNK_IDX = 0
WORDS = "conll05st-release/test.wsj/words/test.wsj.words.gz"
PROPS = "conll05st-release/test.wsj/props/test.wsj.props.gz"
BEFORE, AFTER = "bos", "eos"
NOUNS, VERBS, TIMES = 30, ["ask", "give", "make", "say", "see", "take"], ["today", "soon", "now"]
VECTOR = 32
DIFFERENT_WORDS, DIFFERENT_VERBS = 44068, 3162  # of the real dictionaries
ROLES = (
    "A0 A1 A2 A3 A4 A5 AA AM-ADV AM-CAU AM-DIR AM-DIS AM-EXT AM-LOC AM-MNR AM-MOD AM-NEG AM-PNC AM-PRD AM-TMP C-A0 C-A1 C-A2 "
    "C-V R-A0 R-A1 R-A2 R-AM-LOC R-AM-TMP V"
)

Tagged = tuple[list[str], str, list[str]]


def load_dict(filename: str | Path) -> dict[str, int]:
    """Ids of the lines of a file."""
    return {line.strip(): number for number, line in enumerate(text_lines(Path(filename).read_bytes(), str(filename)))}


def load_label_dict(filename: str | Path) -> dict[str, int]:
    """Ids of the tags of a file: 2i for B and 2i + 1 for I of the i-th role by name; O is the last."""
    return _label_dict(load_dict(filename))


def _label_dict(tags: Iterable[str]) -> dict[str, int]:
    roles = sorted({tag[2:] for tag in tags if tag.startswith(("B-", "I-"))})
    names = [*(f"{prefix}-{role}" for role in roles for prefix in "BI"), "O"]
    return {name: number for number, name in enumerate(names)}


def get_dict() -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Ids of words, of verbs, and of labels."""
    if synthetic():
        words = ["<unk>", AFTER, BEFORE, "by", *TIMES, *VERBS, *(f"noun{number}" for number in range(NOUNS))]
        tags = _label_dict(f"B-{role}" for role in ROLES.split())
        return _filled_up(words, DIFFERENT_WORDS), _filled_up(VERBS, DIFFERENT_VERBS), tags
    return load_dict(_file("wordDict.txt")), load_dict(_file("verbDict.txt")), load_label_dict(_file("targetDict.txt"))


def _filled_up(words: list[str], size: int) -> dict[str, int]:
    """Ids of words, padded to the size of a real dictionary."""
    return {
        word: index for index, word in enumerate([*words, *(f"rare{number}" for number in range(size - len(words)))])
    }


def get_embedding() -> str:
    """The path of the file of word vectors."""
    return str(_made_up_embedding() if synthetic() else _file("emb"))


def test() -> Reader:
    """The reader of the WSJ test set."""
    if synthetic():
        return reader_creator(lambda: tagged_sentences(_made_up()), *get_dict())
    archive = data_file("conll05", "conll05st-tests.tar.gz", folder_name="conll05st")
    return reader_creator(corpus_reader(str(archive), WORDS, PROPS), *get_dict())


def corpus_reader(data_path: str, words_name: str, props_name: str) -> Callable[[], Iterator[Tagged]]:
    """The reader of (words, verb, tags), one for each verb of each sentence."""

    def reader() -> Iterator[Tagged]:
        words, props = (_unzipped(Path(data_path), name) for name in (words_name, props_name))
        if len(words) != len(props):
            raise UnreadableError(
                f"{data_path}: {words_name} has {len(words)} lines, but {props_name} has {len(props)}"
            )
        return tagged_sentences(zip(words, props, strict=True))

    return reader


def _unzipped(archive: Path, name: str) -> list[str]:
    try:
        return text_lines(gzip.decompress(archive_member(archive, name)), f"{archive}, {name}")
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableError(f"{archive}, {name} is not a complete gzip file: {error}") from error


def tagged_sentences(lines: Iterable[tuple[str, str]]) -> Iterator[Tagged]:
    """(words, verb, tags) of lines of words and of verbs with bracket columns; an empty line ends a sentence."""
    words: list[str] = []
    rows: list[list[str]] = []
    for word, columns in lines:
        if columns.strip():
            words.append(word.strip())
            rows.append(columns.split())
            continue
        if any(len(row) != len(rows[0]) for row in rows):
            raise UnreadableError(f"the words of the sentence {' '.join(words)!r} must have the same number of columns")
        lemmas, *brackets = zip(*rows, strict=True) if rows else [()]
        verbs = [lemma for lemma in lemmas if lemma != "-"]
        if len(verbs) < len(brackets):
            raise UnreadableError(f"{len(brackets)} columns for {len(verbs)} verbs in {' '.join(words)!r}")
        for verb, column in zip(verbs, brackets, strict=False):
            yield words, verb, tags_of(column)
        words, rows = [], []


def tags_of(brackets: Iterable[str]) -> list[str]:
    """B-, I- and O tags of a bracket column; raises UnreadableError for anything but brackets."""
    tags, role, inside = [], "O", False
    for bracket in brackets:
        if "(" in bracket:
            role, inside = bracket[1 : bracket.find("*")], ")" not in bracket
            tags.append(f"B-{role}")
        elif bracket in ("*", "*)"):
            tags.append(f"I-{role}" if inside or bracket == "*)" else "O")
            inside = inside and bracket == "*"
        else:
            raise UnreadableError(f"a role must be written like (A0*, *, *) or (V*), found {bracket!r}")
    return tags


def reader_creator(
    corpus_reader: Callable[[], Iterable[Tagged]],
    word_dict: Mapping[str, int],
    predicate_dict: Mapping[str, int],
    label_dict: Mapping[str, int],
) -> Reader:
    """The reader of the nine lists; verbs and labels outside the dictionaries become None."""

    def reader() -> Iterator[tuple[list[Any], ...]]:
        for words, verb, tags in corpus_reader():
            if "B-V" not in tags:
                raise UnreadableError(f"no word of {' '.join(words)!r} is tagged as the verb {verb!r}")
            length, at = len(words), tags.index("B-V")
            ids = [word_dict.get(word, UNK_IDX) for word in [BEFORE] * 2 + words + [AFTER] * 2]
            around = [[ids[at + offset]] * length for offset in range(5)]
            mark = [int(abs(index - at) <= 2) for index in range(length)]
            labels = [label_dict.get(tag) for tag in tags]
            yield ids[2:-2], *around, [predicate_dict.get(verb)] * length, mark, labels

    return reader


def _file(name: str) -> Path:
    return data_file("conll05", f"conll05st%2F{name}", name, folder_name="conll05st")


def _made_up() -> Iterator[tuple[str, str]]:
    """Sentences in the original format: one asks another, with or without a time, in the active or the passive voice."""
    generator = random("conll05", "test")
    for _ in range(500):
        first, second = (f"noun{number}" for number in generator.integers(0, NOUNS, 2))
        verb, time = VERBS[generator.integers(len(VERBS))], TIMES[generator.integers(len(TIMES))]
        passive, timed = generator.integers(0, 2, 2)
        rows = [(second, "-", "(A1*)" if passive else "(A0*)"), (verb, verb, "(V*)")]
        if passive:
            rows += [("by", "-", "(A0*"), (first, "-", "*)")]
        else:
            rows += [(first, "-", "(A1*)")]
        if timed:
            rows.append((time, "-", "(AM-TMP*)"))
        for word, lemma, bracket in rows:
            yield word, f"{lemma} {bracket}"
        yield "", ""


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed at the end of the process."""
    return tempfile.TemporaryDirectory(prefix="fluidtool-conll05-")


def _made_up_embedding() -> Path:
    path = Path(_folder().name) / "emb"
    vectors = random("conll05", "emb").normal(0, 0.1, (len(get_dict()[0]), VECTOR)).astype("float32")
    path.write_bytes(bytes(16) + vectors.tobytes())
    return path
