"""xxHash and MurmurHash3 of many keys at once. A key is a row of 32-bit words; sums and products wrap around.

The algorithms are those of their public specifications (xxHash: XXH32 and XXH64; MurmurHash3_x64_128).
"""

from __future__ import annotations

from typing import Any

_X32 = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_X64 = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)
_M64 = (0x87C37B91114253D5, 0x4CF5AD432745937F)
_MIX = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)


def words(xp: Any, keys: Any) -> Any:
    """The memory of each row of `keys` as 32-bit words."""
    return xp.ascontiguousarray(keys).view(xp.uint32)


def _rotate(x: Any, count: int) -> Any:
    bits = x.dtype.itemsize * 8
    number = x.dtype.type
    return (x << number(count)) | (x >> number(bits - count))


def _pairs(xp: Any, keys: Any) -> Any:
    """64-bit words of the rows; an odd 32-bit word at the end is left out."""
    whole = keys.shape[1] // 2 * 2
    return xp.ascontiguousarray(keys[:, :whole]).view(xp.uint64)


def xxh32(xp: Any, keys: Any, seed: int) -> Any:
    """XXH32 of each row of `keys` (uint32 words), as uint32."""
    u = xp.uint32
    p1, p2, p3, p4 = (u(prime) for prime in _X32[:4])
    count, width = keys.shape
    full = width // 4 * 4
    if full:
        sums = [xp.full(count, u((seed + add) & 0xFFFFFFFF)) for add in (_X32[0] + _X32[1], _X32[1], 0, -_X32[0])]
        for start in range(0, full, 4):
            sums = [_rotate(v + keys[:, start + lane] * p2, 13) * p1 for lane, v in enumerate(sums)]
        h = _rotate(sums[0], 1) + _rotate(sums[1], 7) + _rotate(sums[2], 12) + _rotate(sums[3], 18)
    else:
        h = xp.full(count, u((seed + _X32[4]) & 0xFFFFFFFF))
    h = h + u(4 * width)
    for place in range(full, width):
        h = _rotate(h + keys[:, place] * p3, 17) * p4
    h = (h ^ (h >> u(15))) * p2
    h = (h ^ (h >> u(13))) * p3
    return h ^ (h >> u(16))


def xxh64(xp: Any, keys: Any, seed: int) -> Any:
    """XXH64 of each row of `keys` (uint32 words), as uint64."""
    u = xp.uint64
    p1, p2, p3, p4 = (u(prime) for prime in _X64[:4])
    count, width = keys.shape
    lanes = _pairs(xp, keys)

    def round_(v: Any, lane: Any) -> Any:
        return _rotate(v + lane * p2, 31) * p1

    full = width // 8 * 4
    if full:
        sums = [xp.full(count, u((seed + add) % 2**64)) for add in (_X64[0] + _X64[1], _X64[1], 0, -_X64[0])]
        for start in range(0, full, 4):
            sums = [round_(v, lanes[:, start + lane]) for lane, v in enumerate(sums)]
        h = _rotate(sums[0], 1) + _rotate(sums[1], 7) + _rotate(sums[2], 12) + _rotate(sums[3], 18)
        for v in sums:
            h = (h ^ round_(xp.zeros_like(v), v)) * p1 + p4
    else:
        h = xp.full(count, u((seed + _X64[4]) % 2**64))
    h = h + u(4 * width)
    for place in range(full, width // 2):
        h = _rotate(h ^ round_(xp.zeros_like(h), lanes[:, place]), 27) * p1 + p4
    if width % 2:
        h = _rotate(h ^ (keys[:, -1].astype(u) * p1), 23) * p2 + p3
    h = (h ^ (h >> u(33))) * p2
    h = (h ^ (h >> u(29))) * p3
    return h ^ (h >> u(32))


def murmur3(xp: Any, keys: Any, seed: int) -> tuple[Any, Any]:
    """MurmurHash3_x64_128 of each row of `keys` (uint32 words), as two uint64."""
    u = xp.uint64
    c1, c2 = (u(constant) for constant in _M64)
    count, width = keys.shape
    h1, h2 = xp.full(count, u(seed)), xp.full(count, u(seed))
    lanes = _pairs(xp, keys)

    def first(k: Any) -> Any:
        return _rotate(k * c1, 31) * c2

    def second(k: Any) -> Any:
        return _rotate(k * c2, 33) * c1

    full = width // 4 * 2
    for start in range(0, full, 2):
        h1 = (_rotate(h1 ^ first(lanes[:, start]), 27) + h2) * u(5) + u(0x52DCE729)
        h2 = (_rotate(h2 ^ second(lanes[:, start + 1]), 31) + h1) * u(5) + u(0x38495AB5)
    tail = keys[:, full * 2 :].astype(u)
    if tail.shape[1] == 3:
        h2 = h2 ^ second(tail[:, 2])
    if tail.shape[1]:
        low = tail[:, 0] if tail.shape[1] == 1 else tail[:, 0] | (tail[:, 1] << u(32))
        h1 = h1 ^ first(low)
    size = u(4 * width)
    h1, h2 = h1 ^ size, h2 ^ size
    h1 = h1 + h2
    h2 = h2 + h1
    h1, h2 = _mixed(h1), _mixed(h2)
    h1 = h1 + h2
    return h1, h2 + h1


def _mixed(h: Any) -> Any:
    u = h.dtype.type
    for factor in _MIX:
        h = (h ^ (h >> u(33))) * u(factor)
    return h ^ (h >> u(33))
