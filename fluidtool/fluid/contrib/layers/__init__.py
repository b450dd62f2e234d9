"""`fluid.contrib.layers`."""

from fluidtool.fluid.contrib.layers.elementwise import (
    ctr_metric_bundle,
    fused_elemwise_activation,
    multiclass_nms2,
    partial_concat,
    partial_sum,
    shuffle_batch,
)
from fluidtool.fluid.contrib.layers.recurrent import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
from fluidtool.fluid.contrib.layers.text import (
    fused_embedding_seq_pool,
    match_matrix_tensor,
    rank_attention,
    search_pyramid_hash,
    sequence_topk_avg_pooling,
    tdm_child,
    tdm_sampler,
    tree_conv,
    var_conv_2d,
)
from fluidtool.fluid.offers import refuse_other_names

__all__ = [
    "BasicGRUUnit",
    "BasicLSTMUnit",
    "basic_gru",
    "basic_lstm",
    "ctr_metric_bundle",
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "match_matrix_tensor",
    "multiclass_nms2",
    "partial_concat",
    "partial_sum",
    "rank_attention",
    "search_pyramid_hash",
    "sequence_topk_avg_pooling",
    "shuffle_batch",
    "tdm_child",
    "tdm_sampler",
    "tree_conv",
    "var_conv_2d",
]

__getattr__ = refuse_other_names("paddle.fluid.contrib.layers", __all__)
