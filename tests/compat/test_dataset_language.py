"""`paddle.dataset`: roles, translations, reviews of NLTK and ranked documents."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.compat.dataset import conll05, mq2007, sentiment, wmt14, wmt16
from fluidtool.errors import DataFileNotFoundError, UnreadableError, UsageError
from tests.compat.conftest import pack

WORDS = b"the\ncat\nsees\nold\ndogs\n\nit\nruns\n\n"
PROPS = b"- (A0*\n- *)\nsee (V*)\n- (A1*\n- *)\n\n- (A0*)\nrun (V*)\n\n"


def write_conll05(home: Path, words: bytes = WORDS, props: bytes = PROPS) -> None:
    members = {conll05.WORDS: gzip.compress(words), conll05.PROPS: gzip.compress(props)}
    pack(home / "conll05st/conll05st-tests.tar.gz", members)
    (home / "conll05st/wordDict.txt").write_text("<unk>\nbos\neos\nthe\ncat\nsees\nold\nruns\n")
    (home / "conll05st/verbDict.txt").write_text("run\nsee\n")
    (home / "conll05st/targetDict.txt").write_text("B-A1\nI-A1\nB-V\nI-V\nO\nB-A0\nI-A0\n")


def test_conll05_gives_words_context_verb_mark_and_labels(home: Path) -> None:
    write_conll05(home)
    first, second = conll05.test()()
    assert first == (
        [3, 4, 5, 6, 0],
        [3] * 5,
        [4] * 5,
        [5] * 5,
        [6] * 5,
        [0] * 5,
        [1] * 5,
        [1, 1, 1, 1, 1],
        [0, 1, 4, 2, 3],
    )
    assert second == ([0, 7], [1] * 2, [0] * 2, [7] * 2, [2] * 2, [2] * 2, [0] * 2, [1, 1], [0, 4])


def test_conll05_numbers_labels_by_role_with_outside_last(home: Path) -> None:
    write_conll05(home)
    assert conll05.get_dict()[2] == {"B-A0": 0, "I-A0": 1, "B-A1": 2, "I-A1": 3, "B-V": 4, "I-V": 5, "O": 6}


def test_conll05_gives_a_sentence_for_each_of_its_verbs() -> None:
    lines = [("he", "- (A0*) (A0*)"), ("came", "come (V*) *"), ("and", "- * *"), ("saw", "see * (V*)"), ("", "")]
    assert list(conll05.tagged_sentences(lines)) == [
        (["he", "came", "and", "saw"], "come", ["B-A0", "B-V", "O", "O"]),
        (["he", "came", "and", "saw"], "see", ["B-A0", "O", "O", "B-V"]),
    ]


@pytest.mark.parametrize(
    ("brackets", "tags"),
    [
        (["(A1*", "*", "*)", "*"], ["B-A1", "I-A1", "I-A1", "O"]),
        (["*", "(A1*)", "*"], ["O", "B-A1", "O"]),
        (["(A0*)", "(A1*", "*)"], ["B-A0", "B-A1", "I-A1"]),
    ],
)
def test_brackets_become_tags(brackets: list[str], tags: list[str]) -> None:
    assert conll05.tags_of(brackets) == tags


@pytest.mark.parametrize(
    ("words", "props", "message"),
    [
        (b"a\n\n", b"run A0\n\n", "found 'A0'"),
        (b"a\nb\n\n", b"run (V*)\n-\n\n", "'a b' must have the same number of columns"),
        (b"a\n\n", b"- (V*)\n\n", "1 columns for 0 verbs in 'a'"),
        (b"a\n\n", b"run (A0*)\n\n", "no word of 'a' is tagged as the verb 'run'"),
        (b"a\n", b"run (V*)\n\n", "words.gz has 1 lines, but .*props.gz has 2"),
    ],
)
def test_conll05_with_other_lines(home: Path, words: bytes, props: bytes, message: str) -> None:
    write_conll05(home, words, props)
    with pytest.raises(UnreadableError, match=message):
        list(conll05.test()())


def test_conll05_with_a_damaged_member(home: Path) -> None:
    write_conll05(home)
    pack(home / "conll05st/conll05st-tests.tar.gz", {conll05.WORDS: b"text", conll05.PROPS: b"text"})
    with pytest.raises(UnreadableError, match=r"test\.wsj\.words\.gz is not a complete gzip file"):
        list(conll05.test()())


SOURCE, TARGET = b"<s>\n<e>\n<unk>\na\nb\n", "<s>\n<e>\n<unk>\nété\nx\n".encode()


def write_wmt14(home: Path, train: bytes, target: bytes = TARGET) -> None:
    members = {"d/src.dict": SOURCE, "d/trg.dict": target, "d/train/train": train, "d/test/test": b"b\tx\n"}
    pack(home / "wmt14/wmt14.tgz", members)


def test_wmt14_gives_source_target_and_next_words(home: Path) -> None:
    write_wmt14(home, "a b c\tété x y\nno tab\n".encode())
    assert list(wmt14.train(5)()) == [([0, 3, 4, 2, 1], [0, 3, 4, 2], [3, 4, 2, 1])]
    assert list(wmt14.train(4)()) == [([0, 3, 2, 2, 1], [0, 3, 2, 2], [3, 2, 2, 1])]
    assert list(wmt14.test(5)()) == [([0, 4, 1], [0, 4], [4, 1])]
    assert list(wmt14.gen(5)()) == []
    assert wmt14.get_dict(4)[1] == {0: "<s>", 1: "<e>", 2: "<unk>", 3: "été"}
    assert wmt14.get_dict(4, reverse=False)[0] == {"<s>": 0, "<e>": 1, "<unk>": 2, "a": 3}


def test_wmt14_leaves_out_pairs_of_more_than_80_words(home: Path) -> None:
    long = [b" ".join([b"a"] * count) + b"\tx\n" for count in (78, 79)]
    write_wmt14(home, b"".join(long) + b"a\t" + b" ".join([b"x"] * 81))
    assert [len(source) for source, _, _ in wmt14.train(5)()] == [80]


def test_wmt14_needs_the_marks_and_one_dictionary(home: Path) -> None:
    write_wmt14(home, b"a\tx\n")
    with pytest.raises(UnreadableError, match=r"the 1 first words of trg\.dict must include <e>"):
        list(wmt14.train(1)())
    pack(home / "wmt14/wmt14.tgz", {"a/src.dict": SOURCE, "b/src.dict": SOURCE})
    with pytest.raises(UnreadableError, match=r"must contain one file src\.dict, found 2"):
        wmt14.get_dict(5)
    write_wmt14(home, b"a\tx\n", b"\xff")
    with pytest.raises(UnreadableError, match=r"trg\.dict must be UTF-8 text"):
        wmt14.get_dict(5)


def write_wmt16(home: Path) -> None:
    train = "a dog\tein Hund\na cat sees a dog\teine Katze sieht einen Hund\n"
    members = {"wmt16/train": train, "wmt16/test": "dog\tHund\n", "wmt16/val": "cat x\tKatze\n"}
    pack(home / "wmt16/wmt16.tar.gz", {name: text.encode() for name, text in members.items()})


def test_wmt16_numbers_words_by_how_often_and_how_early_they_come(home: Path) -> None:
    write_wmt16(home)
    assert wmt16.get_dict("en", 100) == {"<s>": 0, "<e>": 1, "<unk>": 2, "a": 3, "dog": 4, "cat": 5, "sees": 6}
    assert wmt16.get_dict("de", 5, reverse=True) == {0: "<s>", 1: "<e>", 2: "<unk>", 3: "Hund", 4: "ein"}


def test_wmt16_translates_both_ways(home: Path) -> None:
    write_wmt16(home)
    assert next(iter(wmt16.train(100, 5)())) == ([0, 3, 4, 1], [0, 4, 3], [4, 3, 1])
    assert list(wmt16.test(5, 100, src_lang="de")()) == [([0, 3, 1], [0, 4], [4, 1])]
    assert list(wmt16.validation(100, 100)()) == [([0, 5, 2, 1], [0, 6], [6, 1])]


def test_wmt16_takes_the_dictionary_that_paddle_wrote_if_it_is_complete(home: Path) -> None:
    write_wmt16(home)
    (home / "wmt16/en_4.dict").write_text("<s>\n<e>\n<unk>\ncat\n")
    (home / "wmt16/en_5.dict").write_text("<s>\n<e>\n<unk>\ncat\n")
    assert wmt16.get_dict("en", 4)["cat"] == 3
    assert "cat" not in wmt16.get_dict("en", 5)


def test_wmt16_refuses_other_languages_and_sizes(home: Path) -> None:
    with pytest.raises(UsageError, match=r"'en' .* or 'de' .*, found 'fr'"):
        wmt16.train(10, 10, src_lang="fr")
    with pytest.raises(UsageError, match="room for <s>, <e>, <unk>, found the size 2"):
        wmt16.get_dict("de", 2)


def write_reviews(home: Path, reviews: dict[str, str]) -> None:
    with zipfile.ZipFile(home / "corpora/movie_reviews.zip", "w") as package:
        for name, text in reviews.items():
            package.writestr(f"movie_reviews/{name}", text)


def test_sentiment_cuts_words_from_signs_and_lets_kinds_alternate(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reviews = {
        "pos/b.txt": "good !",
        "pos/a.txt": "good film...",
        "neg/z.txt": "it's bad",
        "neg/c.txt": "bad",
        "README": "x",
    }
    write_reviews(home, reviews)
    monkeypatch.setattr(sentiment, "NUM_TRAINING_INSTANCES", 3)
    words = dict(sentiment.get_word_dict())
    assert list(words) == ["bad", "good", "it", "'", "s", "film", "...", "!"]
    assert list(sentiment.train()) == [([0], 0), ([1, 5, 6], 1), ([2, 3, 4, 0], 0)]
    assert list(sentiment.test()) == [([1, 7], 1)]


def test_sentiment_with_another_archive(home: Path) -> None:
    write_reviews(home, {"neutral/a.txt": "x"})
    with pytest.raises(UnreadableError, match=r"must contain movie_reviews/neg/\*\.txt and movie_reviews/pos/\*\.txt"):
        sentiment.get_word_dict()
    (home / "corpora/movie_reviews.zip").write_bytes(b"PK")
    with pytest.raises(UnreadableError, match="must be a zip file"):
        sentiment.train()


def document(rank: int, query: int, value: float) -> str:
    return f"{rank} qid:{query} {' '.join(f'{i}:{value}' for i in range(1, 47))} #docid = d{rank}\n"


@pytest.fixture
def ranked(home: Path) -> Path:
    path = home / "MQ2007/Fold1/train.txt"
    path.parent.mkdir()
    path.write_text(
        document(0, 5, 0.5) + document(2, 5, 0.25) + document(0, 6, 1) + document(0, 5, 3) + document(1, 5, 4)
    )
    return path


def test_mq2007_gives_pairs_of_different_rank(ranked: Path) -> None:
    pairs = [(better[0], worse[0]) for _, better, worse in mq2007.train(format="pairwise")]
    assert pairs == [(0.25, 0.5), (4, 3)]
    label, better, _ = next(mq2007.train())
    assert (label.tolist(), better.shape) == ([1], (46,))


def test_mq2007_gives_lists_with_the_best_first(ranked: Path) -> None:
    (ranks, features), _ = mq2007.train(format="listwise")
    assert (ranks.tolist(), features[:, 45].tolist()) == ([[2], [0]], [0.25, 0.5])
    assert [(rank, row[0]) for rank, row in mq2007.train(format="pointwise")] == [(2, 0.25), (1, 4)]
    assert [(query, rank) for query, rank, _ in mq2007.train(format="plain_txt")] == [(5, 2), (5, 1)]


def test_mq2007_keeps_what_is_said_of_a_document(ranked: Path) -> None:
    assert mq2007.load_from_text(ranked)[0][1].description == "docid = d2"


@pytest.mark.parametrize(
    "line", ["1 qid:3 1:0.5", document(1, 2, 1).replace("7:", "7"), document(1, 2, 1).replace("qid:", "")]
)
def test_mq2007_with_other_lines(ranked: Path, line: str) -> None:
    ranked.write_text(line)
    with pytest.raises(UnreadableError, match=r"train\.txt must have lines of a rank, qid:number and 46 features"):
        list(mq2007.train())


def test_mq2007_refuses_other_formats(ranked: Path) -> None:
    with pytest.raises(UsageError, match="pairwise, listwise, pointwise, plain_txt, found 'listed'"):
        mq2007.train(format="listed")


MISSING: list[tuple[Callable[[], Any], str]] = [
    (conll05.test, "conll05st/conll05st-tests.tar.gz"),
    (conll05.get_dict, "conll05st/conll05st%2FwordDict.txt"),
    (conll05.get_embedding, "conll05st/conll05st%2Femb"),
    (lambda: list(wmt14.train(30)()), "wmt14/wmt14.tgz"),
    (lambda: wmt16.get_dict("en", 30), "wmt16/wmt16.tar.gz"),
    (sentiment.train, "corpora/movie_reviews.zip"),
    (lambda: list(mq2007.test()), "MQ2007/MQ2007/MQ2007/Fold1/test.txt"),
]


@pytest.mark.parametrize(("call", "file"), MISSING)
def test_a_missing_file_is_named(home: Path, call: Callable[[], Any], file: str) -> None:
    with pytest.raises(DataFileNotFoundError) as caught:
        call()
    assert f"needs the file {home / file}, which is missing" in str(caught.value)


@pytest.mark.usefixtures("made_up")
def test_made_up_roles_have_the_shapes_of_real_ones() -> None:
    words, verbs, labels = conll05.get_dict()
    samples = list(conll05.test()())
    assert len(samples) == 500
    for sample in samples:
        assert {len(column) for column in sample} == {len(sample[0])}
        assert max(sample[0]) < len(words) and max(sample[6]) < len(verbs) and max(sample[8]) < len(labels)
        assert 0 not in sample[0]
    assert {label for sample in samples for label in sample[8]} >= {labels["B-A0"], labels["I-A0"], labels["B-AM-TMP"]}


@pytest.mark.usefixtures("made_up")
def test_made_up_word_vectors_have_a_header_and_a_row_for_each_word() -> None:
    data = Path(conll05.get_embedding()).read_bytes()
    assert np.frombuffer(data, "float32", offset=16).reshape(len(conll05.get_dict()[0]), 32).std() > 0.05


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("reader", [wmt14.train(30), wmt16.validation(30, 60), wmt16.train(60, 30, "de")])
def test_made_up_translations_move_the_first_word(reader: Any) -> None:
    samples = list(reader())
    assert samples == list(reader()) and len(samples) >= 200
    assert all(source[0] == 0 and source[-1] == 1 and len(source) == len(after) + 1 for source, _, after in samples)
    assert all(before[1:] == after[:-1] for _, before, after in samples)


@pytest.mark.usefixtures("made_up")
def test_made_up_reviews_and_ranks() -> None:
    train, test = list(sentiment.train()), list(sentiment.test())
    assert (len(train), len(test)) == (1600, 400)
    assert [label for _, label in train[:4]] == [0, 1, 0, 1]
    assert len(list(mq2007.train())) > 500 and len(list(mq2007.test(format="listwise"))) > 10
