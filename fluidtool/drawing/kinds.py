"""Kinds of operators, which have one color each: by the module that an operator stands in."""

from __future__ import annotations

from fluidtool.ops.index import MODULES

# The first row that the module's name starts with.
_ROWS: tuple[tuple[str, str], ...] = (
    ("nn.conv", "convolution"),
    ("nn.deformable_conv", "convolution"),
    ("nn.fused_conv", "convolution"),
    ("nn.row_conv", "convolution"),
    ("nn.tree_conv", "convolution"),
    ("nn.var_conv", "convolution"),
    ("nn.fc", "product"),
    ("nn.batch_norm", "normalization"),
    ("nn.data_norm", "normalization"),
    ("nn.group_norm", "normalization"),
    ("nn.inplace_abn", "normalization"),
    ("nn.instance_norm", "normalization"),
    ("nn.layer_norm", "normalization"),
    ("nn.local_norms", "normalization"),
    ("nn.spectral_norm", "normalization"),
    ("nn.fused_elemwise", "arithmetic"),
    ("nn.dropout", "activation"),
    ("nn.affine_grid", "shape"),
    ("nn.fold", "shape"),
    ("nn.grid_sampler", "shape"),
    ("nn.im2sequence", "shape"),
    ("nn.interpolate", "shape"),
    ("nn.unfold", "shape"),
    ("nn.", "pooling"),
    ("math.matmul", "product"),
    ("math.mul", "product"),
    ("math.einsum", "product"),
    ("math.products", "product"),
    ("math.", "arithmetic"),
    ("fused.", "product"),
    ("activation.", "activation"),
    ("tensor.", "shape"),
    ("embedding.", "embedding"),
    ("sequence.", "sequence"),
    ("rnn.", "sequence"),
    ("structured.", "sequence"),
    ("text.", "sequence"),
    ("detection.", "detection"),
    ("control_flow.", "control"),
    ("concurrency.", "control"),
    ("loss.", "loss"),
    ("metrics.", "loss"),
    ("optimizers.", "optimizer"),
)
UNKNOWN, OTHER = "unknown", "other"
KINDS = (*dict.fromkeys(kind for _, kind in _ROWS), OTHER)


def kind_of(op_type: str) -> str:
    """The kind of an operator; 'unknown' for a type that fluidtool does not have."""
    module = MODULES.get(op_type)
    if module is None:
        return UNKNOWN
    return next((kind for start, kind in _ROWS if module.startswith(start)), OTHER)
