"""`paddle.dataset`: images, flowers, VOC 2012, and the MAT files that flowers needs."""

from __future__ import annotations

import struct
import sys
import zlib
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fluidtool.compat.dataset import flowers, image, voc2012
from fluidtool.compat.dataset.matlab import load_arrays
from fluidtool.errors import DataFileNotFoundError, NotOfferedImportError, UnreadableError, UsageError
from tests.compat.conftest import pack


def ppm(pixels: np.ndarray[Any, Any]) -> bytes:
    """A PPM file of RGB pixels."""
    height, width, _ = pixels.shape
    return b"P6 %d %d 255\n" % (width, height) + pixels.astype("uint8").tobytes()


def element(kind: int, data: bytes, order: str = "<") -> bytes:
    """An element of a MAT file; up to four bytes go into the tag."""
    if len(data) <= 4 and order == "<":
        return struct.pack("<2H", kind, len(data)) + data.ljust(4, b"\0")
    return struct.pack(f"{order}2I", kind, len(data)) + data + bytes(-len(data) % 8)


def mat(arrays: dict[str, list[list[int]]], *, compressed: bool = True, order: str = "<") -> bytes:
    """A MAT file of level 5 with matrices of doubles, kept as bytes."""
    found = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(f"{order}2H", 0x0100, 0x4D49)
    for name, rows in arrays.items():
        values = np.array(rows, "u1")
        parts = [(6, struct.pack(f"{order}2I", 6, 0)), (5, struct.pack(f"{order}2i", *values.shape))]
        parts += [(1, name.encode()), (2, values.tobytes("F"))]
        matrix = element(14, b"".join(element(kind, data, order) for kind, data in parts), order)
        packed = zlib.compress(matrix)
        found += struct.pack(f"{order}2I", 15, len(packed)) + packed if compressed else matrix
    return found


@pytest.mark.parametrize(("compressed", "order"), [(True, "<"), (False, "<"), (True, ">")])
def test_mat_files_hold_arrays_in_column_order(tmp_path: Path, compressed: bool, order: str) -> None:
    path = tmp_path / "a.mat"
    path.write_bytes(mat({"labels": [[1, 2, 3], [4, 5, 6]], "x": [[9]]}, compressed=compressed, order=order))
    arrays = load_arrays(path)
    assert {name: array.tolist() for name, array in arrays.items()} == {"labels": [[1, 2, 3], [4, 5, 6]], "x": [[9]]}


def test_mat_files_of_another_level_or_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    path.write_bytes(b"\x89HDF\r\n" + bytes(200))
    with pytest.raises(UnreadableError, match=r"a\.mat is not a MAT file of level 5"):
        load_arrays(path)
    for compressed in (True, False):
        path.write_bytes(mat({"labels": [list(range(50))]}, compressed=compressed)[:-9])
        with pytest.raises(UnreadableError, match=r"a\.mat is a damaged MAT file"):
            load_arrays(path)


def test_ppm_images_come_in_bgr() -> None:
    pixels = np.arange(2 * 3 * 3).reshape(2, 3, 3)
    np.testing.assert_array_equal(image.load_image_bytes(ppm(pixels)), pixels[:, :, ::-1])


def test_ppm_images_that_are_cut_off(tmp_path: Path) -> None:
    (tmp_path / "a.ppm").write_bytes(ppm(np.zeros((2, 3, 3)))[:-1])
    with pytest.raises(UnreadableError, match=r"a\.ppm must have 3×2 pixels, found 17 bytes"):
        image.load_image(tmp_path / "a.ppm")


def test_other_images_need_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    for call in (lambda: image.load_image_bytes(b"\xff\xd8"), lambda: image.resize_short(np.zeros((4, 6, 3)), 2)):
        with pytest.raises(NotOfferedImportError, match="pip install opencv-python-headless"):
            call()


def test_scaling_keeps_the_proportions(monkeypatch: pytest.MonkeyPatch) -> None:
    def resize(im: Any, size: tuple[int, int], interpolation: int) -> Any:
        return np.zeros((size[1], size[0], 3))

    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(resize=resize, INTER_CUBIC=2))
    assert image.resize_short(np.zeros((30, 20, 3)), 10).shape == (15, 10, 3)
    assert image.resize_short(np.zeros((20, 50, 3)), 10).shape == (10, 25, 3)


def test_what_opencv_cannot_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(imdecode=lambda data, flag: None))
    with pytest.raises(UnreadableError, match="an image cannot be decoded"):
        image.load_image_bytes(b"text")


def test_images_are_cut_mirrored_and_turned() -> None:
    pixels = np.arange(4 * 6).reshape(4, 6)
    np.testing.assert_array_equal(image.center_crop(pixels, 2), [[8, 9], [14, 15]])
    np.testing.assert_array_equal(image.left_right_flip(pixels)[0], [5, 4, 3, 2, 1, 0])
    assert image.to_chw(np.zeros((4, 6, 3))).shape == (3, 4, 6)
    assert image.random_crop(np.zeros((4, 6, 3)), 3).shape == (3, 3, 3)
    with pytest.raises(UsageError, match=r"shape \(4, 6\) cannot be transposed to the order \(2, 0, 1\)"):
        image.to_chw(pixels)


@pytest.mark.parametrize(("mean", "expected"), [(None, [0, 1, 2]), ([1, 1, 1.5], [-1, 0, 0.5])])
def test_a_transform_takes_the_mean_of_each_channel_off(mean: Any, expected: list[float]) -> None:
    pixels = np.broadcast_to(np.arange(3, dtype="uint8"), (4, 4, 3))
    values = image.simple_transform(pixels, 4, 2, is_train=False, mean=mean)
    assert (values.shape, values.dtype) == ((3, 2, 2), np.float32)
    np.testing.assert_array_equal(values[:, 0, 0], np.float32(expected))


def write_flowers(home: Path, labels: list[int], parts: dict[str, list[list[int]]]) -> None:
    pixels = [np.full((256, 256, 3), number) for number in range(1, len(labels) + 1)]
    names = [f"jpg/image_{number:05d}.jpg" for number in range(1, len(labels) + 1)]
    pack(home / "flowers/102flowers.tgz", {name: ppm(one) for name, one in zip(names, pixels, strict=True)})
    (home / "flowers/imagelabels.mat").write_bytes(mat({"labels": [labels]}))
    (home / "flowers/setid.mat").write_bytes(mat(parts))


def test_flowers_are_those_of_the_part_with_their_classes_from_zero(home: Path) -> None:
    write_flowers(home, [102, 7, 1], {"tstid": [[3, 1]], "trnid": [[2]], "valid": [[1]]})
    train = list(flowers.train(mapper=lambda sample: sample, use_xmap=False)())
    assert [(data[-1], label) for data, label in train] == [(1, 101), (3, 0)]
    ((values, label),) = flowers.test()()
    assert (values.shape, values.dtype, label) == ((3 * 224 * 224,), np.float32, 6)
    np.testing.assert_allclose(values[[0, 224 * 224, 2 * 224 * 224]], 2 - np.array(flowers.MEAN_COLOR), rtol=1e-6)
    assert [label for _, label in islice(flowers.train(cycle=True)(), 5)].count(101) in (2, 3)


def test_flowers_with_other_files(home: Path) -> None:
    write_flowers(home, [1], {"trnid": [[2]]})
    with pytest.raises(UnreadableError, match=r"setid\.mat must contain the array tstid, found trnid"):
        flowers.train()
    with pytest.raises(UnreadableError, match=r"setid\.mat names image 2, but .*imagelabels\.mat has 1 labels"):
        flowers.test()


@pytest.fixture
def pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of Pillow, a decoder of PPM files that gives an array."""

    class Unidentified(OSError):
        pass

    def decode(file: Any) -> Any:
        try:
            return image.load_image_bytes(file.read())[:, :, ::-1]
        except NotOfferedImportError as error:
            raise Unidentified("cannot identify image file") from error

    package = ModuleType("PIL")
    vars(package).update(Image=SimpleNamespace(open=decode), UnidentifiedImageError=Unidentified)
    monkeypatch.setitem(sys.modules, "PIL", package)
    monkeypatch.setitem(sys.modules, "cv2", None)


def write_voc(home: Path, *, label: bytes | None = None) -> None:
    members = {
        "ImageSets/Segmentation/trainval.txt": b"b\na\n",
        "ImageSets/Segmentation/train.txt": b"a\n",
        "ImageSets/Segmentation/val.txt": b"c\n",
        "JPEGImages/a.jpg": ppm(np.full((2, 2, 3), 1)),
        "JPEGImages/b.jpg": ppm(np.full((2, 3, 3), 2)),
        "SegmentationClass/a.png": label or ppm(np.full((2, 2, 3), 3)),
        "SegmentationClass/b.png": ppm(np.full((2, 3, 3), 4)),
    }
    named = {f"{voc2012.FOLDER}/{name}": data for name, data in members.items()}
    pack(home / "voc2012/VOCtrainval_11-May-2012.tar", named, "w")


@pytest.mark.usefixtures("pillow")
def test_voc2012_gives_images_and_classes_in_the_order_of_its_list(home: Path) -> None:
    write_voc(home)
    assert [(one.shape, one[0, 0, 0], classes[0, 0, 0]) for one, classes in voc2012.train()()] == [
        ((2, 3, 3), 2, 4),
        ((2, 2, 3), 1, 3),
    ]
    assert [one.shape for one, _ in voc2012.test()()] == [(2, 2, 3)]
    with pytest.raises(UnreadableError, match=r"JPEGImages/c\.jpg"):
        list(voc2012.val()())


@pytest.mark.usefixtures("pillow")
def test_voc2012_with_an_image_that_is_none(home: Path) -> None:
    write_voc(home, label=b"text")
    with pytest.raises(UnreadableError, match=r"a\.png is not a complete image"):
        list(voc2012.test()())
    (home / "voc2012/VOCtrainval_11-May-2012.tar").write_bytes(b"text" * 200)
    with pytest.raises(UnreadableError, match="is not a complete tar file"):
        list(voc2012.test()())


def test_voc2012_needs_pillow(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    write_voc(home)
    with pytest.raises(NotOfferedImportError, match="pip install pillow"):
        list(voc2012.test()())


@pytest.mark.parametrize(
    ("call", "file"),
    [(flowers.valid, "flowers/102flowers.tgz"), (voc2012.val, "voc2012/VOCtrainval_11-May-2012.tar")],
)
def test_a_missing_file_is_named(home: Path, call: Any, file: str) -> None:
    with pytest.raises(DataFileNotFoundError, match="which is missing") as caught:
        call()
    assert str(home / file) in str(caught.value)


@pytest.mark.usefixtures("made_up")
def test_made_up_flowers_need_no_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    values, label = next(iter(flowers.train()()))
    assert (values.shape, values.dtype) == ((3 * 224 * 224,), np.float32) and 0 <= label < 102
    assert values.std() > 5


@pytest.mark.usefixtures("made_up")
def test_made_up_segmentations() -> None:
    for pixels, classes in voc2012.val()():
        assert (pixels.shape, classes.shape, pixels.dtype, classes.dtype) == ((48, 64, 3), (48, 64), np.uint8, np.uint8)
        assert set(np.unique(classes)) <= {*range(21), 255} and len(np.unique(classes)) == 3
