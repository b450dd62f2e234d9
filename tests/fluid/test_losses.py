"""Losses, sequences, random numbers, schedules and small networks refuse arguments that cannot work, as Paddle 1.8.5 does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ArgumentTypeError, AssertedError, UsageError
from fluidtool.ir import Program

layers = fluid.layers


@pytest.fixture(autouse=True)
def _fresh_programs() -> Iterator[None]:
    with fluid.program_guard(Program(), Program()), fluid.unique_name.guard():
        yield


def rows(size: int = 4, dtype: str = "float32", **kwargs: Any) -> Any:
    return layers.data(f"x{size}{dtype}", [size], dtype=dtype, **kwargs)


def words() -> Any:
    return layers.data("words", [1], dtype="int64", lod_level=1)


WRONG_KIND: dict[str, Callable[[], Any]] = {
    "cross_entropy2": lambda: layers.cross_entropy(rows(dtype="int64"), words()),
    "cross_entropy": lambda: layers.cross_entropy(rows(dtype="int64"), rows(), soft_label=True),
    "square_error_cost": lambda: layers.square_error_cost(rows(), rows(dtype="int64")),
    "huber_loss": lambda: layers.huber_loss(rows(dtype="int32"), rows(), 1.0),
    "log_loss": lambda: layers.log_loss(rows(dtype="float64"), rows()),
    "rank_loss": lambda: layers.rank_loss(rows(), rows(dtype="float64"), rows()),
    "kldiv_loss": lambda: layers.kldiv_loss(rows(), rows(dtype="int32")),
    "label_smooth": lambda: layers.label_smooth(rows(dtype="int64")),
    "nce": lambda: layers.nce(rows(), rows(1, "int32"), 5),
    "hsigmoid": lambda: layers.hsigmoid(rows(dtype="int32"), words(), 5),
    "warpctc": lambda: layers.warpctc(rows(), words()),
    "edit_distance": lambda: layers.edit_distance(rows(), words()),
    "linear_chain_crf": lambda: layers.linear_chain_crf(rows(), rows(1, "int32")),
    "chunk_eval": lambda: layers.chunk_eval(rows(), words(), "IOB", 2),
    "mean_iou": lambda: layers.mean_iou(rows(), words(), 2),
    "auc": lambda: layers.auc(rows(), rows()),
    "accuracy": lambda: layers.accuracy(words(), words()),
    "sequence_pool": lambda: layers.sequence_pool(rows(dtype="float64"), "max"),
    "sequence_pad": lambda: layers.sequence_pad(rows(dtype="int8"), rows()),
    "sequence_enumerate": lambda: layers.sequence_enumerate(rows(), 2),
    "sequence_unpad": lambda: layers.sequence_unpad(rows(), rows(1, "int32")),
    "uniform_random": lambda: layers.uniform_random([2], "int64"),
    "randint": lambda: layers.randint(1, 5, dtype="float32"),
    "randn": lambda: layers.randn([2], dtype="int32"),
    "randperm": lambda: layers.randperm(3, dtype="float32"),
    "lod_reset": lambda: layers.lod_reset(rows(dtype="bool"), target_lod=[0, 1]),
    "glu": lambda: fluid.nets.glu(rows(dtype="int32")),
}


@pytest.mark.parametrize("layer", WRONG_KIND)
def test_data_types_are_checked(layer: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"in (fluid.layers.)?{layer} must be"):
        WRONG_KIND[layer]()


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: layers.center_loss(rows(), words(), 3, 1, None), AssertedError, "'alpha' of center_loss"),
    (lambda: layers.label_smooth(rows(), epsilon=1.5), UsageError, "epsilon must be between 0 and 1"),
    (lambda: layers.nce(rows(), words(), 5, sampler="best"), UsageError, "Unsupported sampler type"),
    (lambda: layers.nce(rows(), words(), 5, sampler="custom_dist"), UsageError, "custom_dist with 5 probabilities"),
    (lambda: layers.hsigmoid(rows(), words(), 1), UsageError, "must not be less than 2"),
    (lambda: layers.hsigmoid(rows(), words(), 4, path_code=words()), UsageError, "only num_classes"),
    (lambda: layers.hsigmoid(rows(), words(), 4, is_custom=True), UsageError, "path_code should not be None"),
    (
        lambda: layers.hsigmoid(rows(), words(), 4, path_code=words(), is_custom=True),
        UsageError,
        "path_table should not be None",
    ),
    (lambda: layers.crf_decoding(rows(), fluid.ParamAttr(name="nothing")), UsageError, "nothing"),
    (lambda: layers.similarity_focus(layers.data("i", [3, 2, 2]), 0, [0]), UsageError, "axis must be 1, 2 or 3"),
    (lambda: layers.similarity_focus(layers.data("i", [3, 2, 2]), 1, []), UsageError, "indexes can not be empty"),
    (lambda: layers.sequence_concat(rows()), ArgumentTypeError, "'input' in fluid.layers.sequence_concat"),
    (lambda: layers.lod_reset(rows()), UsageError, "should not be both none"),
    (lambda: layers.lod_append(None, [0, 1]), UsageError, "can't be None"),  # type: ignore[arg-type]
    (lambda: layers.lod_append(rows(), 3), UsageError, "must be list, tuple or Variable"),  # type: ignore[arg-type]
    (lambda: layers.uniform_random([]), UsageError, "can't be zero"),
    (lambda: layers.uniform_random([0, 2]), UsageError, "must not be negative"),
    (lambda: layers.gaussian_random(3), ArgumentTypeError, "must be Variable, list or tuple"),  # type: ignore[arg-type]
    (lambda: layers.randint(5, 5), UsageError, "low = 5, high = 5"),
    (lambda: layers.randperm(0), UsageError, "greater than 0"),
    (lambda: layers.randperm(3, device="tpu"), UsageError, "'tpu'"),
    (lambda: layers.piecewise_decay([1], [0.1]), UsageError, "should be 1"),
    (lambda: layers.cosine_decay(1, 2, 3), ArgumentTypeError, "'learning_rate' in cosine_decay"),
    (lambda: layers.Uniform(rows(), 1.0), UsageError, "all arguments should be Variable"),
    (lambda: layers.Normal("a", 1.0), ArgumentTypeError, "'loc' in Normal"),
    (lambda: layers.Normal(0.0, 1.0).kl_divergence(3), ArgumentTypeError, "'other' in kl_divergence"),  # type: ignore[arg-type]
    (lambda: fluid.nets.img_conv_group(rows(), 3, 2), ArgumentTypeError, "conv_num_filter"),  # type: ignore[arg-type]
    (
        lambda: fluid.nets.img_conv_group(layers.data("i", [3, 8, 8]), [2, 2], 2, conv_padding=[1]),
        UsageError,
        "one entry for each of 2 layers, found 1",
    ),
    (lambda: fluid.nets.scaled_dot_product_attention(rows(), rows(), rows()), UsageError, "should all be 3-D"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_what_cannot_work_is_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_the_alias_table_keeps_the_probabilities() -> None:
    from fluidtool.fluid.layers.sampled_loss import alias_table

    wanted = [0.1, 0.25, 0.4, 0.2, 0.05]
    shares, alias = alias_table(wanted)
    found = [0.0] * 5
    for index, (share, other) in enumerate(zip(shares, alias, strict=True)):
        found[index] += share / 5
        if other >= 0:
            found[other] += (1 - share) / 5
    assert found == pytest.approx(wanted, abs=1e-12)
