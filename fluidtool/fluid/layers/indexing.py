"""Layers that pick, place, pad and reorder elements (Paddle 1.8.5 layers/nn.py and tensor.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, AssertedError, UsageError
from fluidtool.fluid.checks import check_dtype, check_given, check_type, check_variable_and_dtype
from fluidtool.fluid.initializer import Constant
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_simple
from fluidtool.fluid.layers.creation import assign, zeros
from fluidtool.fluid.layers.shape import MOVABLE, PLAIN, has_tensors, number_tensors, reshape, slice
from fluidtool.ir import Variable, unique_name
from fluidtool.ir.variable import data_type, data_type_name
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text


# ---------------------------------------------------------------- picking and placing
def gather(input: Variable, index: Variable, overwrite: bool = True) -> Variable:
    """The rows of input selected by index; overwrite: how gradients of a row selected twice combine."""
    inputs = {"X": input, "Index": index}
    return append_simple(LayerHelper("gather"), "gather", inputs, {"overwrite": overwrite}, dtype=input.dtype)


def gather_nd(input: Variable, index: Variable, name: str | None = None) -> Variable:
    """The elements or slices of input at index's last dimension."""
    helper = LayerHelper("gather_nd", name=name)
    return append_simple(helper, "gather_nd", {"X": input, "Index": index}, dtype=input.dtype)


def scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None, overwrite: bool = True
) -> Variable:
    """input with the rows at index replaced by updates, or by their sums."""
    helper = LayerHelper("scatter", name=name)
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return append_simple(helper, "scatter", inputs, {"overwrite": overwrite}, dtype=input.dtype)


def scatter_nd_add(ref: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """ref with updates added at index."""
    if ref.dtype != updates.dtype:
        raise UsageError(
            f"ref and updates must have same data type, found {data_type_name(ref.dtype)} and {data_type_name(updates.dtype)}"
        )
    helper = LayerHelper("scatter_nd_add", name=name)
    return append_simple(helper, "scatter_nd_add", {"X": ref, "Index": index, "Updates": updates}, dtype=ref.dtype)


def scatter_nd(index: Variable, updates: Variable, shape: Sequence[int], name: str | None = None) -> Variable:
    """Zeros with updates added at index."""
    return scatter_nd_add(zeros(shape, updates.dtype), index, updates, name)


def index_select(input: Variable, index: Variable, dim: int = 0) -> Variable:
    """The slices of input selected by index along a dimension."""
    helper = LayerHelper("index_select")
    check_variable_and_dtype(input, "x", PLAIN, "index_select")
    check_variable_and_dtype(index, "index", ("int32", "int64"), "index_select")
    return append_simple(helper, "index_select", {"X": input, "Index": index}, {"dim": dim}, dtype=input.dtype)


def index_sample(x: Variable, index: Variable) -> Variable:
    """For each row, the elements selected by index's row."""
    helper = LayerHelper("index_sample")
    check_variable_and_dtype(x, "x", PLAIN, "fluid.layers.index_sample")
    check_variable_and_dtype(index, "index", ("int32", "int64"), "fluid.layers.index_sample")
    return append_simple(helper, "index_sample", {"X": x, "Index": index}, dtype=x.dtype)


def multiplex(inputs: list[Variable], index: Variable) -> Variable:
    """Row i of the input number index[i]."""
    helper = LayerHelper("multiplex")
    check_type(inputs, "inputs", list, "multiplex")
    if len(inputs) < 2:
        raise UsageError(f"inputs should be a list object with at least 2 elements, found {len(inputs)}")
    for position, x in enumerate(inputs):
        check_variable_and_dtype(x, f"input[{position}]", PLAIN, "multiplex")
    check_variable_and_dtype(index, "index", ("int32", "int64"), "multiplex")
    return append_simple(helper, "multiplex", {"X": inputs, "Ids": index}, dtype=inputs[0].dtype)


def where(condition: Variable) -> Variable:
    """The positions where condition holds, [count, rank] int64."""
    return append_simple(LayerHelper("where_index"), "where_index", {"Condition": condition}, dtype=VarType.INT64)


def nonzero(input: Variable, as_tuple: bool = False) -> Variable | tuple[Variable, ...]:
    """`where`; as_tuple: one column per dimension."""
    outs, count = where(input), len(input.shape)
    if not as_tuple:
        return outs
    if count == 1:
        return (outs,)
    return tuple(slice(outs, [count - 1], [column], [column + 1]) for column in range(count))


def unique(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable]:
    """The distinct elements in order of first occurrence, and for each element the index of its value."""
    check_variable_and_dtype(x, "x", PLAIN, "unique")
    helper = LayerHelper("unique")
    out = helper.create_variable_for_type_inference(x.dtype)
    index = helper.create_variable_for_type_inference(dtype)
    outputs = {"Out": [out], "Index": [index]}
    helper.append_op(type="unique", inputs={"X": x}, outputs=outputs, attrs={"dtype": int(data_type(dtype))})
    return out, index


def unique_with_counts(x: Variable, dtype: str = "int32") -> tuple[Variable, Variable, Variable]:
    """`unique` with the count of each value; x has one dimension."""
    check_variable_and_dtype(x, "x", PLAIN, "unique_with_counts")
    if dtype not in ("int32", "int64"):
        raise ArgumentTypeError(f"Op unique_with_counts, index dtype must be int32 or int64, found {dtype}")
    if len(x.shape) != 1:
        raise UsageError(
            f"Op unique_with_counts, x must not be null and size of dim must be 1, found shape {shape_text(x.shape)}"
        )
    helper = LayerHelper("unique_with_counts")
    out = helper.create_variable_for_type_inference(x.dtype)
    index, count = (helper.create_variable_for_type_inference(dtype) for _ in range(2))
    outputs = {"Out": [out], "Index": [index], "Count": [count]}
    attrs = {"dtype": int(data_type(dtype))}
    helper.append_op(type="unique_with_counts", inputs={"X": x}, outputs=outputs, attrs=attrs)
    return out, index, count


def one_hot(input: Variable, depth: int | Variable, allow_out_of_range: bool = False) -> Variable:
    """Rows of `depth` zeros with a one at each id of input [..., 1]."""
    helper = LayerHelper("one_hot")
    check_variable_and_dtype(input, "input", ("int32", "int64"), "one_hot")
    check_type(depth, "depth", (int, Variable), "one_hot")
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {"allow_out_of_range": allow_out_of_range}
    if isinstance(depth, Variable):
        depth.stop_gradient = True
        inputs["depth_tensor"] = depth
    else:
        attrs["depth"] = depth
    out = append_simple(helper, "one_hot", inputs, attrs, dtype="float32")
    out.stop_gradient = True
    return out


def shard_index(input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1) -> Variable:
    """Ids within one of several shards; ids of other shards become ignore_value."""
    check_variable_and_dtype(input, "input", ("int64",), "shard_index")
    helper = LayerHelper("shard_index")
    if not 0 <= shard_id < nshards:
        raise UsageError(f"The shard_id({shard_id}) should be in [0, {nshards})")
    attrs = {"index_num": index_num, "nshards": nshards, "shard_id": shard_id, "ignore_value": ignore_value}
    return append_simple(helper, "shard_index", {"X": [input]}, attrs, dtype=input.dtype)


def hash(input: Variable, hash_size: int, num_hash: int = 1, name: str | None = None) -> Variable:
    """num_hash hashes (xxHash) of each row of ids, below hash_size."""
    check_variable_and_dtype(input, "input", ("int32", "int64"), "hash")
    check_type(hash_size, "hash_size", int, "hash")
    check_type(num_hash, "num_hash", int, "hash")
    helper = LayerHelper("hash", name=name)
    attrs = {"num_hash": num_hash, "mod_by": hash_size}
    return append_simple(helper, "hash", {"X": input}, attrs, dtype=input.dtype, stop_gradient=True)


# ---------------------------------------------------------------- order
def reverse(x: Variable, axis: int | Sequence[int]) -> Variable:
    """x reversed along these axes."""
    check_variable_and_dtype(x, "x", (*PLAIN, "uint8"), "reverse")
    check_type(axis, "axis", (int, tuple, list), "reverse")
    axes = [axis] if isinstance(axis, int) else list(axis)
    return append_simple(LayerHelper("reverse"), "reverse", {"X": x}, {"axis": axes}, dtype=x.dtype)


def flip(input: Variable, dims: Sequence[int], name: str | None = None) -> Variable:
    """input reversed along these dimensions."""
    helper = LayerHelper("flip", name=name)
    check_type(input, "X", Variable, "flip")
    check_dtype(input.dtype, "X", (*MOVABLE, "bool"), "flip")
    check_type(dims, "dims", (list, tuple), "flip")
    if len(dims) == 0:
        raise AssertedError("len(dims) must be greater than 0.")
    out = None if name is None else helper.create_variable(name=name, dtype=input.dtype, persistable=False)
    return append_simple(helper, "flip", {"X": input}, {"dims": list(dims)}, dtype=input.dtype, out=out)


def roll(input: Variable, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Variable:
    """input rotated along dimensions; along the flattened tensor if dims is None."""
    helper = LayerHelper("roll")
    origin = list(input.shape)
    shifts = [shifts] if isinstance(shifts, int) else shifts
    check_type(shifts, "shifts", (list, tuple), "roll")
    places = [dims] if isinstance(dims, int) else dims
    if places:
        check_type(places, "dims", (list, tuple), "roll")
    out = helper.create_variable_for_type_inference(input.dtype)
    if places is None:
        input, places = reshape(input, [-1, 1]), [0]
    append_simple(helper, "roll", {"X": input}, {"dims": list(places), "shifts": shifts}, dtype=input.dtype, out=out)
    return reshape(out, origin, inplace=True)


def meshgrid(input: list[Variable], name: str | None = None) -> list[Variable]:
    """Vectors broadcast to a grid of all of them."""
    helper = LayerHelper("meshgrid", name=name)
    if not isinstance(input, list):
        raise ArgumentTypeError(f"The type of input in meshgrid should be list, found {type(input).__name__}")
    for item in input:
        check_dtype(item.dtype, "create data type", MOVABLE, "meshgrid")
    outs = [helper.create_variable_for_type_inference(item.dtype) for item in input]
    helper.append_op(type="meshgrid", inputs={"X": input}, outputs={"Out": outs})
    return outs


# ---------------------------------------------------------------- diagonals and triangles
def diag(diagonal: Variable | np.ndarray[Any, Any]) -> Variable:
    """A matrix with this diagonal."""
    check_type(diagonal, "diagonal", (Variable, np.ndarray), "diag")
    check_dtype(diagonal.dtype, "diagonal", PLAIN, "diag")
    helper = LayerHelper("diag")
    var = diagonal if isinstance(diagonal, Variable) else assign(diagonal)
    out = append_simple(helper, "diag", {"Diagonal": [var]}, dtype=var.dtype)
    out.stop_gradient = True
    return out


def diag_embed(input: Variable | np.ndarray[Any, Any], offset: int = 0, dim1: int = -2, dim2: int = -1) -> Variable:
    """Matrices with the last dimension of input as diagonals, in dimensions dim1 and dim2."""
    var = input if isinstance(input, Variable) else assign(input)
    check_dtype(var.dtype, "Input", MOVABLE, "diag_embed")
    rank = len(var.shape)
    for label, dim in (("Dim1", dim1), ("Dim2", dim2)):
        if not -(rank + 1) <= dim <= rank:
            raise AssertedError(
                f"{label} is out of range (expected to be in range of [{-(rank + 1)}, {rank}], but got {dim}).\n"
            )
    if dim1 % (rank + 1) == dim2 % (rank + 1):
        raise AssertedError(f"dim1 and dim2 cannot be the same dimension.But received dim1 = {dim1}, dim2 = {dim2}\n")
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    out = append_simple(LayerHelper("diag_embed"), "diag_embed", {"Input": [var]}, attrs, dtype=var.dtype)
    out.stop_gradient = True
    return out


def trace(
    input: Variable, offset: int = 0, dim1: int = 0, dim2: int = 1, out: Variable | None = None, name: str | None = None
) -> Variable:
    """The sum of a diagonal."""
    check_dtype(input.dtype, "Input", MOVABLE, "trace")
    rank = len(input.shape)
    if rank < 2:
        raise AssertedError(f"The input must be at least 2-dimensional, But received Input's dimensional: {rank}.\n")
    for label, dim in (("dim1", dim1), ("dim2", dim2)):
        if not -rank <= dim < rank:
            raise AssertedError(
                f"The argument {label} is out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim}).\n"
            )
    if dim1 % rank == dim2 % rank:
        raise AssertedError(f"dim1 and dim2 cannot be the same dimension.But received dim1 = {dim1}, dim2 = {dim2}\n")
    helper = LayerHelper("trace", name=name)
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    return append_simple(helper, "trace", {"Input": [input]}, attrs, dtype=input.dtype, out=out)


def _triangle(layer: str, input: Variable, diagonal: int, name: str | None) -> Variable:
    helper = LayerHelper(layer, name=name)
    check_given(x=input)
    check_variable_and_dtype(input, "x", PLAIN, layer)
    if len(input.shape) < 2:
        raise UsageError(f"input shape in {layer} must be at least 2-D")
    if not isinstance(diagonal, int):
        raise ArgumentTypeError(f"diagonal in {layer} must be a python Int")
    out = helper.create_variable(name=helper.name, dtype=input.dtype, persistable=False)
    attrs = {"diagonal": diagonal, "lower": layer == "tril"}
    return append_simple(helper, "tril_triu", {"X": input}, attrs, dtype=input.dtype, out=out)


def tril(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The part on and below a diagonal, zeros above."""
    return _triangle("tril", input, diagonal, name)


def triu(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The part on and above a diagonal, zeros below."""
    return _triangle("triu", input, diagonal, name)


# ---------------------------------------------------------------- padding and cropping
def pad(x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None) -> Variable:
    """x with this many elements of pad_value before and after, dimension by dimension."""
    check_variable_and_dtype(x, "x", MOVABLE, "pad")
    helper = LayerHelper("pad", name=name)
    attrs = {"paddings": list(paddings), "pad_value": float(pad_value)}
    return append_simple(helper, "pad", {"X": x}, attrs, dtype=x.dtype)


def pad_constant_like(x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None) -> Variable:
    """y padded at the end to the shape of x."""
    check_type(x, "x", Variable, "pad_constant_like")
    check_variable_and_dtype(y, "y", PLAIN, "pad_constant_like")
    helper = LayerHelper("pad_constant_like", name=name)
    attrs = {"pad_value": float(pad_value)}
    return append_simple(helper, "pad_constant_like", {"X": x, "Y": y}, attrs, dtype=x.dtype)


def pad2d(
    input: Variable,
    paddings: Sequence[int] | Variable = (0, 0, 0, 0),
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Images padded [top, bottom, left, right] by a constant, by reflection or by their edges."""
    check_variable_and_dtype(input, "input", MOVABLE, "pad2d")
    attrs: dict[str, Any] = {"mode": mode, "pad_value": pad_value, "data_format": data_format}
    inputs: dict[str, Any] = {"X": [input]}
    if isinstance(paddings, Variable):
        inputs["Paddings"] = [paddings]
        attrs["paddings"] = []
    else:
        attrs["paddings"] = list(paddings)
    helper = LayerHelper("pad2d", name=name)
    if mode not in ("reflect", "edge", "constant"):
        raise AssertedError(f"mode should be one of constant, reflect, edge, found {mode!r}")
    return append_simple(helper, "pad2d", inputs, attrs, dtype=input.dtype)


def crop(
    x: Variable,
    shape: Sequence[int] | Variable | None = None,
    offsets: Sequence[int] | Variable | None = None,
    name: str | None = None,
) -> Variable:
    """A part of x: of a shape (that of another tensor, for a Variable) from offsets on."""
    check_variable_and_dtype(x, "x", ("float32",), "crop")
    check_type(shape, "shape", (list, tuple, Variable), "crop")
    helper = LayerHelper("crop", name=name)
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    offsets = [0] * len(x.shape) if offsets is None else offsets
    for label, slot, value in (("shape", "Y", shape), ("offsets", "Offsets", offsets)):
        if isinstance(value, Variable):
            inputs[slot] = value
        else:
            attrs[label] = list(value or ())
    return append_simple(helper, "crop", inputs, attrs, dtype=x.dtype)


def crop_tensor(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Variable:
    """A part of x: sizes and offsets are numbers, tensors, or lists of both; a size of -1 takes the rest."""
    helper = LayerHelper("crop_tensor", name=name)
    check_variable_and_dtype(x, "x", PLAIN, "crop_tensor")
    check_type(shape, "shape", (list, tuple, Variable), "crop_tensor")
    check_type(offsets, "offsets", (list, tuple, Variable, type(None)), "crop_tensor")
    offsets = [0] * len(x.shape) if offsets is None else offsets
    out = helper.create_variable_for_type_inference(x.dtype)
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    if isinstance(offsets, Variable):
        offsets.stop_gradient = True
        inputs["Offsets"] = offsets
        attrs["offsets"] = [-1] * len(x.shape)
    else:
        _check_numbers(offsets, "offsets", lowest=0)
        attrs["offsets"] = [-1 if isinstance(value, Variable) else value for value in offsets]
        if has_tensors(offsets):
            inputs["OffsetsTensor"] = number_tensors(helper, offsets)
    if isinstance(shape, Variable):
        shape.stop_gradient = True
        inputs["Shape"] = shape
    else:
        _check_numbers(shape, "shape", lowest=-1)
        attrs["shape"] = [0 if isinstance(value, Variable) else value for value in shape]
        if has_tensors(shape):
            inputs["ShapeTensor"] = number_tensors(helper, shape)
    return append_simple(helper, "crop_tensor", inputs, attrs, dtype=x.dtype, out=out)


def _check_numbers(values: Sequence[Any], label: str, lowest: int) -> None:
    for value in values:
        if isinstance(value, Variable):
            continue
        if not isinstance(value, int):
            raise ArgumentTypeError(
                f"Attr({label})'s dtype of Op(crop_tensor) should be int32, but received: {type(value)}."
            )
        if value < lowest or (label == "shape" and value == 0):
            raise UsageError(
                f"Attr({label}) of Op(crop_tensor) should be at least {lowest} and not zero, but received: {value}."
            )


def random_crop(x: Variable, shape: Sequence[int], seed: int | Variable | None = None) -> Variable:
    """A part of each instance at a random place."""
    helper = LayerHelper("random_crop")
    check_variable_and_dtype(x, "x", ("float32", "float64", "uint8", "int16", "int32"), "random_crop")
    check_type(shape, "shape", (list, Variable), "random_crop")
    out = helper.create_variable_for_type_inference(x.dtype)
    attrs: dict[str, Any] = {"shape": shape}
    seed = int(np.random.default_rng().integers(-65536, 65536)) if seed is None else seed
    if isinstance(seed, int):
        attrs["startup_seed"] = seed
        name = unique_name.generate("random_crop_seed")
        seed = helper.create_variable(name=name, dtype="int64", persistable=True)
    elif not isinstance(seed, Variable):
        raise UsageError(f"'seed' must be a Variable or an int, found {type(seed).__name__}")
    outputs = {"Out": out, "SeedOut": seed}
    helper.append_op(type="random_crop", inputs={"X": x, "Seed": seed}, outputs=outputs, attrs=attrs)
    return out


# ---------------------------------------------------------------- rearranging channels
def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Variable:
    """Blocks of pixels as channels."""
    helper = LayerHelper("space_to_depth", name=name)
    if not isinstance(blocksize, int):
        raise UsageError(f"blocksize must be a python Int, found {type(blocksize).__name__}")
    check_variable_and_dtype(x, "x", MOVABLE, "space_to_depth")
    return append_simple(helper, "space_to_depth", {"X": x}, {"blocksize": blocksize}, dtype=x.dtype)


def pixel_shuffle(x: Variable, upscale_factor: int) -> Variable:
    """Channels as blocks of pixels (Shi et al. 2016)."""
    check_variable_and_dtype(x, "x", ("float32", "float64"), "pixel_shuffle")
    helper = LayerHelper("pixel_shuffle")
    if not isinstance(upscale_factor, int):
        raise ArgumentTypeError(f"upscale factor must be int type, found {type(upscale_factor).__name__}")
    return append_simple(helper, "pixel_shuffle", {"X": x}, {"upscale_factor": upscale_factor}, dtype=x.dtype)


def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Variable:
    """Channels shuffled over groups (Zhang et al. 2017)."""
    helper = LayerHelper("shuffle_channel", name=name)
    if not isinstance(group, int):
        raise ArgumentTypeError(f"group must be int type, found {type(group).__name__}")
    return append_simple(helper, "shuffle_channel", {"X": x}, {"group": group}, dtype=x.dtype)


def temporal_shift(x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None) -> Variable:
    """Some channels moved one frame back, some one forward (Lin et al. 2018)."""
    helper = LayerHelper("temporal_shift", name=name)
    check_variable_and_dtype(x, "x", ("float32", "float64"), "temporal_shift")
    check_type(seg_num, "seg_num", int, "temporal_shift")
    check_type(shift_ratio, "shift_ratio", float, "temporal_shift")
    attrs = {"seg_num": seg_num, "shift_ratio": shift_ratio}
    return append_simple(helper, "temporal_shift", {"X": x}, attrs, dtype=x.dtype)


def autoincreased_step_counter(counter_name: str | None = None, begin: int = 1, step: int = 1) -> Variable:
    """A counter that every run of the program increments, int64 [1], created once."""
    helper = LayerHelper("global_step_counter")
    counter, fresh = helper.create_or_get_global_variable(
        name="@STEP_COUNTER@" if counter_name is None else counter_name,
        dtype="int64",
        shape=[1],
        persistable=True,
        belong_to_optimizer=True,
    )
    if fresh:
        helper.set_variable_initializer(counter, Constant(begin - 1, force_cpu=True))
        helper.main_program.global_block().prepend_op(
            type="increment", inputs={"X": [counter]}, outputs={"Out": [counter]}, attrs={"step": float(step)}
        )
        counter.stop_gradient = True
    return counter
