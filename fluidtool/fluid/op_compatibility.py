"""Which operators changed since Paddle 1.5, as Paddle 1.8.5 writes it into programs (op_compatible_info.cc, measured)."""

from __future__ import annotations

from fluidtool.ir import Program
from fluidtool.ir.program import ProgramDesc
from fluidtool.proto import framework_pb2 as messages

__all__ = ["save_op_compatible_info"]

SINCE, BEFORE = "1.6.0", "1.5.0"
# whether what they are now can be read by an older Paddle
NOT = (
    "center_loss coalesce_tensor crop_tensor deformable_conv deformable_conv_v1 dpsgd eye fill_any_like filter_by_instag "
    "gather_nd hard_swish instance_norm lookup_table_v2 match_matrix_tensor multiclass_nms2 one_hot_v2 prroi_pool "
    "pull_box_sparse scatter_nd_add sequence_pad sequence_topk_avg_pooling sequence_unpad shard_index size strided_slice "
    "trilinear_interp unfold unique unique_with_counts var_conv_2d"
)
PERHAPS = (
    "bilinear_interp chunk_eval conditional_block conditional_block_infer conv2d conv2d_transpose conv3d conv3d_transpose "
    "crf_decoding ctc_align data_norm depthwise_conv2d depthwise_conv2d_transpose edit_distance expand fc "
    "fused_embedding_seq_pool group_norm hash leaky_relu linear_chain_crf lod_reset matmul mul nearest_interp one_hot pow "
    "prior_box reshape2 slice uniform_random uniform_random_batch_size_like warpctc"
)
MENDED = "layer_norm"


def save_op_compatible_info(desc: ProgramDesc) -> None:
    """Write the table into a program; readers other than Paddle 1.6 to 1.8 do not look at it."""
    kinds = messages.CompatibleInfo
    found = {name: kinds.DEFINITELY_NOT for name in NOT.split()}
    found |= dict.fromkeys(PERHAPS.split(), kinds.POSSIBLE) | dict.fromkeys(MENDED.split(), kinds.BUG_FIX)
    table = messages.OpCompatibleMap(default_required_version=BEFORE)
    for name, kind in sorted(found.items()):
        table.pair.add(op_name=name, compatible_info=messages.CompatibleInfo(version=SINCE, type=kind))
    program: Program = desc.program
    program.op_compatible_map = table.SerializeToString()
    program.touch()
