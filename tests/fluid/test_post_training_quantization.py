"""Quantization without training; numbers are those of Paddle 1.8.5."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.errors import AssertedError
from fluidtool.fluid.contrib.slim.quantization import PostTrainingQuantization, WeightQuantization
from fluidtool.fluid.contrib.slim.quantization.divergence import threshold

CPU = fluid.CPUPlace()
SIZES_OF_185 = {  # how large the outputs of operators are
    "KL": [5.610684, 4.548323, 5.03458, 5.534479, 23.13183, 22.9178, 4.948738, 4.948738, 5.53547, 0.9997557, 0.9997557],
    "abs_max": [
        7.513353,
        6.20786,
        6.767956,
        7.646976,
        24.13185,
        24.05288,
        6.767956,
        6.767956,
        7.646976,
        0.9999999,
        0.9999999,
    ],
    "min_max": [
        7.513353,
        3.750654,
        6.767956,
        7.646976,
        23.15497,
        22.62148,
        6.767956,
        6.767956,
        7.646976,
        0.9999999,
        0.9999999,
    ],
}
PREDICTIONS_OF_185 = {
    ("KL", "range_abs_max", "channel_wise_abs_max", 2): [7.91489e-10, 4.9542e-07, 3.815018e-16, 1.204843e-09],
    ("KL", "moving_average_abs_max", "abs_max", 4): [8.399828e-10, 4.798063e-07, 3.692906e-16, 1.026588e-09],
    ("abs_max", "range_abs_max", "channel_wise_abs_max", 2): [8.460413e-10, 4.95862e-07, 3.603825e-16, 1.211646e-09],
    ("min_max", "range_abs_max", "abs_max", 2): [8.025068e-10, 4.673704e-07, 3.666111e-16, 1.125248e-09],
}
TYPES = ["conv2d", "mul", "pool2d", "elementwise_add"]


@pytest.fixture
def model(tmp_path: Path) -> Iterator[tuple[str, Any]]:
    """A saved model with drawn weights, and samples."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.scope_guard(fluid.Scope()):
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            c = fluid.layers.conv2d(
                fluid.data("img", [None, 1, 12, 12]), 4, 3, act="relu", param_attr="cw", bias_attr="cb"
            )
            c = fluid.layers.pool2d(c, 2, "max", 2)
            d = fluid.layers.conv2d(c, 4, 1, param_attr="dw", bias_attr=False)
            c = fluid.layers.elementwise_add(c, d, act="relu")
            p = fluid.layers.fc(c, 10, act="softmax", param_attr="fw", bias_attr="fb")
        executor = fluid.Executor(CPU)
        executor.run(startup)
        rng = np.random.RandomState(3)
        for name in ("cb", "cw", "dw", "fb", "fw"):
            tensor = fluid.global_scope().find_var(name).get_tensor()
            tensor.set(rng.normal(0, 0.4, tensor.shape()).astype("float32"), CPU)
        fluid.io.save_inference_model(str(tmp_path / "model"), ["img"], [p], executor, main)
    with fluid.scope_guard(fluid.Scope()):
        yield str(tmp_path / "model"), rng.normal(0, 1, (40, 1, 12, 12)).astype("float32")


def job(model: tuple[str, Any], algo: str, **options: Any) -> PostTrainingQuantization:
    folder, samples = model

    def generator() -> Iterator[tuple[Any]]:
        for sample in samples:
            yield (sample,)

    options = {"executor": fluid.Executor(CPU), "model_dir": folder, "sample_generator": generator} | options
    return PostTrainingQuantization(batch_size=8, batch_nums=3, algo=algo, **options)


def sizes(program: fluid.Program, algo: str) -> list[float]:
    name = "out_max" if algo == "min_max" else "out_threshold"
    ops = sorted((op for op in program.global_block().ops if op.has_attr(name)), key=lambda op: op.type)
    return [op.attr(name) for op in ops]


@pytest.mark.parametrize(("algo", "activation", "weight", "count"), PREDICTIONS_OF_185)
def test_a_model_is_quantized_as_by_185(
    model: tuple[str, Any], tmp_path: Path, algo: str, activation: str, weight: str, count: int
) -> None:
    given = {
        "activation_quantize_type": activation,
        "weight_quantize_type": weight,
        "quantizable_op_type": TYPES[:count],
    }
    quantization = job(model, algo, **given)
    assert sorted(sizes(quantization.quantize(), algo)) == pytest.approx(sorted(SIZES_OF_185[algo]), rel=1e-6)
    quantization.save_quantized_model(str(tmp_path / "quantized"))
    executor = fluid.Executor(CPU)
    program, _, targets = fluid.io.load_inference_model(str(tmp_path / "quantized"), executor)
    found = executor.run(program, {"img": model[1][:4]}, targets)[0][0][:4]
    # Softmax of logits up to 40: rounding one of them is 4e-6 of what it gives.
    np.testing.assert_allclose(found, PREDICTIONS_OF_185[algo, activation, weight, count], rtol=4e-6)


def test_batches_may_be_given(model: tuple[str, Any]) -> None:
    batches = [[model[1][start : start + 8]] for start in (0, 8, 16)]
    given = {"sample_generator": None, "batch_generator": lambda: iter(batches), "quantizable_op_type": TYPES[:2]}
    assert sorted(sizes(job(model, "abs_max", **given).quantize(), "abs_max")) == pytest.approx(
        sorted(SIZES_OF_185["abs_max"]), rel=1e-6
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": None}, "executor cannot be None"),
        ({"model_dir": None}, "model_dir cannot be None"),
        ({"sample_generator": None}, "cannot be None in the same time"),
        ({"activation_quantize_type": "none"}, r"quantize type \(none\) should be one of range_abs_max"),
        ({"weight_quantize_type": "range_abs_max"}, r"quantize type \(range_abs_max\) should be one of abs_max"),
        ({"quantizable_op_type": ["lstm"]}, "lstm is not supported for quantization"),
    ],
)
def test_what_is_refused(model: tuple[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertedError, match=message):
        job(model, "KL", **options)
    with pytest.raises(AssertedError, match="algo should be KL, abs_max or min_max, found 'mean'"):
        job(model, "mean")


@pytest.mark.parametrize(
    ("outliers", "of_185"), [([], 3.30875855172053), ([50.0], 3.7963815052062273), ([40.0, 50.0], 40.026800500229)]
)
def test_the_threshold_cuts_off_outliers(outliers: list[float], of_185: float) -> None:
    values = np.concatenate([np.random.RandomState(0).normal(0, 1, 10000), outliers]).astype("float32")
    assert threshold(values) == pytest.approx(of_185, rel=1e-6)


@pytest.mark.parametrize("type_", ["channel_wise_abs_max", "abs_max"])
@pytest.mark.parametrize("bits", [8, 16])
def test_weights_are_stored_as_integers(model: tuple[str, Any], tmp_path: Path, type_: str, bits: int) -> None:
    quantization = WeightQuantization(model[0])
    quantization.quantize_weight_to_int(
        str(tmp_path / "w"), weight_bits=bits, weight_quantize_type=type_, generate_test_model=True
    )
    executor = fluid.Executor(CPU)
    fluid.io.load_inference_model(model[0], executor)
    exact = np.array(fluid.global_scope().find_var("fw").get_tensor())
    program, _, _ = fluid.io.load_inference_model(str(tmp_path / "w" / "test_model"), executor)
    rounded = np.array(fluid.global_scope().find_var("fw").get_tensor())
    [op] = [op for op in program.global_block().ops if op.type == "mul"]
    scales = np.array(op.attr("fw_quant_scale"), "float32")
    assert (len(scales), op.attr("quantize_weight_bits")) == (10 if "channel" in type_ else 1, bits)
    assert (np.abs(rounded - exact) <= scales / 2 * 1.001).all() and (rounded != exact).any()
    integers = (tmp_path / "w" / "quantized_model" / "fw").stat().st_size
    assert integers < (tmp_path / "w" / "test_model" / "fw").stat().st_size * bits / 32 + 32


def test_outliers_of_weights_are_cut_off(model: tuple[str, Any], tmp_path: Path) -> None:
    for rate in (0.0, 0.01):
        WeightQuantization(model[0]).quantize_weight_to_int(
            str(tmp_path / str(rate)), weight_quantize_type="abs_max", threshold_rate=rate, generate_test_model=True
        )
    largest = []
    for rate in (0.0, 0.01):
        fluid.io.load_inference_model(str(tmp_path / str(rate) / "test_model"), fluid.Executor(CPU))
        largest.append(np.abs(np.array(fluid.global_scope().find_var("fw").get_tensor())).max())
    assert largest == pytest.approx([1.4809833, 1.0704546], rel=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantizable_op_type": ["pool2d"]}, "pool2d is not supported for weight quantization"),
        ({"weight_bits": 4}, "weight_bits should be 8 or 16, found 4"),
        ({"weight_quantize_type": "KL"}, "weight_quantize_type should in"),
    ],
)
def test_what_weight_quantization_refuses(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertedError, match=message):
        WeightQuantization("none").quantize_weight_to_int(str(tmp_path), **options)
