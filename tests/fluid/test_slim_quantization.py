"""`contrib.slim.quantization`: training with rounded numbers, freezing, weights of 8 bits; numbers are those of Paddle 1.8.5."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.errors import AssertedError, UnsupportedOperatorError, UsageError
from fluidtool.fluid import core
from fluidtool.fluid.contrib.slim.quantization import (
    AddQuantDequantPass,
    ConvertToInt8Pass,
    OutScaleForInferencePass,
    OutScaleForTrainingPass,
    QuantizationFreezePass,
    QuantizationTransformPass,
    TransformForMobilePass,
)
from fluidtool.fluid.ir_graph import IrGraph

CPU = fluid.CPUPlace()


def network(is_test: bool) -> tuple[fluid.Program, fluid.Program, Any, Any]:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image, label = fluid.data("img", [None, 1, 12, 12]), fluid.data("label", [None, 1], "int64")
        c = fluid.layers.conv2d(image, 4, 3, act="relu", param_attr="cw", bias_attr="cb")
        c = fluid.layers.pool2d(c, 2, "max", 2)
        names = {"moving_mean_name": "bm", "moving_variance_name": "bv"}
        c = fluid.layers.batch_norm(c, is_test=is_test, param_attr="bs", bias_attr="bb", **names)
        d = fluid.layers.conv2d(c, 4, 1, param_attr="dw", bias_attr=False)
        c = fluid.layers.elementwise_add(c, d, act="relu")
        with fluid.name_scope("skip_quant"):
            e = fluid.layers.conv2d(c, 4, 1, param_attr="ew", bias_attr=False)
        p = fluid.layers.fc(e, 10, act="softmax", param_attr="fw", bias_attr="fb")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(p, label))
        if not is_test:
            fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return main, startup, loss, p


@dataclass
class Job:
    """A network with drawn values, quantized, and its runs."""

    training: IrGraph
    test: IrGraph
    prediction: Any
    train: Callable[[], float]
    predict: Callable[[IrGraph], Any]

    def types(self, graph: IrGraph) -> list[str]:
        return [op.type for op in graph.to_program().global_block().ops]


def job(activation: str = "abs_max", weight: str = "abs_max", **options: Any) -> Job:
    main, startup, loss, _ = network(False)
    test, _, _, prediction = network(True)
    executor, scope = fluid.Executor(CPU), fluid.global_scope()
    executor.run(startup)
    rng = np.random.RandomState(3)
    for parameter in sorted(main.global_block().all_parameters(), key=lambda each: each.name):
        drawn = rng.uniform(-0.4, 0.4, parameter.shape) + (parameter.name in ("bs", "bv"))
        scope.find_var(parameter.name).get_tensor().set(drawn.astype("float32"), CPU)
    graphs = [IrGraph(core.Graph(main.desc), False), IrGraph(core.Graph(test.clone(for_test=True).desc), True)]
    for graph in graphs:
        settings: dict[str, Any] = {
            "activation_quantize_type": activation,
            "weight_quantize_type": weight,
            "window_size": 20,
        }
        QuantizationTransformPass(scope, CPU, **settings, **options).apply(graph)
        AddQuantDequantPass(scope, CPU).apply(graph)
    OutScaleForTrainingPass(scope, CPU).apply(graphs[0])
    compiled = fluid.CompiledProgram(graphs[0].graph).with_data_parallel(loss_name=loss.name, places=[CPU])
    feed: dict[str, Any] = {}

    def train() -> float:
        feed["img"] = rng.uniform(-1, 1, (8, 1, 12, 12)).astype("float32")
        feed["label"] = rng.randint(0, 10, (8, 1)).astype("int64")
        return float(executor.run(compiled, feed=feed, fetch_list=[loss.name])[0])

    def predict(graph: IrGraph) -> Any:
        return executor.run(graph.to_program(), feed=feed, fetch_list=[prediction.name])[0]

    return Job(graphs[0], graphs[1], prediction, train, predict)


@pytest.fixture(autouse=True)
def scope() -> Any:
    with fluid.scope_guard(fluid.Scope()):
        yield fluid.global_scope()


OF_185 = {  # losses of six steps, the first prediction of the test program, the four first output scales by operator
    ("moving_average_abs_max", "channel_wise_abs_max"): (
        [2.4092059, 2.4000025, 2.7085066, 2.7286749, 2.4055107, 2.3641763],
        [0.1339367, 0.1407164, 0.07720088, 0.08126908],
        [2.84206, 1.351577, 1.377278, 1.959385],
    ),
    ("range_abs_max", "abs_max"): (
        [2.4156051, 2.3718224, 2.7243483, 2.7342901, 2.4197903, 2.3779421],
        [0.1292099, 0.139611, 0.07517028, 0.08234901],
        [2.887499, 1.377828, 1.44075, 1.975971],
    ),
    ("abs_max", "abs_max"): (
        [2.4156051, 2.3752835, 2.7164776, 2.738378, 2.425693, 2.3802412],
        [0.1297872, 0.1409584, 0.07654892, 0.08260848],
        [2.853492, 1.378639, 1.439508, 1.955724],
    ),
}


@pytest.mark.parametrize("types", OF_185, ids=" ".join)
def test_training_freezing_and_predicting_as_185(types: tuple[str, str], scope: Any) -> None:
    losses, prediction, scales = OF_185[types]
    quantized = job(*types)
    np.testing.assert_allclose([quantized.train() for _ in losses], losses, rtol=2e-6)
    np.testing.assert_allclose(quantized.predict(quantized.test)[0][:4], prediction, rtol=2e-6)

    OutScaleForInferencePass(scope).apply(quantized.test)
    ops = [op for op in quantized.test.all_op_nodes() if op.op().has_attr("out_threshold")]
    found = sorted((op.name(), op.op().attr("out_threshold")) for op in ops)
    np.testing.assert_allclose([scale for _, scale in found[:4]], scales, rtol=2e-6)

    QuantizationFreezePass(scope, CPU, weight_quantize_type=types[1]).apply(quantized.test)
    np.testing.assert_allclose(quantized.predict(quantized.test)[0][:4], prediction, rtol=2e-6)


def test_which_operators_are_quantized() -> None:
    quantized = job()
    kinds = {
        op.input("Filter" if op.name() == "conv2d" else "Y")[0]: op.op().has_attr("quantization_type")
        for op in quantized.training.all_op_nodes()
        if op.name() in ("conv2d", "mul")
    }
    assert kinds == {
        "cw.quantized.dequantized": True,
        "dw.quantized.dequantized": True,
        "ew": False,  # its name scope is skipped
        "fw.quantized.dequantized": True,
    }


def test_gradients_read_what_the_forward_operators_read() -> None:
    [gradient] = [op for op in job().training.all_op_nodes() if op.name() == "mul_grad"]
    assert gradient.input("Y") == ["fw.quantized.dequantized"]


def test_operators_without_weights_are_rounded_by_a_pass_of_their_own() -> None:
    rounded = [op.input("X")[0] for op in job().training.all_op_nodes() if "quantize_dequantize_moving" in op.name()]
    assert sorted(rounded) == [
        "batch_norm_0.tmp_2",
        "conv2d_0.tmp_2",
        "conv2d_1.tmp_0",
    ]  # of elementwise_add and pool2d


def test_the_order_of_operators_keeps_what_is_overwritten_until_it_is_read() -> None:
    types = job().types(job("moving_average_abs_max").training)
    assert types.index("fake_quantize_abs_max") < types.index("momentum")
    assert types.index("conv2d_grad") < types.index("momentum")


def test_weights_become_integers_of_8_bits(scope: Any, tmp_path: Path) -> None:
    quantized = job()
    quantized.train()
    QuantizationFreezePass(scope, CPU).apply(quantized.test)
    before = quantized.predict(quantized.test)
    ConvertToInt8Pass(scope, CPU).apply(quantized.test)
    integers = np.array(scope.find_var("fw.int8").get_tensor())
    assert (integers.dtype, np.abs(integers).max()) == (np.int8, 127)
    np.testing.assert_array_equal(np.array(scope.find_var("fw").get_tensor()), integers)

    program = quantized.test.to_program()
    executor = fluid.Executor(CPU)
    target = program.global_block().var(quantized.prediction.name)
    fluid.io.save_inference_model(str(tmp_path / "m"), ["img"], [target], executor, program)
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert {"cw.int8", "dw.int8", "fw.int8", "ew"} < names and not names & {"cw", "dw", "fw"}
    assert before.shape == (8, 10)


def test_frozen_programs_dequantize_what_operators_compute(scope: Any) -> None:
    quantized = job()
    QuantizationFreezePass(scope, CPU).apply(quantized.test)
    [dequantizer] = [
        op
        for op in quantized.test.all_op_nodes()
        if op.name() == "fake_dequantize_max_abs" and op.input("X") == ["fc_0.tmp_0"]
    ]
    assert (dequantizer.input("Scale"), dequantizer.output("Out")) == (
        ["conv2d_2.tmp_0.scale"],
        ["fc_0.tmp_0.dequantized"],
    )
    [add] = [op for op in quantized.test.all_op_nodes() if op.name() == "elementwise_add" and op.input("Y") == ["fb"]]
    assert add.input("X") == ["fc_0.tmp_0.dequantized"]


def test_operators_have_other_names_on_phones(scope: Any) -> None:
    quantized = job()
    TransformForMobilePass().apply(QuantizationFreezePass(scope, CPU).apply(quantized.test))
    types = quantized.types(quantized.test)
    assert {"quantize", "dequantize"} < set(types) and not {"fake_quantize_abs_max", "fake_dequantize_max_abs"} & set(
        types
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"activation_quantize_type": "channel_wise_abs_max"},
            AssertedError,
            "does not support 'channel_wise_abs_max'",
        ),
        ({"activation_quantize_type": "none"}, UsageError, "Unknown activation_quantize_type: 'none'"),
        ({"weight_quantize_type": "none"}, UsageError, "Unknown weight_quantize_type: 'none'"),
        ({"quantizable_op_type": ["relu"]}, AssertedError, "relu is not supported for quantization"),
        ({"weight_quantize_func": abs}, UnsupportedOperatorError, "functions that quantize or preprocess"),
    ],
)
def test_what_the_transform_pass_refuses(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        QuantizationTransformPass(fluid.Scope(), CPU, **options)


def test_passes_take_graphs_and_say_what_the_scope_lacks(scope: Any) -> None:
    with pytest.raises(AssertedError, match="instance of IrGraph, found Program"):
        QuantizationTransformPass(scope, CPU).apply(fluid.Program())  # type: ignore[arg-type]
    with pytest.raises(AssertedError, match="The scope cannot be set None"):
        QuantizationFreezePass(None, CPU)
    with pytest.raises(AssertedError, match="The place cannot be set None"):
        ConvertToInt8Pass(scope, None)
    quantized = job()
    with fluid.scope_guard(fluid.Scope()), pytest.raises(AssertedError, match="the scope has no variable"):
        QuantizationFreezePass(fluid.global_scope(), CPU).apply(quantized.test)
