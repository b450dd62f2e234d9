"""`fluid.contrib.slim.Compressor` and its strategies, configured by YAML, on a small network of convolutions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.errors import AssertedError, ProgramError, UsageError
from fluidtool.fluid.contrib.slim import Compressor
from fluidtool.fluid.contrib.slim.core import ConfigFactory, Context, Strategy
from fluidtool.fluid.contrib.slim.graph import GraphWrapper, SlimGraphExecutor
from fluidtool.fluid.contrib.slim.nas import ControllerServer, SearchAgent, SearchSpace
from fluidtool.fluid.contrib.slim.prune import StructurePruner, UniformPruneStrategy
from fluidtool.fluid.contrib.slim.prune.prune_strategy import _curve, _ratios
from fluidtool.fluid.contrib.slim.searcher import SAController

pytest.importorskip("yaml")

PRUNER = """
pruners:
    pruner_1: {class: StructurePruner, pruning_axis: {'*': 0}, criterions: {'*': l1_norm}}
"""
FILTERS = "(conv1|conv2)_weights"


def network(prefix: str = "") -> dict[str, Any]:
    """Three convolutions, the second depthwise, batch_norm and fc, of images of 6 x 6."""
    image, label = fluid.data("image", [-1, 2, 6, 6], "float32"), fluid.data("label", [-1, 1], "int64")
    found: dict[str, Any] = {"image": image, "label": label}

    def conv(x: Any, filters: int, size: int, name: str, groups: int = 1) -> Any:
        weights = fluid.ParamAttr(name=f"{prefix}{name}_weights")
        out = fluid.layers.conv2d(
            x, filters, size, 1, size // 2, groups=groups, bias_attr=False, param_attr=weights, use_cudnn=False
        )
        names = {f"moving_{each}_name": f"{prefix}{name}_{each}" for each in ("mean", "variance")}
        attrs = [fluid.ParamAttr(name=f"{prefix}{name}_{each}") for each in ("scale", "offset")]
        return fluid.layers.batch_norm(out, act="relu", param_attr=attrs[0], bias_attr=attrs[1], **names)

    one = conv(image, 8, 3, "conv1")
    two = found["first"] = conv(conv(one, 8, 3, "dw", groups=8), 8, 1, "conv2")
    pooled = fluid.layers.pool2d(two, 2, "avg", 2)
    attrs = [fluid.ParamAttr(name=f"{prefix}fc_{each}") for each in "wb"]
    found["scores"] = fluid.layers.fc(pooled, 3, param_attr=attrs[0], bias_attr=attrs[1])
    found["image_values"] = one
    found["loss"] = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(found["scores"], label))
    found["acc"] = fluid.layers.accuracy(fluid.layers.softmax(found["scores"]), label)
    return found


@dataclass
class Case:
    """Programs, their variables by name, a scope with initial values."""

    main: fluid.Program
    val: fluid.Program
    vars: dict[str, Any]
    scope: fluid.Scope

    def value(self, name: str) -> Any:
        return np.array(self.scope.find_var(name).get_tensor())

    def compressor(self, config: str, **more: Any) -> Compressor:
        Path("config.yaml").write_text(config)
        feeds = [("image", "image"), ("label", "label")]
        loss, acc = self.vars["loss"].name, self.vars["acc"].name
        made = Compressor(
            fluid.CPUPlace(),
            self.scope,
            self.main,
            train_reader=batches,
            train_feed_list=feeds,
            train_fetch_list=[("loss", loss)],
            eval_program=self.val,
            eval_reader=batches,
            eval_feed_list=feeds,
            eval_fetch_list=[("acc", acc), ("loss", loss)],
            train_optimizer=fluid.optimizer.Momentum(0.01, 0.9),
            **more,
        )
        made.config("config.yaml")
        return made


def batches() -> Iterator[list[tuple[Any, Any]]]:
    rng = np.random.RandomState(5)
    for _ in range(3):
        yield [(rng.randn(2, 6, 6).astype(np.float32), np.array([i % 3])) for i in range(6)]


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPU_NUM", "1")
    main, val, startup, scope = fluid.Program(), fluid.Program(), fluid.Program(), fluid.Scope()
    startup.random_seed = 3
    with fluid.program_guard(val, fluid.Program()), fluid.unique_name.guard():
        network()
    with fluid.scope_guard(scope), fluid.program_guard(main, startup), fluid.unique_name.guard():
        found = network()
        fluid.Executor(fluid.CPUPlace()).run(startup)
        yield Case(main, val, found, scope)


def strategy(kind: str, more: str, epochs: int = 2) -> str:
    return (
        f"{PRUNER}\nstrategies:\n    s: {{class: {kind}, {more}}}\ncompressor: {{epoch: {epochs}, strategies: [s]}}\n"
    )


# ---------------------------------------------------------------- pruning
def test_pruning_takes_filters_and_all_that_belongs_to_them(case: Case) -> None:
    before = case.value("conv1_weights")
    case.compressor(
        strategy("UniformPruneStrategy", f"pruner: pruner_1, target_ratio: 0.62, pruned_params: '{FILTERS}'")
    ).run()
    shapes = {var.name: case.value(var.name).shape for var in case.main.all_parameters()}
    kept = shapes["conv1_weights"][0]
    assert kept < len(before)
    assert shapes["dw_weights"] == (kept, 1, 3, 3)
    assert shapes["conv2_weights"] == (kept, kept, 1, 1)
    assert shapes["conv1_scale"] == shapes["dw_offset"] == shapes["conv2_scale"] == (kept,)
    assert case.value("conv2_variance").shape == (kept,)
    assert shapes["fc_w"] == (kept * 9, 3)
    assert shapes["fc_b"] == (3,)


def test_accumulators_are_pruned_with_their_parameters_and_training_goes_on(case: Case) -> None:
    made = case.compressor(
        strategy("UniformPruneStrategy", f"pruner: pruner_1, target_ratio: 0.62, pruned_params: '{FILTERS}'")
    )
    graph = made.run()
    assert made.context is not None
    assert len(made.context.eval_results["loss"]) == 2
    assert made.context.eval_results["loss"][1] < made.context.eval_results["loss"][0]
    names = [name for name in made.context.optimize_graph.persistables if "velocity" in name]
    names = names or [var.name() for var in made.context.optimize_graph.vars() if "velocity" in var.name()]
    velocity = next(name for name in names if name.startswith("conv1_weights"))
    assert case.value(velocity).shape == case.value("conv1_weights").shape
    assert graph.numel_params() == sum(case.value(v.name()).size for v in graph.all_parameters())


def test_the_smallest_filters_go() -> None:
    pruner = StructurePruner({"*": 0, "w": 1}, {"*": "l1_norm"})
    values = np.array([[3.0, -1.0, 2.0], [3.0, 1.0, -2.0]])
    assert list(pruner.cal_pruned_idx("w", values, 0.67)) == [1, 2]
    assert list(pruner.cal_pruned_idx("v", values, 0.5, axis=1)) == [1, 2]
    np.testing.assert_array_equal(pruner.prune_tensor(values, [1], 1), values[:, [0, 2]])
    np.testing.assert_array_equal(pruner.prune_tensor(values, [1], 1, lazy=True)[:, 1], [0, 0])
    assert values[0, 1] == -1
    with pytest.raises(UsageError, match="must be 'l1_norm', found 'l2'"):
        StructurePruner({"*": 0}, {"*": "l2"}).cal_pruned_idx("w", values, 0.5)
    with pytest.raises(AssertedError, match="pruning_axis should set"):
        StructurePruner(None, {"*": "l1_norm"}).cal_pruned_idx("w", values, 0.5)


def test_sensitivities_are_measured_kept_and_leave_parameters_as_they_were(case: Case) -> None:
    before = case.value("conv1_weights")
    more = f"pruner: pruner_1, delta_rate: 0.3, target_ratio: 0.3, pruned_params: '{FILTERS}', metric_name: acc"
    made = case.compressor(strategy("SensitivePruneStrategy", more, epochs=0))
    context = Context(fluid.CPUPlace(), case.scope, eval_graph=made.eval_graph, eval_reader=batches)
    (sensitive,) = made.strategies
    found = sensitive._compute_sensitivities(context)
    np.testing.assert_array_equal(case.value("conv1_weights"), before)
    assert found["conv1_weights"]["pruned_percent"] == [0.3, 0.6, 0.9]
    assert found["conv1_weights"]["size"] == 8
    assert sensitive._load_sensitivities("./sensitivities.data") == found


def test_parameters_that_lose_least_are_pruned_most() -> None:
    percents = [0.2, 0.4, 0.6, 0.8]
    curves = {"strong": _curve(percents, [0.4, 0.8, 1.2, 1.6]), "weak": _curve(percents, [0.1, 0.2, 0.3, 0.4])}
    np.testing.assert_allclose(_ratios(curves, 0.2), [0.1, 0.4], atol=1e-6)
    with pytest.raises(ProgramError, match="does not fall by 5"):
        _ratios(curves, 5.0)


def test_a_search_tells_its_controller_and_ends_with_the_best(case: Case) -> None:
    np.random.seed(0)
    config = strategy(
        "AutoPruneStrategy",
        f"pruner: pruner_1, controller: c, end_epoch: 2, retrain_epoch: 1, min_ratio: 0.3, max_ratio: 0.8, uniform_range: 0.8, "
        f"metric_name: acc, pruned_params: '{FILTERS}'",
        3,
    ).replace("strategies:\n    s", "controllers:\n    c: {class: SAController}\nstrategies:\n    s", 1)
    made = case.compressor(config)
    made.run()
    controller = made.strategies[0]._controller
    assert made.context is not None
    assert controller._iter == 2
    assert controller._max_reward == max(made.context.eval_results["acc"][:2])
    taken = 8 - len(case.value("conv1_weights"))
    assert taken == round(8 * 0.01 * controller._best_tokens[0])


# ---------------------------------------------------------------- distillation, quantization
def test_a_student_learns_with_the_teacher_s_losses(case: Case) -> None:
    teacher = fluid.Program()
    with fluid.program_guard(teacher, fluid.Program()), fluid.unique_name.guard("teacher_"):
        taught = network("teacher_")
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard("teacher_"):
        network("teacher_")
        fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program(), scope=case.scope)
    names = {"t": taught["scores"].name, "s": case.vars["scores"].name}
    names |= {"t1": taught["image_values"].name, "t2": taught["first"].name}
    names |= {"s1": case.vars["image_values"].name, "s2": case.vars["first"].name}
    config = """
distillers:
    l2: {{class: L2Distiller, student_feature_map: {s}, teacher_feature_map: {t}, distillation_loss_weight: 2}}
    fsp: {{class: FSPDistiller, student_pairs: [[{s1}, {s2}]], teacher_pairs: [[{t1}, {t2}]]}}
    soft: {{class: SoftLabelDistiller, student_feature_map: {s}, teacher_feature_map: {t}, teacher_temperature: 2.0}}
strategies:
    d: {{class: DistillationStrategy, distillers: [l2, fsp, soft], start_epoch: 0, end_epoch: 1}}
compressor: {{epoch: 2, strategies: [d], checkpoint_path: checkpoints}}
""".format(**names)
    optimizer = fluid.optimizer.SGD(0.01)
    made = case.compressor(config, teacher_programs=[teacher], distiller_optimizer=optimizer)
    weights = case.value("teacher_conv1_weights")
    seen: list[list[str]] = []

    class Watching(Strategy):
        def on_batch_end(self, context: Any) -> None:
            seen.append(sorted(context.optimize_graph.out_nodes))

    made._add_strategy(Watching())
    made.run()
    np.testing.assert_array_equal(case.value("teacher_conv1_weights"), weights)
    results = {"loss", "student_loss", "fsp_distillation_loss", f"l2loss_{names['s']}_{names['t']}"}
    assert results < set(seen[0])
    assert seen[-1] == ["loss"]
    saved = os.listdir("checkpoints/0/model")
    assert "conv1_weights" in saved
    assert not any("teacher" in name for name in saved)


def test_rounding_trains_and_saves_models(case: Case) -> None:
    more = "end_epoch: 1, float_model_save_path: float, int8_model_save_path: int8, mobile_model_save_path: mobile"
    case.compressor(strategy("QuantizationStrategy", f"{more}, activation_quantize_type: moving_average_abs_max")).run()
    for folder in ("float", "int8", "mobile"):
        assert sorted(os.listdir(folder)) == ["model", "weights"]
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model("float", exe, "model", "weights")
        data = next(batches())
        feed = {"image": np.stack([row[0] for row in data]), "label": np.stack([row[1] for row in data])}
        acc, _ = exe.run(program, feed={name: feed[name] for name in feeds}, fetch_list=fetches)
        assert 0 <= acc[0] <= 1
        assert {"fake_quantize_moving_average_abs_max"} <= {op.type for op in program.global_block().ops}


# ---------------------------------------------------------------- the compressor itself
def test_training_continues_from_the_newest_checkpoint(case: Case) -> None:
    more = f"pruner: pruner_1, target_ratio: 0.62, pruned_params: '{FILTERS}'"
    config = strategy("UniformPruneStrategy", more).replace(
        "strategies: [s]", "strategies: [s], checkpoint_path: saved"
    )
    first = case.compressor(config)
    first.run()
    trained = case.value("conv1_weights")
    assert sorted(os.listdir("saved")) == ["0", "1"]
    with fluid.scope_guard(fluid.Scope()), fluid.program_guard(fluid.Program(), fluid.Program()):
        with fluid.unique_name.guard():
            network()
            scope = fluid.global_scope()
            fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
        main, val = fluid.Program(), fluid.Program()
        for program in (main, val):
            with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
                found = network()
        second = Case(main, val, found, scope).compressor(config)
        second.run()
        assert second.context is not None
        assert second.context.epoch_id == 2  # nothing was left to train
        np.testing.assert_array_equal(np.array(scope.find_var("conv1_weights").get_tensor()), trained)


def test_an_epoch_that_fails_is_logged_and_the_next_one_begins(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Strategy):
        def on_epoch_begin(self, context: Any) -> None:
            if context.epoch_id == 0:
                raise KeyError("nothing")

    made = case.compressor("compressor: {epoch: 2, strategies: []}\n")
    made._add_strategy(Failing())
    made.run()
    assert made.context is not None
    assert "KeyError: 'nothing'" in caplog.text
    assert len(made.context.eval_results["loss"]) == 1


def test_evaluation_may_be_a_function(case: Case) -> None:
    made = case.compressor("compressor: {epoch: 1}\n", eval_func={"ops": lambda program, scope: len(program.blocks)})
    made.run()
    assert made.context is not None
    assert made.context.eval_results == {"ops": [1]}


def test_a_share_of_the_batches_is_the_same_each_time(case: Case) -> None:
    context = Context(
        fluid.CPUPlace(),
        case.scope,
        eval_graph=GraphWrapper(case.val, [("i", "image"), ("l", "label")], [("loss", case.vars["loss"].name)]),
        eval_reader=batches,
    )
    first, names = context.run_eval_graph(0.5, 7)
    assert list(names) == ["loss"]
    assert context.run_eval_graph(0.5, 7)[0] == first
    assert os.listdir("eval_cache") == ["7"]


def test_what_cannot_be_configured_is_named(tmp_path: Path, case: Case) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("strategies:\n    s: {class: Nosuch}\n")
    with pytest.raises(UsageError, match=r"s has class 'Nosuch'; expected one of .*UniformPruneStrategy"):
        ConfigFactory(str(path))
    path.write_text("a: [\n")
    with pytest.raises(UsageError, match="is not YAML"):
        ConfigFactory(str(path))
    path.write_text("version: 1\n")
    with pytest.raises(UsageError, match="has no section compressor"):
        case.compressor("compressor: {epoch: 1}\n").config(str(path))
    with pytest.raises(AssertedError, match="train_feed_list should be a list of tuple"):
        Compressor(None, case.scope, case.main, train_feed_list={"image": "image"})  # type: ignore[arg-type]


def test_files_may_include_others_and_names_stand_for_objects(tmp_path: Path) -> None:
    (tmp_path / "pruners.yaml").write_text(PRUNER)
    (tmp_path / "all.yaml").write_text(
        f"version: 1.0\ninclude: ['{tmp_path}/pruners.yaml']\nstrategies:\n"
        "    u: {class: UniformPruneStrategy, pruner: pruner_1, metric_name: none, unknown: 3}\n"
        "compressor: {epoch: 4, strategies: [u], eval_epoch: 2}\n"
    )
    factory = ConfigFactory(str(tmp_path / "all.yaml"))
    (made,) = factory.compressor["strategies"]
    assert isinstance(made, UniformPruneStrategy)
    assert isinstance(made.pruner, StructurePruner)
    assert (made.metric_name, factory.version, factory.compressor["eval_epoch"]) == (None, 1, 2)


# ---------------------------------------------------------------- graphs and searches
def test_a_graph_knows_who_reads_and_writes(case: Case) -> None:
    graph = GraphWrapper(case.main)
    first = graph.var("conv1_weights").inputs()[0]
    assert first.type() == "conv2d"
    assert [op.type() for op in graph.next_ops(first)] == ["batch_norm"]
    assert first in graph.pre_ops(graph.next_ops(first)[0])
    assert [var.name() for var in graph.get_param_by_op(first)] == ["conv1_weights"]
    assert graph.flops(only_conv=True) == 2 * 36 * (8 * 2 * 9 + 9 + 8 * 8)
    with pytest.raises(AssertedError, match="reads no parameter"):
        graph.get_param_by_op(next(op for op in graph.ops() if op.type() == "pool2d"))


def test_shapes_follow_what_a_scope_holds(case: Case) -> None:
    graph = GraphWrapper(case.main)
    held = case.scope.find_var("dw_weights").get_tensor()
    held.set(np.ones((4, 1, 3, 3), np.float32), fluid.CPUPlace())
    graph.update_param_shape(case.scope)
    graph.update_groups_of_conv()
    depthwise = next(op for op in graph.ops() if op.type() == "depthwise_conv2d")
    assert depthwise.attr("groups") == 4
    with pytest.raises(TypeError, match="expected a GraphWrapper"):
        SlimGraphExecutor(fluid.CPUPlace()).run(case.main, case.scope)  # type: ignore[arg-type]


def test_annealing_changes_one_token_within_its_range() -> None:
    np.random.seed(1)
    controller = SAController()
    controller.reset([3, 4], [0, 1])
    for _ in range(20):
        tokens = controller.next_tokens()
        assert sum(a != b for a, b in zip(tokens, [0, 1], strict=True)) == 1
        assert all(0 <= token < limit for token, limit in zip(tokens, [3, 4], strict=True))
    controller.update([2, 2], 0.5)
    controller.update([1, 1], 0.4)
    assert (controller._best_tokens, controller._max_reward) == ([2, 2], 0.5)
    controller.reset([3, 4], [0, 1], lambda tokens: tokens[1] == 3)
    assert controller.next_tokens()[1] == 3


def test_agents_get_tokens_from_the_server_of_a_search() -> None:
    np.random.seed(2)
    controller = SAController()
    controller.reset([5, 5], [0, 0])
    server = ControllerServer(controller, ("127.0.0.1", 0), search_steps=1, key="word")
    server.start()
    agent = SearchAgent("127.0.0.1", server.port(), key="word")
    assert len(agent.next_tokens()) == 2
    with pytest.raises(ValueError, match="invalid literal"):
        SearchAgent("127.0.0.1", server.port(), key="wrong").update([1, 1], 0.9)
    assert len(agent.update([3, 4], 0.7)) == 2
    assert (controller._best_tokens, controller._iter) == ([3, 4], 1)


def test_networks_are_searched_by_tokens(case: Case) -> None:
    class Space(SearchSpace):
        def init_tokens(self) -> list[int]:
            return [4]

        def range_table(self) -> list[int]:
            return [5]

        def create_net(self, tokens: list[int]) -> tuple[Any, ...]:
            made.append(tokens[0])
            main, startup = fluid.Program(), fluid.Program()
            with fluid.program_guard(main, startup), fluid.unique_name.guard():
                found = network(f"net{tokens[0]}_{len(made)}_")
                val = main.clone(for_test=True)
                fluid.optimizer.SGD(0.01).minimize(found["loss"])
            return startup, main, val, (), (), batches, batches

    np.random.seed(0)
    made: list[int] = []
    config = """
controllers:
    c: {class: SAController}
strategies:
    nas: {class: LightNASStrategy, controller: c, end_epoch: 2, target_flops: 1000000000, metric_name: acc, is_server: true,
          server_ip: 127.0.0.1, search_steps: 2}
compressor: {epoch: 2, strategies: [nas]}
"""
    compressor = case.compressor(config, search_space=Space())
    compressor.run()
    assert compressor.context is not None
    assert len(compressor.context.eval_results["acc"]) == 2
    assert made[0] == 4
    assert made[1] != 4
    assert compressor.strategies[0]._controller._iter == 2
    assert "_server" not in compressor.strategies[0].__getstate__()
