"""Areas of polygons and of their intersections: rows of points [x1, y1, x2, y2, …]."""

from __future__ import annotations

from typing import Any

CHUNK = 1 << 20  # edge crossings computed at once


def polygon_area(np: Any, polygons: Any) -> Any:
    """Areas [...] of polygons [..., 2 * points] by the shoelace formula."""
    x, y = polygons[..., 0::2], polygons[..., 1::2]
    twice = (x * np.roll(y, -1, axis=-1) - y * np.roll(x, -1, axis=-1)).sum(axis=-1, dtype=polygons.dtype)
    return abs(twice / 2)


def polygon_iou(np: Any, first: Any, second: Any) -> Any:
    """Intersection over union of polygons [..., 2 * points] that broadcast; 0 where any of the three areas is 0."""
    shape = np.broadcast_shapes(first.shape, second.shape)
    first, second = (np.broadcast_to(side, shape).reshape(-1, shape[-1]) for side in (first, second))
    area1, area2 = polygon_area(np, first), polygon_area(np, second)
    inter = np.zeros(len(first), first.dtype)
    near = np.flatnonzero(boxes_touch(np, first, second))
    edges = shape[-1]
    step = max(1, CHUNK // (edges * (edges + 1) * edges // 2))
    for start in range(0, len(near), step):
        rows = near[start : start + step]
        inter[rows] = intersection_area(np, first[rows].astype("float64"), second[rows].astype("float64"))
    empty = (area1 == 0) | (area2 == 0) | (inter == 0)
    return np.where(empty, 0, inter / np.where(empty, 1, area1 + area2 - inter)).reshape(shape[:-1])


def boxes_touch(np: Any, first: Any, second: Any) -> Any:
    """Whether the bounding boxes of polygons meet, pair by pair."""
    touch = np.ones(len(first), bool)
    for axis in (0, 1):
        a, b = first[:, axis::2], second[:, axis::2]
        touch &= (a.min(axis=1) <= b.max(axis=1)) & (b.min(axis=1) <= a.max(axis=1))
    return touch


def intersection_area(np: Any, first: Any, second: Any) -> Any:
    """Areas [N] of the intersections of polygons [N, 2 * points], in or out by the even-odd rule.

    Horizontal lines through every corner and every crossing of edges cut the plane into slabs; within a slab edges do
    not cross, so the common width is linear in y and the area is height times width at half height.
    """
    start = np.stack([first, second], axis=1).reshape(len(first), 2, -1, 2)
    end = np.roll(start, -1, axis=2)
    start, end = (ends.reshape(len(first), -1, 2) for ends in (start, end))
    levels = np.sort(np.concatenate([start[..., 1], crossings(np, start, end)], axis=1), axis=1)
    heights = np.diff(levels, axis=1)
    middle = (levels[:, :-1] + heights / 2)[:, :, None]
    y1, y2 = start[:, None, :, 1], end[:, None, :, 1]
    crosses = (y1 < middle) != (y2 < middle)
    slope = (end[..., 0] - start[..., 0])[:, None] / np.where(y2 == y1, 1, y2 - y1)
    x = np.where(crosses, start[:, None, :, 0] + (middle - y1) * slope, np.inf)
    order = np.argsort(x, axis=2)
    x, crosses = np.take_along_axis(x, order, axis=2), np.take_along_axis(crosses, order, axis=2)
    of_first = order < first.shape[1] // 2
    inside = (np.cumsum(crosses & of_first, axis=2) % 2 == 1) & (np.cumsum(crosses & ~of_first, axis=2) % 2 == 1)
    width = np.diff(np.where(crosses, x, 0), axis=2)
    common = np.where(inside[:, :, :-1], width, 0).sum(axis=2)
    return (common * heights).sum(axis=1)


def crossings(np: Any, start: Any, end: Any) -> Any:
    """y of the crossing of every pair of edges [N, pairs]; where two do not cross, y of a corner."""
    one, other = np.triu_indices(start.shape[1], 1)
    p, r = start[:, one], (end - start)[:, one]
    q, s = start[:, other], (end - start)[:, other]
    cross = r[..., 0] * s[..., 1] - r[..., 1] * s[..., 0]
    gap = q - p
    safe = np.where(cross == 0, 1, cross)
    t = (gap[..., 0] * s[..., 1] - gap[..., 1] * s[..., 0]) / safe
    u = (gap[..., 0] * r[..., 1] - gap[..., 1] * r[..., 0]) / safe
    meet = (cross != 0) & (t > 0) & (t < 1) & (u > 0) & (u < 1)
    return np.where(meet, p[..., 1] + t * r[..., 1], p[..., 1])
