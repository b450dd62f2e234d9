"""`paddle.dataset`: what is read from files in their original formats, what is made up, and what is said without files."""

from __future__ import annotations

import gzip
import pickle
import re
import struct
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.compat.dataset import (
    cifar,
    conll05,
    imdb,
    imikolov,
    mnist,
    movielens,
    sentiment,
    uci_housing,
    wmt14,
    wmt16,
)
from fluidtool.compat.dataset.common import md5file
from fluidtool.errors import DataFileNotFoundError, UnreadableError, UnsafePickleError, UsageError
from tests.compat.conftest import pack


def write_mnist(home: Path, part: str, labels: bytes, magic: int = 2051) -> None:
    pixels = bytes(range(256)) * 4
    images = b"".join(pixels[index : index + 784] for index in range(len(labels)))
    header = struct.pack(">4I", magic, len(labels), 28, 28)
    (home / f"mnist/{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images))
    data = struct.pack(">2I", 2049, len(labels)) + labels
    (home / f"mnist/{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(data))


def test_mnist_reads_files_of_any_name(home: Path) -> None:
    write_mnist(home, "train", b"\x03\x09")
    paths = [str(home / f"mnist/train-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1")]
    assert [label for _, label in mnist.reader_creator(*paths, 100)()] == [3, 9]


def test_mnist_gives_pixels_from_minus_one_to_one(home: Path) -> None:
    write_mnist(home, "train", b"\x03\x09")
    write_mnist(home, "t10k", b"\x01")
    (first, three), (second, nine) = mnist.train()()
    assert (first.shape, first.dtype, three, nine) == ((784,), np.float32, 3, 9)
    np.testing.assert_allclose(first[[0, 51, 255]], [-1, -0.6, 1], rtol=0, atol=1e-7)
    assert second[0] == first[1]
    assert [label for _, label in mnist.test()()] == [1]


def test_mnist_with_other_files(home: Path) -> None:
    write_mnist(home, "train", b"\x03", magic=7)
    with pytest.raises(UnreadableError, match=r"train-images.* must begin with 2051, not 7"):
        list(mnist.train()())
    (home / "mnist/train-images-idx3-ubyte.gz").write_bytes(b"text")
    with pytest.raises(UnreadableError, match=r"train-images-idx3-ubyte\.gz is not a complete gzip file"):
        list(mnist.train()())


def test_mnist_with_more_images_than_labels(home: Path) -> None:
    write_mnist(home, "train", b"\x03\x04")
    data = struct.pack(">2I", 2049, 1) + b"\x03"
    (home / "mnist/train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(data))
    with pytest.raises(UnreadableError, match=r"has 2 images, but .* has 1 labels"):
        list(mnist.train()())


def test_uci_housing_scales_features_by_mean_and_range(home: Path) -> None:
    rows = np.arange(70.0).reshape(5, 14)
    np.savetxt(home / "uci_housing/housing.data", rows)
    train, test = list(uci_housing.train()()), list(uci_housing.test()())
    assert (len(train), len(test)) == (4, 1)
    features, price = train[0]
    np.testing.assert_allclose(features, np.full(13, -0.5), rtol=1e-15)
    np.testing.assert_array_equal(price, [13.0])
    np.testing.assert_array_equal(uci_housing.predict_reader()[0], test[0][0])


@pytest.mark.parametrize(("text", "message"), [("1 2 3", "found 3 numbers"), ("1 x", "must contain only numbers")])
def test_uci_housing_with_another_file(home: Path, text: str, message: str) -> None:
    (home / "uci_housing/housing.data").write_text(text)
    with pytest.raises(UnreadableError, match=message):
        uci_housing.train()


@pytest.fixture
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test loads is forgotten after it."""
    monkeypatch.setattr(uci_housing, "UCI_TRAIN_DATA", None)
    monkeypatch.setattr(uci_housing, "UCI_TEST_DATA", None)


@pytest.mark.usefixtures("nothing_loaded")
def test_uci_housing_loads_a_file_of_any_name_once(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "mine.data", np.arange(12.0).reshape(4, 3))
    np.savetxt(tmp_path / "other.data", np.zeros((2, 3)))
    uci_housing.load_data(str(tmp_path / "mine.data"), feature_num=3, ratio=0.5)
    uci_housing.load_data(str(tmp_path / "other.data"), feature_num=3)
    np.testing.assert_array_equal(uci_housing.UCI_TRAIN_DATA, [[-0.5, -0.5, 2], [-0.5 / 3, -0.5 / 3, 5]])
    np.testing.assert_array_equal(uci_housing.UCI_TEST_DATA, [[0.5 / 3, 0.5 / 3, 8], [0.5, 0.5, 11]])
    assert [float(price[0]) for _, price in uci_housing.train()()] == [2, 5]
    assert [float(price[0]) for _, price in uci_housing.test()()] == [8, 11]
    np.testing.assert_array_equal(uci_housing.predict_reader()[0], [0.5 / 3, 0.5 / 3])


@pytest.mark.usefixtures("nothing_loaded")
def test_uci_housing_refuses_to_load_rows_of_another_width(tmp_path: Path) -> None:
    (tmp_path / "mine.data").write_text("1 2 3")
    with pytest.raises(UnreadableError, match=r"mine\.data must have 14 numbers per house, found 3 numbers in all"):
        uci_housing.load_data(str(tmp_path / "mine.data"))
    assert uci_housing.UCI_TRAIN_DATA is None


def test_the_model_of_houses_is_unpacked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = home / "uci_housing/fit_a_line.fluid.tar"
    pack(archive, {"__model__": b"program", "fc_0.w_0": b"weights"})
    monkeypatch.setattr(uci_housing, "FLUID_MD5_MODEL", md5file(archive))
    files = {path.name: path.read_bytes() for path in Path(uci_housing.fluid_model()).iterdir()}
    assert files == {"__model__": b"program", "fc_0.w_0": b"weights"}


def test_a_model_of_houses_that_leaves_its_folder_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = home / "uci_housing/fit_a_line.fluid.tar"
    pack(archive, {"../../outside": b"program"})
    monkeypatch.setattr(uci_housing, "FLUID_MD5_MODEL", md5file(archive))
    with pytest.raises(UnreadableError, match=r"fit_a_line\.fluid\.tar is not a complete tar file: .*outside"):
        uci_housing.fluid_model()


def test_cifar_reads_archives_of_any_name(tmp_path: Path) -> None:
    batch = pickle.dumps({b"data": np.zeros((2, 3072), "uint8"), b"labels": [4, 2]}, protocol=2)
    pack(tmp_path / "food.tar.gz", {"mine/data_batch_0": batch, "mine/other": b"?"})
    archive = str(tmp_path / "food.tar.gz")
    assert [label for _, label in cifar.reader_creator(archive, "data_batch_0")()] == [4, 2]
    assert [label for _, label in islice(cifar.reader_creator(archive, "data_batch_0", True)(), 3)] == [4, 2, 4]


def test_cifar_with_an_archive_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "food.tar.gz").write_text("text")
    with pytest.raises(UnreadableError, match=r"food\.tar\.gz is not a complete tar file"):
        list(cifar.reader_creator(str(tmp_path / "food.tar.gz"), "data_batch_0")())


def test_cifar_reads_the_batches_of_its_part(home: Path) -> None:
    def batch(value: int) -> bytes:
        return pickle.dumps({b"data": np.full((2, 3072), value, "uint8"), b"labels": [value, value + 1]}, protocol=2)

    members = {"c/data_batch_1": batch(0), "c/data_batch_2": batch(5), "c/test_batch": batch(8), "c/meta": b"?"}
    pack(home / "cifar/cifar-10-python.tar.gz", members)
    samples = list(cifar.train10()())
    assert [label for _, label in samples] == [0, 1, 5, 6]
    assert samples[0][0].dtype == np.float32
    np.testing.assert_allclose(samples[2][0], np.full(3072, 5 / 255), rtol=1e-6)
    assert [label for _, label in islice(cifar.test10(cycle=True)(), 5)] == [8, 9, 8, 9, 8]


def test_cifar_takes_fine_labels(home: Path) -> None:
    batch = {b"data": np.zeros((1, 3072), "uint8"), b"fine_labels": [77], b"coarse_labels": [7]}
    pack(home / "cifar/cifar-100-python.tar.gz", {"c/train": pickle.dumps(batch, protocol=2)})
    assert [label for _, label in cifar.train100()()] == [77]


def test_cifar_runs_no_code_of_a_pickle(home: Path) -> None:
    pack(home / "cifar/cifar-10-python.tar.gz", {"c/test_batch": b"cos\nsystem\n(S'false'\ntR."})
    with pytest.raises(UnsafePickleError):
        list(cifar.test10()())


def test_imdb_counts_words_without_case_and_punctuation(home: Path) -> None:
    reviews = {
        "aclImdb/train/neg/0_1.txt": b"Bad, bad film!\n",
        "aclImdb/train/pos/0_9.txt": b"Good film\n",
        "aclImdb/test/pos/0_9.txt": b"unseen film\n",
        "aclImdb/train/urls.txt": b"bad bad bad\n",
    }
    pack(home / "imdb/aclImdb_v1.tar.gz", reviews)
    words = imdb.build_dict(re.compile(r"aclImdb/train/(pos|neg)/.*\.txt$"), 0)
    assert words == {b"bad": 0, b"film": 1, b"good": 2, "<unk>": 3}
    assert list(imdb.train(words)()) == [([2, 1], 0), ([0, 0, 1], 1)]
    assert list(imdb.test(words)()) == [([3, 1], 0)]


def test_imikolov_gives_ngrams_and_sentences(home: Path) -> None:
    members = {
        "./simple-examples/data/ptb.train.txt": b" a b a \n b \n",
        "./simple-examples/data/ptb.valid.txt": b" a c \n",
    }
    pack(home / "imikolov/imikolov%2Fsimple-examples.tgz", members)
    words = imikolov.build_dict(1)
    assert words == {"<e>": 0, "<s>": 1, b"a": 2, b"b": 3, "<unk>": 4}
    assert list(imikolov.train(words, 3)()) == [(1, 2, 3), (2, 3, 2), (3, 2, 0), (1, 3, 0)]
    assert list(imikolov.test(words, -1, imikolov.DataType.SEQ)()) == [([1, 2, 4], [2, 4, 0])]
    assert list(imikolov.train(words, 3, imikolov.DataType.SEQ)()) == [([1, 3], [3, 0])]


def test_imikolov_refuses_other_kinds_of_samples(home: Path) -> None:
    with pytest.raises(UsageError, match=r"NGRAM or DataType\.SEQ, found 3"):
        imikolov.train({"<unk>": 0}, 2, 3)
    with pytest.raises(UsageError, match="must not be negative, found -1"):
        imikolov.train({"<unk>": 0}, -1)


def test_imikolov_archive_without_the_file(home: Path) -> None:
    pack(home / "imikolov/simple-examples.tgz", {"other": b""})
    with pytest.raises(UnreadableError, match=r"must contain one file simple-examples/data/ptb\.train\.txt, found 0"):
        imikolov.build_dict()


def write_movielens(home: Path, ratings: str) -> None:
    with zipfile.ZipFile(home / "movielens/ml-1m.zip", "w") as package:
        package.writestr(
            "ml-1m/movies.dat", "3::Café Noir (1999)::Drama|Comedy\n9::Noir (2000)::Drama\n".encode("latin1")
        )
        package.writestr("ml-1m/users.dat", "1::F::25::4::12345\n2::M::1::20::12345\n")
        package.writestr("ml-1m/ratings.dat", ratings)


def test_movielens_joins_ratings_with_users_and_films(home: Path) -> None:
    write_movielens(home, "1::3::5::9\n2::9::1::9\n")
    assert movielens.get_movie_title_dict() == {"café": 0, "noir": 1}
    assert movielens.movie_categories() == {"Comedy": 0, "Drama": 1}
    assert (movielens.max_movie_id(), movielens.max_user_id(), movielens.max_job_id()) == (9, 2, 20)
    assert list(movielens.train()()) == [
        [1, 1, 2, 4, 3, [1, 0], [0, 1], [5.0]],
        [2, 0, 0, 20, 9, [1], [1], [-3.0]],
    ]
    assert list(movielens.test()()) == []


def test_movielens_with_other_rows(home: Path) -> None:
    write_movielens(home, "1::3::5\n")
    with pytest.raises(UnreadableError, match=r"ratings\.dat must have 4 columns, found the line '1::3::5'"):
        list(movielens.train()())
    (home / "movielens/ml-1m.zip").write_bytes(b"PK")
    with pytest.raises(UnreadableError, match=r"must be a zip file with ml-1m/users\.dat"):
        movielens.user_info()


CREATORS: list[tuple[Callable[[], Any], str]] = [
    (mnist.train, "mnist/train-images-idx3-ubyte.gz"),
    (mnist.test, "mnist/t10k-images-idx3-ubyte.gz"),
    (uci_housing.train, "uci_housing/housing.data"),
    (cifar.train10, "cifar/cifar-10-python.tar.gz"),
    (cifar.test100, "cifar/cifar-100-python.tar.gz"),
    (imdb.word_dict, "imdb/imdb%2FaclImdb_v1.tar.gz"),
    (movielens.movie_info, "movielens/movielens%2Fml-1m.zip"),
    (imikolov.build_dict, "imikolov/imikolov%2Fsimple-examples.tgz"),
]


@pytest.mark.parametrize(("call", "file"), CREATORS)
def test_a_missing_file_is_named_with_the_ways_out(home: Path, call: Callable[[], Any], file: str) -> None:
    with pytest.raises(DataFileNotFoundError) as caught:
        call()
    assert f"needs the file {home / file}, which is missing" in str(caught.value)
    assert "FLUIDTOOL_DATASET=synthetic" in str(caught.value) and "PADDLE_DATASET_HOME" in str(caught.value)


def test_another_kind_of_data_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_DATASET", "real")
    with pytest.raises(UsageError, match="'synthetic' or unset, found 'real'"):
        mnist.train()


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(
    ("reader", "size", "classes", "low"),
    [
        (mnist.train, 784, 10, -1),
        (mnist.test, 784, 10, -1),
        (cifar.train10, 3072, 10, 0),
        (cifar.test100, 3072, 100, 0),
    ],
)
def test_made_up_images_have_the_shapes_and_ranges(reader: Any, size: int, classes: int, low: float) -> None:
    samples = list(reader()())
    assert all(image.shape == (size,) and image.dtype == np.float32 for image, _ in samples)
    assert min(image.min() for image, _ in samples) >= low and max(image.max() for image, _ in samples) <= 1
    assert {label for _, label in samples} <= set(range(classes))
    again = list(reader()())
    assert all((a == b).all() and x == y for (a, x), (b, y) in zip(samples, again, strict=True))


@pytest.mark.usefixtures("made_up")
def test_made_up_digits_can_be_learnt() -> None:
    means = [np.mean([x for x, y in mnist.train()() if y == digit], axis=0) for digit in range(10)]
    test = list(mnist.test()())
    right = [int(np.argmin([np.sum((x - mean) ** 2) for mean in means])) == y for x, y in test]
    assert np.mean(right) > 0.99


@pytest.mark.usefixtures("made_up")
def test_made_up_houses_have_prices_that_follow_from_features() -> None:
    features, prices = (np.array(part) for part in zip(*uci_housing.train()(), strict=True))
    assert features.shape == (404, 13) and prices.shape == (404, 1)
    design = np.column_stack([features, np.ones(404)])
    rest = prices - design @ np.linalg.lstsq(design, prices, rcond=None)[0]
    assert rest.var() < 0.05 * prices.var()


@pytest.mark.usefixtures("made_up")
def test_made_up_reviews_and_sentences() -> None:
    words = imdb.word_dict()
    samples = list(imdb.train(words)())
    assert {label for _, label in samples} == {0, 1} and len(samples) == 800
    assert max(max(ids) for ids, _ in samples) <= words["<unk>"]
    dictionary = imikolov.build_dict()
    assert {"<s>", "<e>", "<unk>"} < set(dictionary)
    assert {len(gram) for gram in imikolov.train(dictionary, 5)()} == {5}


@pytest.mark.usefixtures("made_up")
def test_a_price_is_a_number() -> None:
    assert 0 < float(next(iter(uci_housing.test()()))[1]) < 100


@pytest.mark.usefixtures("made_up")
def test_made_up_dictionaries_are_as_large_as_real_ones() -> None:
    assert (len(imdb.word_dict()), len(imikolov.build_dict())) == (5147, 2074)
    assert len(imikolov.build_dict(0)) > 9900
    assert set(imdb.word_dict().values()) == set(range(5147))
    assert len(sentiment.get_word_dict()) == 39768
    assert [len(names) for names in conll05.get_dict()] == [44068, 3162, 59]
    assert [len(names) for names in wmt14.get_dict(30000)] == [30000, 30000]
    assert [len(wmt16.get_dict(language, 1 << 20)) for language in ("en", "de")] == [11250, 19220]


@pytest.mark.usefixtures("made_up")
def test_made_up_films_and_users_are_as_many_as_real_ones() -> None:
    films = movielens.movie_info()
    assert (len(films), movielens.max_movie_id(), 783 in films) == (3883, 3952, True)
    assert (movielens.max_user_id(), movielens.max_job_id()) == (6040, 20)
    assert (len(movielens.get_movie_title_dict()), len(movielens.movie_categories())) == (5174, 18)
    assert all(sample[4] in films for sample in movielens.train()())


@pytest.mark.usefixtures("made_up")
def test_made_up_ratings() -> None:
    train, test = list(movielens.train()()), list(movielens.test()())
    assert len(train) + len(test) == 8000 and 700 < len(test) < 900
    assert {sample[7][0] for sample in train} <= {-3.0, -1.0, 1.0, 3.0, 5.0}
    alike = [sample[7][0] for sample in train if sample[0] % 2 == sample[4] % 2]
    assert np.mean(alike) > np.mean([sample[7][0] for sample in train]) + 1
