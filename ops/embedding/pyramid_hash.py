"""pyramid_hash: embeddings of all runs of 2, 3, … neighboring terms, found in a table by hashing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.embedding.hashes import murmur3, words, xxh32
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor

BLOOM_FILTER_MAGIC = 17070416
BLOOM_FILTER_HEADER = 32

_ATTRS: dict[str, Any] = {
    "num_emb": 0,
    "space_len": 0,
    "pyramid_layer": 2,
    "rand_len": 0,
    "drop_out_percent": 0.0,
    "is_training": 0,
    "use_filter": True,
    "white_list_len": 0,
    "black_list_len": 0,
    "seed": 0,
    "lr": 0.0,
    "distribute_update_vars": "",
}


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A set that may be told more than it was given: m bits, k pairs of hashes."""

    bits: Any
    m: int
    k: int

    @classmethod
    def of(cls, ctx: OpContext, slot: str, tensor: Any) -> BloomFilter:
        """The filter whose memory is the tensor's: four uint64 (magic, m, k, count), then the bits."""
        np = ctx.np
        memory = np.ascontiguousarray(ctx.host(tensor)).view(np.uint8).reshape(-1)
        header = memory[:BLOOM_FILTER_HEADER].view(np.uint64) if len(memory) >= BLOOM_FILTER_HEADER else [0]
        if not (header[0] == BLOOM_FILTER_MAGIC and int(header[1]) > 0):
            raise ctx.error(
                f"input {slot} is not a Bloom filter: it must begin with {BLOOM_FILTER_MAGIC}, found {int(header[0])}"
            )
        m, bits = int(header[1]), np.unpackbits(memory[BLOOM_FILTER_HEADER:])
        if len(bits) < m:
            raise ctx.error(f"input {slot} is truncated: expected {m} bits, found {len(bits)}")
        return cls(bits, m, int(header[2]))

    def contains(self, np: Any, keys: Any) -> Any:
        """Which keys (rows of words) are in the set."""
        found = np.ones(len(keys), bool)
        for seed in range(self.k):
            for hashed in murmur3(np, keys, seed):
                found &= self.bits[(hashed % np.uint64(self.m)).astype(np.int64)] != 0
        return found


def _runs(np: Any, terms: Any, offsets: list[int], layers: int) -> Iterator[tuple[int, Any]]:
    """(sequence, its runs of one length as rows of words): sequence by sequence, short runs first."""
    for sequence, (start, end) in enumerate(pairwise(offsets)):
        for length in range(2, min(layers, end - start) + 1):
            windows = np.lib.stride_tricks.sliding_window_view(terms[start:end], length)
            yield sequence, words(np, windows)


def _places(np: Any, keys: Any, num_emb: int, rand_len: int, space_len: int) -> Any:
    """For each key and each piece of an embedding where in the table it starts, [keys, pieces]."""
    hashed = [xxh32(np, keys, seed) % np.uint32(space_len) for seed in range(0, num_emb, rand_len)]
    return np.stack(hashed, axis=1).astype(np.int64)


def _check(ctx: OpContext | InferContext, W: Any) -> None:
    num_emb, rand_len, space_len = ctx.attr("num_emb"), ctx.attr("rand_len"), ctx.attr("space_len")
    if not (rand_len > 0 and num_emb > 0 and num_emb % rand_len == 0 and space_len > 0):
        raise ctx.error(
            f"num_emb ({num_emb}) must be a multiple of rand_len ({rand_len}), and space_len ({space_len}) positive"
        )
    if tuple(W.shape) != (space_len + rand_len, 1):
        raise ctx.error(
            f"input W must have shape ({space_len + rand_len}, 1) = (space_len + rand_len, 1), found {shape_text(W.shape)}"
        )


@op(
    "pyramid_hash",
    inputs="X W WhiteList BlackList",
    outputs="Out DropPos X_Temp_Out~",
    attrs=_ATTRS,
    random=True,
)
def pyramid_hash(
    ctx: OpContext,
    X: Any,
    W: Any,
    WhiteList: Any,
    BlackList: Any,
    *,
    num_emb: int,
    space_len: int,
    pyramid_layer: int,
    rand_len: int,
    drop_out_percent: float,
    is_training: int,
    use_filter: bool,
    white_list_len: int,
    black_list_len: int,
    seed: int,
) -> Any:
    """Out [runs used, num_emb], one sequence of runs per sequence of X; a row of zeros where none is used.

    X int32 [terms, 1] with LoD. A run's embedding is pieces of W of rand_len numbers each, found by XXH32 of its terms as
    float32. Runs count when WhiteList holds them and BlackList does not (Bloom filters); training drops some at random,
    testing multiplies by drop_out_percent instead. DropPos says which counted (Paddle 1.8.5 pyramid_hash_op.cc).
    """
    _check(ctx, W)
    np, offsets = ctx.np, ctx.sequences("X")
    terms = ctx.host(X).reshape(-1).astype(np.float32)
    white = BloomFilter.of(ctx, "WhiteList", WhiteList) if use_filter and white_list_len else None
    black = BloomFilter.of(ctx, "BlackList", BlackList) if use_filter and black_list_len else None
    generator = ctx.generator(seed)
    used: list[list[Any]] = [[] for _ in offsets[1:]]
    places: list[list[Any]] = [[] for _ in offsets[1:]]
    for sequence, keys in _runs(np, terms, offsets, pyramid_layer):
        counts = np.ones(len(keys), bool)
        if white is not None:
            counts &= white.contains(np, keys)
        if black is not None:
            counts &= ~black.contains(np, keys)
        if is_training:
            counts &= generator.random(len(keys)) >= drop_out_percent
        used[sequence].append(counts)
        places[sequence].append(_places(np, keys[counts], num_emb, rand_len, space_len))
    table = ctx.host(W).reshape(-1)
    rows = [_embeddings(np, table, pieces, num_emb, rand_len) for pieces in places]
    out = np.concatenate(rows) if rows else np.zeros((0, num_emb), table.dtype)
    if not is_training and table.dtype.kind == "f":
        out = out * table.dtype.type(drop_out_percent)
    ctx.set_lod("Out", [np.cumsum([0, *(len(row) for row in rows)])])
    ctx.set_lod("DropPos", [np.cumsum([0, *(sum(int(c.sum()) for c in counts) for counts in used)])])
    flat = np.concatenate([np.zeros(0, bool), *(counts for one in used for counts in one)]).astype(np.int32)
    positions = np.zeros((X.size * pyramid_layer, 1), np.int32)
    positions[: len(flat), 0] = flat
    return {"Out": ctx.array(out), "DropPos": ctx.array(positions), "X_Temp_Out": ctx.array(terms.reshape(X.shape))}


def _embeddings(np: Any, table: Any, pieces: list[Any], num_emb: int, rand_len: int) -> Any:
    starts = np.concatenate(pieces) if pieces else np.zeros((0, 1), np.int64)
    if not len(starts):
        return np.zeros((1, num_emb), table.dtype)
    return table[starts[:, :, None] + np.arange(rand_len)].reshape(len(starts), num_emb)


@pyramid_hash.infer
def _(
    ctx: InferContext, X: TensorMeta, W: TensorMeta, WhiteList: TensorMeta, BlackList: TensorMeta, *, num_emb: int
) -> dict[str, TensorMeta]:
    _check(ctx, W)
    return {
        "Out": TensorMeta((-1, num_emb), W.dtype, X.lod_level),
        "DropPos": TensorMeta((-1, 1), VarType.INT32, X.lod_level),
        "X_Temp_Out": TensorMeta(X.shape, VarType.FP32),
    }


@pyramid_hash.grad_maker
def _(ctx: GradMakerContext) -> list[OpDescription]:
    inputs = {slot: ctx.input(slot) for slot in ("X", "W")} | {
        slot: ctx.output(slot) for slot in ("DropPos", "X_Temp_Out")
    }
    inputs["Out@GRAD"] = ctx.output_grad("Out")
    return [ctx.describe("pyramid_hash_grad", inputs, {"X@GRAD": ctx.input_grad("X")})]


@op(
    "pyramid_hash_grad",
    inputs="X W DropPos X_Temp_Out Out@GRAD",
    outputs="X@GRAD",
    attrs=_ATTRS,
    side_effects=True,
)
def pyramid_hash_grad(
    ctx: OpContext,
    X: Any,
    W: Any,
    DropPos: Any,
    X_Temp_Out: Any,
    Out_grad: Any,
    *,
    num_emb: int,
    space_len: int,
    pyramid_layer: int,
    rand_len: int,
    lr: float,
) -> None:
    """Update the table itself, W -= lr * dOut, as Paddle 1.8.5 does (pyramid_hash_op.cc); there is no X@GRAD."""
    _check(ctx, W)
    np, offsets = ctx.np, ctx.sequences("X")
    used, grads = ctx.host(DropPos).reshape(-1) != 0, ctx.host(Out_grad)
    counts = np.diff(ctx.lod("DropPos")[0])
    table, kind = ctx.host(W).reshape(-1).copy(), ctx.host(W).dtype
    position, row, sequence_now = 0, 0, 0
    for sequence, keys in _runs(np, ctx.host(X_Temp_Out).reshape(-1), offsets, pyramid_layer):
        row += int((counts[sequence_now:sequence] == 0).sum())  # sequences without a run have one row of zeros
        sequence_now = max(sequence_now, sequence)
        chosen = keys[used[position : position + len(keys)]]
        position += len(keys)
        starts = _places(np, chosen, num_emb, rand_len, space_len)
        slope = grads[row : row + len(chosen)].reshape(len(chosen), num_emb // rand_len, rand_len)
        np.add.at(table, starts[:, :, None] + np.arange(rand_len), (-lr * slope).astype(kind))
        row += len(chosen)
    ctx.inputs["W"][0].value = LoDTensor(ctx.array(table.reshape(W.shape)), ctx.lod("W"))
