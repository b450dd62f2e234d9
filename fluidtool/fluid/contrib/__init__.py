"""`fluid.contrib`: the parts that work on programs of one process."""

from fluidtool.fluid.contrib import decoder, layers, mixed_precision, reader, slim
from fluidtool.fluid.contrib import extend_optimizer as extend_optimizer
from fluidtool.fluid.contrib import memory_usage_calc as memory_usage_calc
from fluidtool.fluid.contrib import model_stat as model_stat
from fluidtool.fluid.contrib import op_frequence as op_frequence
from fluidtool.fluid.contrib.decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from fluidtool.fluid.contrib.extend_optimizer import extend_with_decoupled_weight_decay
from fluidtool.fluid.contrib.layers import (
    BasicGRUUnit,
    BasicLSTMUnit,
    basic_gru,
    basic_lstm,
    ctr_metric_bundle,
    fused_elemwise_activation,
    fused_embedding_seq_pool,
    match_matrix_tensor,
    multiclass_nms2,
    partial_concat,
    partial_sum,
    rank_attention,
    search_pyramid_hash,
    sequence_topk_avg_pooling,
    shuffle_batch,
    tdm_child,
    tdm_sampler,
    tree_conv,
    var_conv_2d,
)
from fluidtool.fluid.contrib.memory_usage_calc import memory_usage
from fluidtool.fluid.contrib.model_stat import summary
from fluidtool.fluid.contrib.op_frequence import op_freq_statistic
from fluidtool.fluid.contrib.quantize import QuantizeTranspiler
from fluidtool.fluid.contrib.reader import distributed_batch_reader
from fluidtool.fluid.contrib.slim import Compressor
from fluidtool.fluid.contrib.utils import (
    HDFSClient,
    convert_dist_to_sparse_program,
    load_persistables_for_increment,
    load_persistables_for_inference,
    multi_download,
    multi_upload,
)
from fluidtool.fluid.inferencer import Inferencer
from fluidtool.fluid.offers import refuse_other_names
from fluidtool.fluid.trainer import Trainer
from fluidtool.fluid.training_events import (
    BeginEpochEvent,
    BeginStepEvent,
    CheckpointConfig,
    EndEpochEvent,
    EndStepEvent,
)

__all__ = [
    "BasicGRUUnit",
    "BasicLSTMUnit",
    "BeamSearchDecoder",
    "BeginEpochEvent",
    "BeginStepEvent",
    "CheckpointConfig",
    "Compressor",
    "EndEpochEvent",
    "EndStepEvent",
    "HDFSClient",
    "Inferencer",
    "InitState",
    "QuantizeTranspiler",
    "StateCell",
    "Trainer",
    "TrainingDecoder",
    "basic_gru",
    "basic_lstm",
    "convert_dist_to_sparse_program",
    "ctr_metric_bundle",
    "decoder",
    "distributed_batch_reader",
    "extend_with_decoupled_weight_decay",
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "layers",
    "load_persistables_for_increment",
    "load_persistables_for_inference",
    "match_matrix_tensor",
    "memory_usage",
    "mixed_precision",
    "multi_download",
    "multi_upload",
    "multiclass_nms2",
    "op_freq_statistic",
    "partial_concat",
    "partial_sum",
    "rank_attention",
    "reader",
    "search_pyramid_hash",
    "sequence_topk_avg_pooling",
    "shuffle_batch",
    "slim",
    "summary",
    "tdm_child",
    "tdm_sampler",
    "tree_conv",
    "var_conv_2d",
]

__getattr__ = refuse_other_names("paddle.fluid.contrib", __all__)
