"""hash: rows of ids to numbers below a bound."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.embedding.hashes import words, xxh64
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, long


@op(
    "hash",
    inputs="X",
    outputs="Out",
    attrs={"num_hash": 1, "mod_by": long(100000), "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@": True},
    lod="X",
)
def hash(ctx: OpContext, X: Any, *, num_hash: int, mod_by: int) -> Any:
    """Out [..., num_hash, 1] = XXH64 of each row of X with seeds 0, 1, …, modulo mod_by.

    X int32 or int64; its memory is hashed (Paddle 1.8.5 hash_op.h).
    """
    xp = ctx.xp
    if X.dtype.kind != "i" or X.dtype.itemsize not in (4, 8):
        raise ctx.error(f"input X must be int32 or int64, found {X.dtype}")
    if not (mod_by > 0 and num_hash > 0):
        raise ctx.error(f"mod_by and num_hash must be positive, found {mod_by} and {num_hash}")
    keys = words(xp, X.reshape(-1, X.shape[-1]))
    hashed = [xxh64(xp, keys, seed) % xp.uint64(mod_by) for seed in range(num_hash)]
    return xp.stack(hashed, axis=-1).astype(X.dtype).reshape(*X.shape[:-1], num_hash, 1)


@hash.infer
def _(ctx: InferContext, X: TensorMeta, *, num_hash: int) -> TensorMeta:
    return X.with_shape((*X.shape[:-1], num_hash, 1))
