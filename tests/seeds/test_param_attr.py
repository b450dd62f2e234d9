"""`fluid.ParamAttr` and `fluid.WeightNormParamAttr` as documented."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import ParamAttr, WeightNormParamAttr, initializer, regularizer


def test_the_example() -> None:
    x = fluid.layers.data("x", [3])
    w_param_attrs = fluid.ParamAttr(
        name="fc_weight", learning_rate=0.5, regularizer=fluid.regularizer.L2Decay(1.0), trainable=True
    )
    y_predict = fluid.layers.fc(input=x, size=10, param_attr=w_param_attrs)
    weight: Any = fluid.get_var("fc_weight")
    assert y_predict.shape == (-1, 10) and weight.optimize_attr == {"learning_rate": 0.5}
    assert isinstance(weight.regularizer, regularizer.L2DecayRegularizer) and weight.trainable is True


def test_the_name_of_the_example_that_no_version_had_is_named() -> None:
    """`L2Decay` lives in `fluid.regularizer`."""
    with pytest.raises(AttributeError, match="L2Decay"):
        fluid.L2Decay(1.0)  # type: ignore[attr-defined]


def test_the_defaults() -> None:
    attr = ParamAttr()
    assert (attr.name, attr.initializer, attr.learning_rate, attr.regularizer) == (None, None, 1.0, None)
    assert (attr.trainable, attr.gradient_clip) == (True, None)


def test_the_arguments_by_position() -> None:
    constant, decay, clip = initializer.Constant(2.0), regularizer.L1Decay(0.1), fluid.clip.GradientClipByValue(1.0)
    attr = ParamAttr("w", constant, 0.5, decay, False, clip, True)  # the documented order
    assert (attr.name, attr.initializer, attr.learning_rate, attr.regularizer) == ("w", constant, 0.5, decay)
    assert (attr.trainable, attr.gradient_clip, attr.do_model_average) == (False, clip, True)
    assert ParamAttr("w", None, 1.0, None, True, False).do_model_average is False  # the order of 1.8


def weight(attr: Any) -> Any:
    fluid.layers.fc(fluid.layers.data("x", [3]), 2, param_attr=attr, bias_attr=False)
    (param,) = fluid.default_main_program().all_parameters()
    return param


def test_the_initializer_is_used() -> None:
    weight(ParamAttr(initializer=initializer.Constant(2.0)))
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    assert (fluid.fetch_var("fc_0.w_0") == 2.0).all()


@pytest.mark.parametrize(
    ("argument", "value", "field"),
    [("trainable", False, "trainable"), ("do_model_average", True, "do_model_average")],
)
def test_an_argument_reaches_the_parameter(argument: str, value: Any, field: str) -> None:
    assert getattr(weight(ParamAttr(**{argument: value})), field) == value


def trained(attr: ParamAttr, rate: float = 1.0) -> float:
    """A weight of 4 after a step against a gradient of 10."""
    attr.initializer = initializer.Constant(4.0)
    x = fluid.layers.data("x", [1])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1, param_attr=attr, bias_attr=False))
    fluid.optimizer.SGD(rate).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    exe.run(feed={"x": np.full((1, 1), 10, "float32")})
    return float(fluid.fetch_var("fc_0.w_0")[0, 0])


def test_the_learning_rate_is_a_factor_of_the_optimizers() -> None:
    assert trained(ParamAttr(learning_rate=0.5), rate=0.1) == pytest.approx(4 - 10 * 0.1 * 0.5)


def test_the_regularizer_adds_to_the_gradient() -> None:
    assert trained(ParamAttr(regularizer=regularizer.L2Decay(0.5))) == pytest.approx(4 - 10 - 0.5 * 4)


def test_the_gradient_clip_bounds_the_gradient() -> None:
    assert trained(ParamAttr(gradient_clip=fluid.clip.GradientClipByValue(1.5))) == pytest.approx(4 - 1.5)


def test_a_parameter_that_is_not_trainable_stays() -> None:
    x = fluid.layers.data("x", [1])
    hidden = fluid.layers.fc(x, 1, param_attr=ParamAttr("fixed", trainable=False), bias_attr=False)
    loss = fluid.layers.mean(fluid.layers.fc(hidden, 1, bias_attr=False))
    _, pairs = fluid.optimizer.SGD(1.0).minimize(loss)
    assert [param.name for param, _ in pairs] == ["fc_1.w_0"]


# ---------------------------------------------------------------- methods
def test_set_default_initializer_sets_what_is_missing() -> None:
    attr, constant = ParamAttr(), initializer.Constant(1.0)
    assert attr.set_default_initializer(constant) is None  # type: ignore[func-returns-value]
    assert attr.initializer is constant
    attr.set_default_initializer(initializer=initializer.Uniform())
    assert attr.initializer is constant


def test_there_must_be_an_initializer() -> None:
    with pytest.raises(ValueError, match=r"ParamAttr.initializer is not set"):
        ParamAttr().set_default_initializer(None)


def test_the_defaults_of_weights_and_biases() -> None:
    weights, bias = ParamAttr(), ParamAttr()
    weights.set_default_param_initializer()
    bias.set_default_bias_initializer()
    assert isinstance(weights.initializer, initializer.XavierInitializer)
    assert isinstance(bias.initializer, initializer.ConstantInitializer)


def test_to_attr_of_everything_that_layers_take() -> None:
    constant, decay, attr = initializer.Constant(), regularizer.L2Decay(), ParamAttr("mine")
    clip = fluid.clip.GradientClipByNorm(1.0)
    assert ParamAttr.to_attr(None) == ParamAttr() == ParamAttr.to_attr(True)
    assert ParamAttr.to_attr(False) is False
    assert ParamAttr.to_attr(attr) is attr
    assert ParamAttr.to_attr("w").name == "w"
    assert ParamAttr.to_attr(constant).initializer is constant
    assert ParamAttr.to_attr(decay).regularizer is decay
    assert ParamAttr.to_attr(0.5).learning_rate == 0.5
    assert ParamAttr.to_attr(clip).gradient_clip is clip
    assert [item.name for item in ParamAttr.to_attr(arg=["a", attr])] == ["a", "mine"]


def test_to_attr_of_anything_else_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="cast to ParamAttr"):
        ParamAttr.to_attr({"name": "w"})


@pytest.mark.parametrize("with_initializer", [False, True])
def test_to_kwargs(with_initializer: bool) -> None:
    constant = initializer.Constant()
    kwargs = ParamAttr("w", constant, 0.5).to_kwargs(with_initializer=with_initializer)
    fields = {"name": "w", "optimize_attr": {"learning_rate": 0.5}, "regularizer": None, "trainable": True}
    assert kwargs.items() >= fields.items()
    assert {"gradient_clip_attr", "do_model_average"} <= set(kwargs)
    assert kwargs.get("initializer") is (constant if with_initializer else None)
    param = fluid.Program().global_block().create_parameter(shape=[1], dtype="float32", **kwargs)
    assert param.name == "w"


# ---------------------------------------------------------------- WeightNormParamAttr
def test_the_example_of_weight_norm() -> None:
    data = fluid.layers.data(name="data", shape=[3, 32, 32], dtype="float32")
    fc = fluid.layers.fc(input=data, size=1000, param_attr=WeightNormParamAttr(dim=None, name="weight_norm_param"))
    names = [param.name for param in fluid.default_main_program().all_parameters()]
    assert fc.shape == (-1, 1000)
    assert sorted(names) == ["fc_0.b_0", "weight_norm_param_g", "weight_norm_param_v"]
    assert fluid.get_var("weight_norm_param_g").shape == (1, 1)


@pytest.mark.parametrize(("dim", "axes"), [(None, None), (0, (1,)), (1, (0,))])
def test_the_weight_is_g_times_v_over_its_norm(dim: int | None, axes: Any) -> None:
    x = fluid.layers.data("x", [3])
    y = fluid.layers.fc(x, 2, param_attr=WeightNormParamAttr(dim, name="w"), bias_attr=False)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    g, v = (fluid.fetch_var(f"w_{letter}") for letter in "gv")
    norm = np.sqrt((v**2).sum(axis=axes, keepdims=axes is not None))
    np.testing.assert_allclose(g.ravel(), np.ravel(norm), rtol=1e-6)
    scope: Any = fluid.global_scope()
    scope.find_var("w_g").get_tensor().set((g * 3).astype("float32"), fluid.CPUPlace())
    (out,) = exe.run(feed={"x": np.eye(3, dtype="float32")}, fetch_list=[y])
    np.testing.assert_allclose(out, 3 * v, rtol=1e-5)


@pytest.mark.parametrize(
    ("argument", "value", "field", "expected"),
    [
        ("learning_rate", 0.5, "optimize_attr", {"learning_rate": 0.5}),
        ("trainable", False, "trainable", False),
        ("do_model_average", True, "do_model_average", True),
    ],
)
def test_a_field_of_param_attr_reaches_both_parameters(argument: str, value: Any, field: str, expected: Any) -> None:
    fluid.layers.fc(fluid.layers.data("x", [3]), 2, param_attr=WeightNormParamAttr(None, name="w", **{argument: value}))
    assert [getattr(fluid.get_var(f"w_{letter}"), field) for letter in "gv"] == [expected] * 2


def test_weight_norm_takes_the_other_fields_of_param_attr() -> None:
    constant, decay, clip = initializer.Constant(2.0), regularizer.L2Decay(), fluid.clip.GradientClipByValue(1.0)
    attr = WeightNormParamAttr(dim=0, initializer=constant, regularizer=decay, gradient_clip=clip)
    assert (attr.dim, attr.initializer, attr.regularizer, attr.gradient_clip) == (0, constant, decay, clip)
    with pytest.raises(TypeError):
        WeightNormParamAttr(dim=0, nosuch=1)  # type: ignore[call-arg]
