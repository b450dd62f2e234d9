"""Which operators compute in float16 (Paddle 1.8.5 contrib/mixed_precision/fp16_lists.py)."""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.errors import UsageError

WHITE = frozenset(["conv2d", "matmul", "mul"])
BLACK = frozenset(
    [
        "cos_sim",
        "cross_entropy",
        "cross_entropy2",
        "exp",
        "log",
        "mean",
        "sigmoid_cross_entropy_with_logits",
        "softmax",
        "softmax_with_cross_entropy",
        "square",
        "sum",
    ]
)
GRAY = frozenset(
    [
        "batch_norm",
        "cast",
        "dropout",
        "elementwise_add",
        "elementwise_div",
        "elementwise_floordiv",
        "elementwise_max",
        "elementwise_min",
        "elementwise_mod",
        "elementwise_mul",
        "elementwise_pow",
        "elementwise_sub",
        "fill_constant",
        "flatten2",
        "gather",
        "gaussian_random",
        "gaussian_random_batch_size_like",
        "get_tensor_from_selected_rows",
        "leaky_relu",
        "lookup_table",
        "pool2d",
        "pool3d",
        "rank",
        "relu",
        "relu6",
        "reshape2",
        "scale",
        "sigmoid",
        "sign",
        "slice",
        "soft_relu",
        "stack",
        "tanh",
        "top_k",
        "transpose2",
        "uniform_random_batch_size_like",
        "unstack",
    ]
)


class AutoMixedPrecisionLists:
    """white_list: operators that compute in float16; black_list: in float32, like all that are in no list; gray_list: in
    the precision of their producers. Custom lists move operators; operators of black_varnames stay in float32.

    Raises UsageError for an operator in both custom lists.
    """

    def __init__(
        self,
        custom_white_list: Collection[str] | None = None,
        custom_black_list: Collection[str] | None = None,
        custom_black_varnames: Collection[str] | None = None,
    ) -> None:
        white, black = set(custom_white_list or ()), set(custom_black_list or ())
        if white & black:
            raise UsageError(f"Custom white list overlap custom black list: {', '.join(sorted(white & black))}")
        self.white_list = (set(WHITE) | white) - black
        self.black_list = (set(BLACK) - white) | black
        self.gray_list = set(GRAY) - white - black
        self.black_varnames = None if custom_black_varnames is None else set(custom_black_varnames)
