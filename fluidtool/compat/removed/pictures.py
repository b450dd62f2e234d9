"""Pictures of `scipy.misc` (until SciPy 1.2), with Pillow."""

from __future__ import annotations

from typing import Any

FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "cubic": 3}


def bytescale(data: Any, cmin: Any = None, cmax: Any = None, high: int = 255, low: int = 0) -> Any:
    """Numbers from cmin to cmax (by default the smallest and the largest) as bytes from low to high; bytes stay as they are."""
    import numpy as np

    if data.dtype == np.uint8:
        return data
    smallest, largest = (data.min() if cmin is None else cmin), (data.max() if cmax is None else cmax)
    if largest < smallest:
        raise ValueError("`cmax` should be larger than `cmin`.")
    scaled = (data - smallest) * (float(high - low) / ((largest - smallest) or 1)) + low
    return (scaled.clip(low, high) + 0.5).astype(np.uint8)


def toimage(
    arr: Any,
    high: int = 255,
    low: int = 0,
    cmin: Any = None,
    cmax: Any = None,
    pal: Any = None,
    mode: str | None = None,
    channel_axis: int | None = None,
) -> Any:
    """A Pillow image of an array [height, width], or of one with 3 or 4 channels along some axis."""
    import numpy as np
    from PIL import Image

    data = np.asarray(arr)
    if data.ndim == 2:
        if mode == "F":
            return Image.fromarray(data.astype(np.float32), mode="F")
        image = Image.fromarray(bytescale(data, cmin, cmax, high, low))
        if pal is not None:
            image.putpalette(np.asarray(pal, np.uint8).tobytes())
        return image if mode in (None, "L", "P") else image.convert(mode)
    axes = [axis for axis, size in enumerate(data.shape) if size in (3, 4)]
    if data.ndim != 3 or not axes:
        raise ValueError("'arr' does not have a suitable array shape for any mode.")
    axis = channel_axis if channel_axis is not None else 2 if 2 in axes else axes[0]
    return Image.fromarray(np.ascontiguousarray(np.moveaxis(bytescale(data, cmin, cmax, high, low), axis, 2)), mode)


def fromimage(im: Any, flatten: bool = False, mode: str | None = None) -> Any:
    """The array of a Pillow image; flatten: its gray values as float32."""
    import numpy as np

    if mode is not None and mode != im.mode:
        im = im.convert(mode)
    elif mode is None and im.mode == "P":
        im = im.convert("RGBA" if "transparency" in im.info else "RGB")
    if flatten:
        im = im.convert("F")
    elif im.mode == "1":
        im = im.convert("L")
    return np.array(im)


def imread(name: Any, flatten: bool = False, mode: str | None = None) -> Any:
    """The array of a picture in a file."""
    from PIL import Image

    with Image.open(name) as image:
        return fromimage(image, flatten, mode)


def imsave(name: Any, arr: Any, format: str | None = None) -> None:
    """Write an array as a picture; the channels of colors are its last dimension."""
    image = toimage(arr, channel_axis=2)
    image.save(name) if format is None else image.save(name, format)


def imresize(arr: Any, size: Any, interp: str = "bilinear", mode: str | None = None) -> Any:
    """The array as a picture of another size: (height, width), a percentage (int) or a factor (float); bytes."""
    import numpy as np

    image = toimage(arr, mode=mode)
    if isinstance(size, (int, np.integer)):
        extents = tuple(int(each * (size / 100.0)) for each in image.size)
    elif isinstance(size, (float, np.floating)):
        extents = tuple(int(each * size) for each in image.size)
    else:
        extents = (int(size[1]), int(size[0]))
    return fromimage(image.resize(extents, resample=FILTERS[interp]))
