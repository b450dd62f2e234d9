"""`paddle.dataset.image`: decoding, scaling, cropping and mirroring of images of uint8 [height, width, 3] in BGR.

Decoding and scaling need OpenCV, as in Paddle; binary PPM files (P6) are decoded without it, and an image that already
has the size is not scaled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import NotOfferedImportError, UnreadableError, UsageError

__all__ = [
    "center_crop",
    "left_right_flip",
    "load_and_transform",
    "load_image",
    "load_image_bytes",
    "random_crop",
    "resize_short",
    "simple_transform",
    "to_chw",
]

Image = np.ndarray[Any, Any]


def load_image(file: str | Path, is_color: bool = True) -> Image:
    """The image of a file, [height, width, 3], or [height, width] in gray; raises UnreadableError."""
    return _decoded(Path(file).read_bytes(), is_color, str(file))


def load_image_bytes(bytes: bytes, is_color: bool = True) -> Image:
    """The image of the content of a file, [height, width, 3], or [height, width] in gray; raises UnreadableError."""
    return _decoded(bytes, is_color, "an image")


def _decoded(data: bytes, is_color: bool, source: str) -> Image:
    header = re.match(rb"P6\s+(\d+)\s+(\d+)\s+255\s", data)
    if header is not None and is_color:
        width, height = int(header.group(1)), int(header.group(2))
        pixels = np.frombuffer(data, "uint8", offset=header.end())
        if pixels.size != height * width * 3:
            raise UnreadableError(f"{source} must have {width}×{height} pixels, found {pixels.size} bytes")
        return pixels.reshape(height, width, 3)[:, :, ::-1]
    image: Image | None = _opencv().imdecode(np.frombuffer(data, "uint8"), 1 if is_color else 0)
    if image is None:
        raise UnreadableError(f"{source} cannot be decoded: unknown to OpenCV, or truncated")
    return image


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise NotOfferedImportError(
            "paddle.dataset.image decodes and scales images with OpenCV, which is not installed: "
            "pip install opencv-python-headless"
        ) from error
    return cv2


def resize_short(im: Image, size: int) -> Image:
    """Scaled (bicubic) so that the shorter edge is `size`."""
    height, width = im.shape[:2]
    if min(height, width) == size:
        return im
    new_height, new_width = (size * height // width, size) if height > width else (size, size * width // height)
    cv2 = _opencv()
    scaled: Image = cv2.resize(im, (new_width, new_height), interpolation=cv2.INTER_CUBIC)
    return scaled


def to_chw(im: Image, order: Sequence[int] = (2, 0, 1)) -> Image:
    """The axes in another order; raises UsageError for another number of axes."""
    if len(im.shape) != len(order):
        raise UsageError(f"to_chw: an image of shape {im.shape} cannot be transposed to the order {tuple(order)}")
    return im.transpose(order)


def center_crop(im: Image, size: int, is_color: bool = True) -> Image:
    """The center crop of size × size pixels."""
    height, width = im.shape[:2]
    return _crop(im, (height - size) // 2, (width - size) // 2, size)


def random_crop(im: Image, size: int, is_color: bool = True) -> Image:
    """A random crop of size × size pixels (numpy's global generator)."""
    height, width = im.shape[:2]
    top = np.random.randint(0, height - size + 1)
    left = np.random.randint(0, width - size + 1)
    return _crop(im, top, left, size)


def _crop(im: Image, top: int, left: int, size: int) -> Image:
    return im[top : top + size, left : left + size]


def left_right_flip(im: Image, is_color: bool = True) -> Image:
    """Mirrored: the second axis reversed (the last one of a gray image)."""
    return im[:, ::-1]


def simple_transform(
    im: Image,
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: Sequence[float] | Image | None = None,
) -> Image:
    """float32 [3, crop_size, crop_size] less a mean, per channel or pixel.

    Scaled to resize_size; for training cropped at random and mirrored half of the time, otherwise the center crop.
    """
    im = resize_short(im, resize_size)
    if is_train:
        im = random_crop(im, crop_size)
        if np.random.randint(2) == 0:
            im = left_right_flip(im)
    else:
        im = center_crop(im, crop_size)
    values = (to_chw(im) if im.ndim == 3 else im).astype("float32")
    if mean is not None:
        means = np.asarray(mean, "float32")
        values -= means[:, None, None] if means.ndim == 1 and is_color else means
    return values


def load_and_transform(
    filename: str | Path,
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: Sequence[float] | Image | None = None,
) -> Image:
    """`simple_transform` of a file."""
    return simple_transform(load_image(filename, is_color), resize_size, crop_size, is_train, is_color, mean)
