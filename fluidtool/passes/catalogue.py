"""Every pass that can be asked for by name, in the order in which `--all-inference` applies the inference rewrites."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib import import_module

from fluidtool.errors import ProgramError
from fluidtool.ir import Program
from fluidtool.passes.result import PassResult
from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope

Run = Callable[[Program, Scope, Collection[str]], PassResult]
CUDA_ONLY = "Paddle 1.8.5 has {} only in its CUDA build"


@dataclass(frozen=True, slots=True)
class InferencePass:
    """One rewrite: its name on the command line, where its function is, what it does, whether results stay bit-equal.

    not_saved: why not every Paddle 1.8.5 runs the operators that it brings as it brings them, empty if each does; its CPU
    build lacks some, and wants more of others, so that programs with these run here (some in its CUDA build, too).
    """

    name: str
    function: str
    summary: str
    exact: bool = False
    not_saved: str = ""

    @property
    def saved(self) -> bool:
        """Whether every Paddle 1.8.5 runs its result."""
        return not self.not_saved

    def run(self, program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
        """Apply it in place; `keep` names the variables that are fetched from outside."""
        module, _, name = self.function.partition(":")
        function: Run = getattr(import_module(f"fluidtool.passes.inference.{module}"), name)
        return function(program, scope, keep)


INFERENCE_PASSES = (
    InferencePass("is-test", "is_test:set_is_test", "set is_test where it changes no results", True),
    InferencePass("drop-dropout", "dropouts:drop_dropout", "remove dropout, or replace it with scale", True),
    InferencePass(
        "fold-constants",
        "constants:fold_constants",
        "fold constants: compute once what depends only on parameters",
        True,
    ),
    InferencePass(
        "drop-identity", "identities:drop_identity", "remove operators that return their input unchanged", True
    ),
    InferencePass("drop-dead", "dead_code:drop_dead", "remove operators whose results are not needed", True),
    InferencePass("merge-common", "common:merge_common", "merge operators that compute the same value", True),
    InferencePass("fuse-gelu", "gelu:fuse_gelu", "fuse erf or tanh and the arithmetic around it into gelu"),
    InferencePass(
        "fuse-layer-norm", "layer_norm:fuse_layer_norm", "fuse the operators that spell out layer_norm into one"
    ),
    InferencePass(
        "fuse-seqexpand-concat-fc",
        "expanded_fc:fuse_seqexpand_concat_fc",
        "multiply values that are expanded to sequences once per sequence",
        not_saved="fusion_seqexpand_concat_fc of Paddle 1.8.5 requires a LoD where sequence_expand requires none",
    ),
    InferencePass(
        "fuse-sum-of-products",
        "summed_products:fuse_sum_of_products",
        "fuse a sum of products with weights into one product",
    ),
    InferencePass(
        "fuse-embedding-lstm",
        "recurrent:fuse_embedding_lstm",
        "project an embedding table once for the lstm that reads its rows (the table may grow)",
    ),
    InferencePass("fuse-fc-lstm", "recurrent:fuse_fc_lstm", "fuse the projection of its input into an lstm"),
    InferencePass("fuse-fc-gru", "recurrent:fuse_fc_gru", "fuse the projection of its input into a gru"),
    InferencePass(
        "fuse-embedding-layer-norm",
        "summed_layer_norm:fuse_embedding_layer_norm",
        "fuse lookups, their sum and its layer_norm into one operator",
        not_saved=CUDA_ONLY.format("fused_embedding_eltwise_layernorm"),
    ),
    InferencePass(
        "fuse-attention",
        "attention:fuse_attention",
        "fuse self-attention into multihead_matmul",
        not_saved=CUDA_ONLY.format("multihead_matmul"),
    ),
    InferencePass(
        "fuse-skip-layer-norm",
        "summed_layer_norm:fuse_skip_layer_norm",
        "fuse the sum of two values into the layer_norm that reads it",
        not_saved=CUDA_ONLY.format("skip_layernorm"),
    ),
    InferencePass(
        "fuse-seqpool-concat",
        "sequence_pooling:fuse_seqpool_concat",
        "pool several sequences and concatenate them in one operator",
    ),
    InferencePass(
        "fuse-batch-norm",
        "fuse_batch_norm:fuse_batch_norm",
        "fold batch_norm into the convolution or product before it",
    ),
    InferencePass(
        "fuse-affine-channel",
        "fuse_batch_norm:fuse_affine_channel",
        "fold affine_channel into the convolution or product before it",
    ),
    InferencePass(
        "fuse-squared-mat-sub",
        "fuse_products:fuse_squared_mat_sub",
        "fuse the square of a product minus the product of the squares into one operator",
    ),
    InferencePass(
        "fuse-sequence-conv",
        "fuse_products:fuse_sequence_conv",
        "fuse bias and relu into the sequence_conv before them",
    ),
    # After all that look for products themselves:
    InferencePass("fuse-fc", "fuse_fc:fuse_fc", "fuse a product, its bias and relu into fc"),
    InferencePass("fuse-repeated-fc", "fuse_fc:fuse_repeated_fc", "fuse a chain of fc with relu into one operator"),
    InferencePass(
        "fuse-conv-bias",
        "fuse_convolution:fuse_bias",
        "fuse the bias into the convolution before it",
        not_saved=CUDA_ONLY.format("conv2d_fusion"),
    ),
    InferencePass(
        "fuse-conv-residual",
        "fuse_convolution:fuse_residual",
        "fuse the addition of another value into the convolution with bias before it",
        not_saved=CUDA_ONLY.format("conv2d_fusion"),
    ),
    InferencePass(
        "fuse-conv-activation",
        "fuse_convolution:fuse_activation",
        "fuse the activation into the convolution with bias before it",
        not_saved=CUDA_ONLY.format("conv2d_fusion"),
    ),
)


def find_pass(name: str) -> InferencePass:
    """The pass of that name; raises ProgramError that lists what there is."""
    for known in INFERENCE_PASSES:
        if known.name == name:
            return known
    raise ProgramError(f"there is no pass {name!r}; expected one of {', '.join(p.name for p in INFERENCE_PASSES)}")
