"""Updates by optimizers: each a rule on the elements of states; what has the same rule is one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.engines.cuda.training.building import Rows, RowUpdate, Rule, StepBuilder, Update, imports_step
from fluidtool.runtime.engines.cuda.training.forward import check_rows, literal, whole_gradient
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Value

Attrs = Mapping[str, Any]


def _update(
    b: StepBuilder, op: Operator, slots: Mapping[str, tuple[str, str]], numbers: Mapping[str, str], text: str
) -> None:
    """An update. slots: input and output of each state, by letter; numbers: the slots of single numbers, by name.

    Of rows, where they are the gradient: rows with no gradient would stay as they are, or do so by the operator's meaning.
    """
    need(not any(op.inputs.get(slot) for slot in LATER) and not _of_paddle_2(op), "an optimizer of Paddle 2")
    rows = rows_of(b, op)
    grad = None if rows is not None and BY_ROWS[op.type](op) else _gradient(b, op, rows)
    states = [b.state(op, *pair) for pair in slots.values()]
    rule = Rule(tuple(slots), tuple(numbers), text)
    given = tuple(b.number(op, slot) for slot in numbers.values())
    if grad is None:
        assert rows is not None
        need(len({each.shape for each in states}) == 1, "states of different shapes")
        check_rows(rows, states[0].shape)
        b.row_updates.append(RowUpdate(rule, tuple(states), rows, given))
        return
    need(all(each.shape == grad.shape for each in states), "states of another shape than the gradient")
    b.updates.append(Update(rule, tuple(states), grad, given))


BY_ROWS: dict[str, Callable[[Operator], bool]] = {
    "sgd": lambda op: True,
    "adagrad": lambda op: True,
    "adam": lambda op: bool(op.has_attr("lazy_mode") and op.attr("lazy_mode")),
    "ftrl": lambda op: True,
    "momentum": lambda op: False,
    "rmsprop": lambda op: False,
    "lamb": lambda op: False,
}
"""Updates that take a gradient of rows, and whether they leave all other rows as they are."""


def rows_of(b: StepBuilder, op: Operator) -> Rows | None:
    """The rows that are the gradient of an update; None if it is a whole one."""
    found = b.rows.get(op.inputs["Grad"][0])
    need(found is None or op.type in BY_ROWS, "rows as a gradient")
    return found


def _gradient(b: StepBuilder, op: Operator, rows: Rows | None) -> Value:
    return b.get(op, "Grad") if rows is None else whole_gradient(b, rows, b.get(op, "Param").shape)


LATER = ("MasterParam", "SkipUpdate", "Beta1Tensor", "Beta2Tensor", "EpsilonTensor")
LATER_ATTRS = ("multi_precision", "use_global_beta_pow", "regularization_method", "rescale_grad")


def _of_paddle_2(op: Operator) -> bool:
    return any(op.has_attr(name) for name in LATER_ATTRS)


@imports_step("sgd")
def _sgd(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    _update(b, op, {"p": ("Param", "ParamOut")}, {"lr": "LearningRate"}, "p = p - lr * g;")


@imports_step("momentum")
def _momentum(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    mu = literal(attrs["mu"])
    step = f"(g + {mu} * v)" if attrs.get("use_nesterov") else "v"
    slots = {"p": ("Param", "ParamOut"), "v": ("Velocity", "VelocityOut")}
    _update(b, op, slots, {"lr": "LearningRate"}, f"v = {mu} * v + g; p = p - lr * {step};")


@imports_step("adam")
def _adam(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    one, two, epsilon = (literal(attrs[name]) for name in ("beta1", "beta2", "epsilon"))
    rest_one, rest_two = literal(1 - attrs["beta1"]), literal(1 - attrs["beta2"])
    slots = {
        "p": ("Param", "ParamOut"), "m": ("Moment1", "Moment1Out"), "v": ("Moment2", "Moment2Out"),
    }  # fmt: skip
    first, second = "b1", "b2"
    if rows_of(b, op) is not None:  # Paddle 1.8.5 moves the powers on before it uses them
        first, second = f"(b1 * {one})", f"(b2 * {two})"
    text = (
        f"m = {one} * m + {rest_one} * g; v = {two} * v + {rest_two} * g * g; "
        f"p = p - lr * (sqrtf(1.0f - {second}) / (1.0f - {first})) * (m / (sqrtf(v) + {epsilon}));"
    )
    _update(b, op, slots, {"lr": "LearningRate", "b1": "Beta1Pow", "b2": "Beta2Pow"}, text)
    powers = [b.state(op, f"Beta{n}Pow", f"Beta{n}PowOut") for n in (1, 2)]
    b.updates += [
        Update(Rule(("p",), (), f"p = p * {factor};"), (power,), None)
        for power, factor in zip(powers, (one, two), strict=True)
    ]


@imports_step("adamax")
def _adamax(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    one, two, epsilon = (literal(attrs[name]) for name in ("beta1", "beta2", "epsilon"))
    slots = {"p": ("Param", "ParamOut"), "m": ("Moment", "MomentOut"), "n": ("InfNorm", "InfNormOut")}
    text = (
        f"m = {one} * m + {literal(1 - attrs['beta1'])} * g; n = ft_larger(fabsf(g), {two} * n + {epsilon}); "
        "p = p - lr / (1.0f - b1) * (m / n);"
    )
    _update(b, op, slots, {"lr": "LearningRate", "b1": "Beta1Pow"}, text)


@imports_step("adagrad")
def _adagrad(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    slots = {"p": ("Param", "ParamOut"), "m": ("Moment", "MomentOut")}
    text = f"m = m + g * g; p = p - lr * g / (sqrtf(m) + {literal(attrs['epsilon'])});"
    _update(b, op, slots, {"lr": "LearningRate"}, text)


@imports_step("decayed_adagrad")
def _decayed_adagrad(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    decay, rest = literal(attrs["decay"]), literal(1 - attrs["decay"])
    slots = {"p": ("Param", "ParamOut"), "m": ("Moment", "MomentOut")}
    text = f"m = {decay} * m + {rest} * g * g; p = p - lr * g / (sqrtf(m) + {literal(attrs['epsilon'])});"
    _update(b, op, slots, {"lr": "LearningRate"}, text)


@imports_step("adadelta")
def _adadelta(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    need(not b.has(op, "LearningRate"), "an optimizer of Paddle 2")
    rho, rest, epsilon = (literal(each) for each in (attrs["rho"], 1 - attrs["rho"], attrs["epsilon"]))
    slots = {
        "p": ("Param", "ParamOut"), "s": ("AvgSquaredGrad", "AvgSquaredGradOut"),
        "u": ("AvgSquaredUpdate", "AvgSquaredUpdateOut"),
    }  # fmt: skip
    step = f"-sqrtf((u + {epsilon}) / (s + {epsilon})) * g"
    text = (
        f"s = {rho} * s + {rest} * g * g; const float d = {step}; u = {rho} * u + {rest} * d * d; "
        f"p = p + {step};"  # with the new u, as Paddle 1.8.5 does in place
    )
    _update(b, op, slots, {}, text)


@imports_step("rmsprop")
def _rmsprop(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    decay, rest, epsilon, momentum = (
        literal(each) for each in (attrs["decay"], 1 - attrs["decay"], attrs["epsilon"], attrs["momentum"])
    )
    slots = {
        "p": ("Param", "ParamOut"), "m": ("Moment", "MomentOut"), "s": ("MeanSquare", "MeanSquareOut"),
    }  # fmt: skip
    text, spread = f"s = {decay} * s + {rest} * g * g; ", "s"
    if attrs.get("centered"):
        slots["a"] = ("MeanGrad", "MeanGradOut")
        text, spread = f"{text}a = {decay} * a + {rest} * g; ", "s - a * a"
    text += f"m = {momentum} * m + lr * g / sqrtf({spread} + {epsilon}); p = p - m;"
    _update(b, op, slots, {"lr": "LearningRate"}, text)


@imports_step("ftrl")
def _ftrl(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    one, two, power = literal(attrs["l1"]), literal(2 * attrs["l2"]), float(attrs["lr_power"])

    def raised(what: str) -> str:
        return f"sqrtf({what})" if power == -0.5 else f"powf({what}, {literal(-power)})"

    slots = {
        "p": ("Param", "ParamOut"), "s": ("SquaredAccumulator", "SquaredAccumOut"),
        "z": ("LinearAccumulator", "LinearAccumOut"),
    }  # fmt: skip
    text = (
        f"const float n = s + g * g; z = z + g - ({raised('n')} - {raised('s')}) / lr * p; s = n; "
        f"p = fabsf(z) > {one} ? ({one} * (float)((z > 0.0f) - (z < 0.0f)) - z) / ({raised('n')} / lr + {two}) : 0.0f;"
    )
    _update(b, op, slots, {"lr": "LearningRate"}, text)


# ---------------------------------------------------------------- by norms
@imports_step("lamb")
def _lamb(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    need(not b.wants(op, "Beta1PowOut") and (op.block.program.version or 0) < PADDLE_2, "an optimizer of Paddle 2")
    grad, rate = _gradient(b, op, rows_of(b, op)), b.number(op, "LearningRate")
    states = [b.state(op, slot, f"{slot}Out") for slot in ("Param", "Moment1", "Moment2")]
    _same_shapes(grad, *states)
    param, first, second = states
    one, two = attrs["beta1"], attrs["beta2"]
    first = b.formula(f"{literal(one)} * a + {literal(1 - one)} * b", first, grad)
    second = b.formula(f"{literal(two)} * a + {literal(1 - two)} * b * b", second, grad)
    text = f"a / (sqrtf(b) + {literal(attrs['epsilon'])}) + {literal(attrs['weight_decay'])} * c"
    direction = b.formula(text, first, second, param)
    text = "c * (a > 0.0f && b > 0.0f ? sqrtf(a) / sqrtf(b) : 1.0f) * d"
    step = b.formula(text, _square(b, param), _square(b, direction), rate, direction, shape=param.shape)
    b.updates += [Update(DESCEND, (param,), step), stored(states[1], first), stored(states[2], second)]


@imports_step("lars_momentum")
def _lars_momentum(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    later = not isinstance(attrs["lars_weight_decay"], float) or attrs.get("epsilon") or len(op.inputs["Param"]) != 1
    need(not later and not _of_paddle_2(op) and not op.inputs.get("MasterParam"), "an optimizer of Paddle 2")
    grad, rate = b.get(op, "Grad"), b.number(op, "LearningRate")
    param, velocity = b.state(op, "Param", "ParamOut"), b.state(op, "Velocity", "VelocityOut")
    _same_shapes(grad, param, velocity)
    decay = literal(attrs["lars_weight_decay"])
    text = (
        f"(a > 0.0f && b > 0.0f ? c * {literal(attrs['lars_coeff'])} * sqrtf(a) / (sqrtf(b) + {decay} * sqrtf(a)) : c) * "
        f"(d + {decay} * e)"
    )
    step = b.formula(text, _square(b, param), _square(b, grad), rate, grad, param, shape=param.shape)
    rule = Rule(("p", "v"), (), f"v = v * {literal(attrs['mu'])} + g; p = p - v;")
    b.updates.append(Update(rule, (param, velocity), step))


PADDLE_2 = 2_000_000  # the version that its programs carry
DESCEND = Rule(("p",), (), "p = p - g;")


def _square(b: StepBuilder, value: Value) -> Value:
    """The sum of squares, as a single number."""
    return b.view(b.sums(b.formula("a * a", value), ()), (1,))


def _same_shapes(*values: Value) -> None:
    need(len({each.shape for each in values}) == 1, "states of another shape than the gradient")


# ---------------------------------------------------------------- with a pull to zero
def _pulled(attrs: Attrs) -> str:
    """The statement that pulls a parameter after its step."""
    one, two = literal(attrs["l1"]), literal(attrs["l2"])
    if attrs["l1"] <= 0:
        return f"p = p / (1.0f + lr * {two});"
    pull = f"ft_larger(fabsf(p) - lr * {one}, 0.0f)"
    return f"p = (float)((p > 0.0f) - (p < 0.0f)) * {pull} / (1.0f + lr * {two});"


@imports_step("proximal_gd")
def _proximal_gd(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    _update(b, op, {"p": ("Param", "ParamOut")}, {"lr": "LearningRate"}, f"p = p - lr * g; {_pulled(attrs)}")


@imports_step("proximal_adagrad")
def _proximal_adagrad(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    slots = {"p": ("Param", "ParamOut"), "m": ("Moment", "MomentOut")}
    text = f"m = m + g * g; p = p - lr * g / sqrtf(m); {_pulled(attrs)}"
    _update(b, op, slots, {"lr": "LearningRate"}, text)


def stored(state: Value, value: Value) -> Update:
    """The update that replaces a state by a value."""
    return Update(Rule(("p",), (), "p = g;"), (state,), value)
