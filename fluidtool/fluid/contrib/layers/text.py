"""Layers for matching texts, for trees and for embeddings (Paddle 1.8.5 contrib/layers/nn.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.errors import UsageError
from fluidtool.fluid.checks import check_dtype, check_type
from fluidtool.fluid.initializer import Constant
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers import reshape, slice
from fluidtool.fluid.layers.building import append_several, append_simple
from fluidtool.fluid.layers.windows import per_dimension
from fluidtool.fluid.param_attr import ParamAttr
from fluidtool.ir import Variable
from fluidtool.ir.variable import data_type
from fluidtool.shapes import shape_text

INTEGERS = ("int32", "int64")


def match_matrix_tensor(
    x: Variable,
    y: Variable,
    channel_num: int,
    act: str | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """x W y' of every pair of words, for each of channel_num matrices W: x, y [words, h] with LoD; returns it and x W."""
    if len(x.shape) != 2 or len(y.shape) != 2 or x.shape[-1] != y.shape[-1]:
        raise UsageError(f"match_matrix_tensor takes two inputs (words, h) of one width, found {x.shape} and {y.shape}")
    helper = LayerHelper("match_matrix_tensor", name=name, act=act, param_attr=param_attr)
    weight = helper.create_parameter(helper.param_attr, [x.shape[-1], channel_num, y.shape[-1]], dtype)
    outputs = append_several(
        helper,
        "match_matrix_tensor",
        {"X": x, "Y": y, "W": weight},
        {"Out": dtype, "Tmp": dtype},
        {"dim_t": channel_num},
    )
    outputs["Tmp"].stop_gradient = True
    return helper.append_activation(outputs["Out"]), outputs["Tmp"]


def var_conv_2d(
    input: Variable,
    row: Variable,
    col: Variable,
    input_channel: int,
    output_channel: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    param_attr: Any = None,
    act: str | None = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Convolution of images of different sizes: input [pixels, 1] with LoD, the sizes are the LoDs of row and col."""
    if len(input.shape) != 2:
        raise UsageError(f"var_conv_2d takes input of two dimensions, found {input.shape}")
    helper = LayerHelper("var_conv_2d", name=name, act=act, param_attr=param_attr)
    height, width = per_dimension(filter_size, 2, "filter_size")
    stride_height, stride_width = per_dimension(stride, 2, "stride")
    weight = helper.create_parameter(helper.param_attr, [output_channel, input_channel * height * width], dtype)
    attrs = {
        "InputChannel": input_channel,
        "OutputChannel": output_channel,
        "StrideH": stride_height,
        "StrideW": stride_width,
        "KernelH": height,
        "KernelW": width,
    }
    inputs = {"X": input, "ROW": row, "COLUMN": col, "W": weight}
    out = append_simple(helper, "var_conv_2d", inputs, attrs, dtype=dtype, extra=("Col",))
    return helper.append_activation(out)


def sequence_topk_avg_pooling(
    input: Variable, row: Variable, col: Variable, topks: Sequence[int], channel_num: int
) -> Variable:
    """The means of the k largest values of every row, for each k of topks; input is a match_matrix_tensor's output."""
    helper = LayerHelper("sequence_topk_avg_pooling", input=input)
    inputs = {"X": input, "ROW": row, "COLUMN": col}
    attrs = {"topks": list(topks), "channel_num": channel_num}
    return append_simple(helper, "sequence_topk_avg_pooling", inputs, attrs, dtype=helper.input_dtype(), extra=("pos",))


def tree_conv(
    nodes_vector: Variable,
    edge_set: Variable,
    output_size: int,
    num_filters: int = 1,
    max_depth: int = 2,
    act: str | None = "tanh",
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Tree-based convolution (Mou et al. 2016): nodes_vector [n, nodes, h], edge_set [n, edges, 2]."""
    check_type(nodes_vector, "nodes_vector", Variable, "tree_conv")
    check_type(edge_set, "edge_set", Variable, "tree_conv")
    helper = LayerHelper("tree_conv", name=name, nodes_vector=nodes_vector, act=act, bias_attr=bias_attr)
    dtype = helper.input_dtype("nodes_vector")
    weight = helper.create_parameter(param_attr, [nodes_vector.shape[2], 3, output_size, num_filters], dtype)
    inputs = {"NodesVector": nodes_vector, "EdgeSet": edge_set, "Filter": weight}
    out = append_simple(helper, "tree_conv", inputs, {"max_depth": max_depth}, dtype=dtype)
    return helper.append_activation(helper.append_bias_op(out))


def fused_embedding_seq_pool(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    padding_idx: int | None = None,
    combiner: str = "sum",
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """The sum of the embeddings of every sequence; size: [ids, width]; padding_idx adds nothing."""
    helper = LayerHelper("fused_embedding_seq_pool", param_attr=param_attr)
    weight = helper.create_parameter(helper.param_attr, list(size), dtype)
    padding = -1 if padding_idx is None else padding_idx if padding_idx >= 0 else size[0] + padding_idx
    attrs = {"is_sparse": is_sparse, "combiner": combiner, "padding_idx": padding}
    return append_simple(helper, "fused_embedding_seq_pool", {"Ids": input, "W": weight}, attrs, dtype=dtype)


def search_pyramid_hash(
    input: Variable,
    num_emb: int,
    space_len: int,
    pyramid_layer: int,
    rand_len: int,
    drop_out_percent: float,
    is_training: bool,
    use_filter: bool,
    white_list_len: int,
    black_list_len: int,
    seed: int,
    lr: float,
    param_attr: Any = None,
    param_attr_wl: Any = None,
    param_attr_bl: Any = None,
    name: str | None = None,
    distribute_update_vars: Sequence[str] | None = None,
    dtype: Any = "float32",
) -> Variable:
    """Embeddings of the hashed n-grams of sequences, trained separately with the learning rate lr."""
    helper = LayerHelper("search_pyramid_hash", name=name)
    tables = [("W", param_attr, space_len + rand_len)]
    tables += [("WhiteList", param_attr_wl, white_list_len)] if white_list_len > 0 else []
    tables += [("BlackList", param_attr_bl, black_list_len)] if black_list_len >= 0 else []
    inputs: dict[str, Any] = {"X": input}
    for slot, attr, rows in tables:
        inputs[slot] = helper.create_parameter(attr, [rows, 1], dtype)
        inputs[slot].stop_gradient = True
    known = {attr.name for attr in (param_attr, param_attr_wl, param_attr_bl) if isinstance(attr, ParamAttr)}
    for each in distribute_update_vars or ():
        if each not in known:
            raise UsageError(f"Pyramid Hash layer didn't have parameter {each}")
    attrs = {
        "num_emb": num_emb,
        "space_len": space_len,
        "pyramid_layer": pyramid_layer,
        "rand_len": rand_len,
        "drop_out_percent": drop_out_percent,
        "is_training": int(is_training),
        "use_filter": use_filter,
        "white_list_len": white_list_len,
        "black_list_len": black_list_len,
        "seed": seed,
        "lr": lr,
        "distribute_update_vars": ",".join(distribute_update_vars or ()),
    }
    out, drop, temporary = (helper.create_variable_for_type_inference(dtype) for _ in range(3))
    outputs = {"Out": out, "DropPos": drop, "X_Temp_Out": temporary}
    helper.append_op(type="pyramid_hash", inputs=inputs, outputs=outputs, attrs=attrs)
    return out


def rank_attention(
    input: Variable, rank_offset: Variable, rank_param_shape: Sequence[int], rank_param_attr: Any, max_rank: int = 3
) -> Variable:
    """input [n, h] times the blocks of a parameter [h * max_rank * max_rank, width] that rank_offset chooses."""
    if input.shape[1] * max_rank * max_rank != rank_param_shape[0]:
        raise UsageError(
            f"rank_param_shape must start with {input.shape[1]} * {max_rank} * {max_rank}, found {shape_text(rank_param_shape)}"
        )
    helper = LayerHelper("rank_attention", input=input)
    dtype = helper.input_dtype()
    weight = helper.create_parameter(rank_param_attr, list(rank_param_shape), dtype)
    out = helper.create_variable_for_type_inference(dtype)
    helper.create_variable_for_type_inference(dtype, stop_gradient=True)  # Paddle creates an unused one
    inputs = {"X": input, "RankOffset": rank_offset, "RankParam": weight}
    return append_simple(helper, "rank_attention", inputs, {"MaxRank": max_rank}, dtype=dtype, out=out)


# ---------------------------------------------------------------- trees of items
def tdm_child(
    x: Variable, node_nums: int, child_nums: int, param_attr: Any = None, dtype: Any = "int32"
) -> tuple[Variable, Variable]:
    """The children of nodes of a tree, and which of them are leaves; the tree is a parameter [node_nums, 3 + child_nums]."""
    check_dtype(dtype, "dtype", INTEGERS, "fluid.contrib.layers.tdm_child")
    helper = LayerHelper("tdm_child", param_attr=param_attr)
    tree = helper.create_parameter(
        helper.param_attr, [node_nums, 3 + child_nums], dtype, default_initializer=Constant(0)
    )
    tree.stop_gradient = True
    attrs = {"child_nums": child_nums, "dtype": int(data_type(dtype))}
    outputs = append_several(
        helper, "tdm_child", {"X": x, "TreeInfo": tree}, {"Child": dtype, "LeafMask": dtype}, attrs
    )
    return outputs["Child"], outputs["LeafMask"]


def tdm_sampler(
    x: Variable,
    neg_samples_num_list: Sequence[int],
    layer_node_num_list: Sequence[int],
    leaf_node_num: int,
    tree_travel_attr: Any = None,
    tree_layer_attr: Any = None,
    output_positive: bool = True,
    output_list: bool = True,
    seed: int = 0,
    tree_dtype: Any = "int32",
    dtype: Any = "int32",
) -> tuple[Any, Any, Any]:
    """Positive and negative samples from every layer of a tree, their labels and masks, by layer unless not output_list."""
    helper = LayerHelper("tdm_sampler")
    check_dtype(tree_dtype, "tree_dtype", INTEGERS, "fluid.contrib.layers.tdm_sampler")
    check_dtype(dtype, "dtype", INTEGERS, "fluid.contrib.layers.tdm_sampler")
    offsets = _layer_offsets(neg_samples_num_list, layer_node_num_list, leaf_node_num)
    shapes = ([leaf_node_num, len(layer_node_num_list)], tree_travel_attr), ([offsets[-1], 1], tree_layer_attr)
    travel, layer = (
        helper.create_parameter(attr, size, tree_dtype, default_initializer=Constant(0)) for size, attr in shapes
    )
    attrs = {
        "neg_samples_num_list": list(neg_samples_num_list),
        "output_positive": output_positive,
        "layer_offset_lod": offsets,
        "seed": seed,
        "dtype": int(data_type(dtype)),
    }
    inputs, outputs = {"X": x, "Travel": travel, "Layer": layer}, {"Out": dtype, "Labels": dtype, "Mask": dtype}
    results = append_several(helper, "tdm_sampler", inputs, outputs, attrs)
    for result in results.values():
        result.stop_gradient = True
    if not output_list:
        return results["Out"], results["Labels"], results["Mask"]
    return _by_layer(list(results.values()), [count + output_positive for count in neg_samples_num_list])


def _layer_offsets(negatives: Sequence[int], nodes: Sequence[int], leaves: int) -> list[int]:
    """Where the layers of the tree start in a list of all nodes; raises UsageError."""
    if len(negatives) != len(nodes):
        raise UsageError(
            "The shape of negative samples list must match the shape of layers. But received len of "
            f"neg_samples_num_list: {len(negatives)},and len of layer_node_num_list: {len(nodes)}"
        )
    offsets = [0]
    for layer, (samples, count) in enumerate(zip(negatives, nodes, strict=True)):
        if samples >= count:
            raise UsageError(
                f"The number of negative samples must be less than the number of nodes in the layer {layer}, but received "
                f"{samples} of {count}"
            )
        offsets.append(offsets[-1] + count)
    if leaves is None or leaves >= offsets[-1]:
        raise UsageError(f"leaf_node_num must be less than total node nums, {offsets[-1]}; found {leaves}")
    return offsets


def _by_layer(results: list[Variable], widths: list[int]) -> tuple[list[Variable], list[Variable], list[Variable]]:
    parts: tuple[list[Variable], list[Variable], list[Variable]] = ([], [], [])
    start = 0
    for width in widths:
        end = start + width
        sliced = [slice(result, axes=[1], starts=[start], ends=[end]) for result in results]
        for part, piece in zip(parts, sliced, strict=True):
            shaped = reshape(piece, [-1, width, 1])
            shaped.stop_gradient = True
            part.append(shaped)
        start = end
    return parts
