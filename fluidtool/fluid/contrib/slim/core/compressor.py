"""Trains a model while strategies change it (Paddle 1.8.5 contrib/slim/core/compressor.py).

A checkpoint keeps plain data of strategies (numbers, texts, arrays, lists and dicts of these): no code is read from files.
"""

from __future__ import annotations

import logging
import os
import pickle
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import AssertedError, UsageError
from fluidtool.fluid.compiler import BuildStrategy, CompiledProgram
from fluidtool.fluid.contrib.slim.core.config import ConfigFactory
from fluidtool.fluid.contrib.slim.graph import GraphWrapper, SlimGraphExecutor
from fluidtool.fluid.contrib.slim.strategy import Strategy
from fluidtool.fluid.executor import scope_guard
from fluidtool.fluid.log_helper import get_logger
from fluidtool.fluid.reader import DataLoaderBase
from fluidtool.io import pickles
from fluidtool.ir import Program, Variable
from fluidtool.ops.control_flow.readers import EndOfDataError
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import CPUPlace

__all__ = ["Compressor", "Context"]

_logger = get_logger(__name__, logging.INFO, fmt="%(asctime)s-%(levelname)s: %(message)s")
OPTIMIZED = "train_opt"
EVERY = 20  # batches of an evaluation are shown


def cached_reader(
    reader: Callable[[], Any], sampled_rate: float, cache_path: str, cached_id: int
) -> Callable[[], Iterator[Any]]:
    """A reader of a share of another one's batches, the same each time: they are kept in <cache_path>/<cached_id>."""
    np.random.seed(cached_id)
    folder = Path(cache_path, str(cached_id))

    def read() -> Iterator[Any]:
        if folder.is_dir():
            for name in (folder / "list").read_text().splitlines():
                yield pickles.load((folder / name).read_bytes(), str(folder / name))
            return
        folder.mkdir(parents=True)
        kept = 0
        with open(folder / "list", "w", encoding="utf-8") as names:
            for batch in reader():
                if kept == 0 or np.random.uniform() < sampled_rate:
                    (folder / f"batch{kept}").write_bytes(pickle.dumps(_plain(batch), 2))
                    names.write(f"batch{kept}\n")
                    kept += 1
                    yield batch

    return read


def _plain(value: Any) -> Any:
    """A batch as lists, tuples, dicts and arrays."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value if isinstance(value, (bool, int, float, str)) else np.asarray(value)


class Context:
    """What strategies see of a Compressor, and may change: graphs, readers, the epoch, results of evaluations by name."""

    def __init__(
        self,
        place: Any,
        scope: Scope,
        train_graph: GraphWrapper | None = None,
        train_reader: Any = None,
        eval_graph: GraphWrapper | None = None,
        eval_reader: Any = None,
        teacher_graphs: Sequence[GraphWrapper] | None = None,
        train_optimizer: Any = None,
        distiller_optimizer: Any = None,
        search_space: Any = None,
    ) -> None:
        self.epoch = self.epoch_id = self.batch_id = 0
        self.k_v: dict[str, Any] = {}
        self.place, self.scope = place, scope
        self.train_graph, self.train_reader = train_graph, train_reader
        self.eval_graph, self.eval_reader = eval_graph, eval_reader
        self.executor = None
        self.teacher_graphs, self.train_optimizer = teacher_graphs, train_optimizer
        self.distiller_optimizer = distiller_optimizer
        self.optimize_graph: Any = None
        self.cache_path = "./eval_cache"
        self.eval_results: dict[str, list[Any]] = {}
        self.skip_training = False
        self.search_space = search_space

    def to_file(self, file_name: str) -> None:
        """Write the epoch and the results of evaluations."""
        results = {name: [float(value) for value in values] for name, values in self.eval_results.items()}
        Path(file_name).write_bytes(pickle.dumps({"epoch_id": self.epoch_id, "eval_results": results}, 2))

    def from_file(self, file_name: str) -> None:
        """Read them."""
        data = pickles.load(Path(file_name).read_bytes(), file_name)
        self.epoch_id, self.eval_results = data["epoch_id"], data["eval_results"]

    def eval_converged(self, metric_name: str, delta: float = 0.001) -> bool:
        """Whether a metric changed by less than a share of `delta` between the last two evaluations."""
        results = self.eval_results.get(metric_name, [])[-2:]
        if len(results) < 2:
            return False
        return bool(abs(results[1] - results[0]) / results[0] < delta)

    def run_eval_graph(self, sampled_rate: float | None = None, cached_id: int = 0) -> tuple[list[Any], Any]:
        """The means of the evaluation's results over all batches, and their names.

        sampled_rate: the share of the batches to use; the same ones for the same cached_id.
        """
        if self.eval_graph is None or self.eval_reader is None:
            raise AssertedError("an evaluation needs eval_program and eval_reader")
        graph, executor = self.eval_graph.clone(for_test=True), SlimGraphExecutor(self.place)
        reader, found = self.eval_reader, list[list[Any]]()
        if sampled_rate:
            reader = cached_reader(reader, sampled_rate, self.cache_path, cached_id)
        for data in batches(reader, lambda batch: executor.run(graph, self.scope, batch)):
            found.append([np.mean(value) for value in data])
            if len(found) % EVERY == 1:
                _logger.info("batch-%s; %s=%s", len(found) - 1, list(graph.out_nodes), found[-1])
        result = list(np.mean(np.array(found), axis=0))
        _logger.info("Final eval result: %s=%s", list(graph.out_nodes), result)
        return result, graph.out_nodes.keys()

    def put(self, key: str, value: Any) -> None:
        """Keep something for later."""
        self.k_v[key] = value

    def get(self, key: str) -> Any:
        """What was kept, or None."""
        return self.k_v.get(key)


def batches(reader: Any, run: Callable[[Any], Any]) -> Iterator[Any]:
    """What `run` makes of each batch of a reader; one that feeds the program itself is started and reset, run(None) reads."""
    if not isinstance(reader, Variable) and not (
        isinstance(reader, DataLoaderBase) and not vars(reader).get("_iterable")
    ):
        for batch in reader():
            yield run(batch)
        return
    feeding: Any = reader
    feeding.start()
    try:
        while True:
            yield run(None)
    except EndOfDataError:
        feeding.reset()


class Compressor:
    """Trains and evaluates, epoch by epoch, and lets strategies do their work in between.

    place, scope: of all runs. The programs have their inputs and results by names of one's own: pairs such as ("image", "x"); the
    training has the result "loss". eval_func: {name: function(program, scope)} in place of an evaluation by eval_reader.
    teacher_programs, distiller_optimizer: for distillation. train_optimizer: appended to train_program; None where it trains
    already.
    checkpoint_path: a folder that each epoch is saved in, and continued from. save_eval_model, prune_infer_model: models there.
    search_space: for a search of networks. log_period: batches between lines of the log.
    """

    def __init__(
        self,
        place: Any,
        scope: Scope,
        train_program: Program,
        train_reader: Any = None,
        train_feed_list: Sequence[tuple[str, str]] | None = None,
        train_fetch_list: Sequence[tuple[str, str]] | None = None,
        eval_program: Program | None = None,
        eval_reader: Any = None,
        eval_feed_list: Sequence[tuple[str, str]] | None = None,
        eval_fetch_list: Sequence[tuple[str, str]] | None = None,
        eval_func: Mapping[str, Callable[[Program, Scope], Any]] | None = None,
        save_eval_model: bool = True,
        prune_infer_model: Sequence[Sequence[str]] | None = None,
        teacher_programs: Sequence[Program] = (),
        checkpoint_path: str | None = None,
        train_optimizer: Any = None,
        distiller_optimizer: Any = None,
        search_space: Any = None,
        log_period: int = 20,
    ) -> None:
        for name, given in (("train_feed_list", train_feed_list), ("eval_feed_list", eval_feed_list)):
            if given is not None and not isinstance(given, list):
                raise AssertedError(
                    f"{name} should be a list of tuple, such as [('image', image.name)], found {given!r}"
                )
        if log_period <= 0:
            raise AssertedError(f"log_period must be positive, found {log_period}")
        self.strategies: list[Any] = []
        self.epoch, self.eval_epoch, self.log_period = 0, 1, log_period
        self.place, self.scope = CPUPlace() if place is None else place, scope
        self.train_graph = GraphWrapper(train_program, train_feed_list, train_fetch_list)
        self.eval_graph = GraphWrapper(eval_program, eval_feed_list, eval_fetch_list)
        self.train_reader, self.eval_reader, self.eval_func = train_reader, eval_reader, eval_func
        self.save_eval_model, self.prune_infer_model = save_eval_model, prune_infer_model
        self.teacher_graphs = [GraphWrapper(teacher) for teacher in teacher_programs]
        self.checkpoint, self.checkpoint_path = None, checkpoint_path
        self.train_optimizer, self.distiller_optimizer = train_optimizer, distiller_optimizer
        self.init_model: str | None = None
        self.search_space = search_space
        self.context: Context | None = None

    def _add_strategy(self, strategy: Any) -> None:
        """Add a strategy; training goes on at least to its last epoch."""
        self.strategies.append(strategy)
        self.epoch = max(strategy.end_epoch, self.epoch)

    def config(self, config_file: str) -> None:
        """Take strategies and settings from a YAML file (`ConfigFactory`)."""
        settings = ConfigFactory(config_file).compressor
        if "epoch" not in settings:
            raise UsageError(f"{config_file} has no section compressor with an epoch")
        self.epoch = settings["epoch"]
        for strategy in settings["strategies"]:
            self._add_strategy(strategy)
        self.checkpoint_path = settings.get("checkpoint_path", self.checkpoint_path)
        self.init_model = settings.get("init_model", self.init_model)
        self.eval_epoch = settings.get("eval_epoch", self.eval_epoch)
        if self.eval_epoch <= 0:
            raise AssertedError(f"eval_epoch must be positive, found {self.eval_epoch}")

    def run(self) -> GraphWrapper:
        """Compress; the graph of the evaluation, as it is afterwards. An epoch that fails is logged, and the next one begins."""
        context = self.context = Context(
            place=self.place,
            scope=self.scope,
            train_graph=self.train_graph,
            train_reader=self.train_reader,
            eval_graph=self.eval_graph,
            eval_reader=self.eval_reader,
            teacher_graphs=self.teacher_graphs,
            train_optimizer=self.train_optimizer,
            distiller_optimizer=self.distiller_optimizer,
            search_space=self.search_space,
        )
        if self.teacher_graphs:
            context.put("teachers", self.teacher_graphs)
        self._init_model(context)
        context.optimize_graph = self.train_graph
        if self.train_optimizer:
            self.train_optimizer._name = OPTIMIZED
            context.optimize_graph = self.train_graph.get_optimize_graph(self.train_optimizer, self.place, self.scope)
        self._load_checkpoint(context)
        for strategy in self.strategies:
            strategy.on_compression_begin(context)
        for epoch in range(context.epoch_id, self.epoch):
            context.epoch_id = epoch
            try:
                self._run_epoch(context)
            except Exception:
                _logger.error("epoch %s failed:\n%s", epoch, traceback.format_exc())
        for strategy in self.strategies:
            strategy.on_compression_end(context)
        assert context.eval_graph is not None
        return context.eval_graph

    def _run_epoch(self, context: Context) -> None:
        for strategy in self.strategies:
            strategy.on_epoch_begin(context)
        self._train_one_epoch(context)
        if context.epoch_id % self.eval_epoch == 0:
            self._eval(context)
        self._save_checkpoint(context)
        for strategy in self.strategies:
            strategy.on_epoch_end(context)

    def _train_one_epoch(self, context: Context) -> None:
        if context.skip_training:
            return
        graph, executor = context.optimize_graph, SlimGraphExecutor(self.place)
        if graph.compiled_graph is None:
            strategy = BuildStrategy()
            strategy.fuse_all_reduce_ops = False
            graph.compiled_graph = CompiledProgram(graph.program).with_data_parallel(
                loss_name=graph.out_nodes["loss"], build_strategy=strategy
            )

        def run(batch: Any) -> list[Any]:
            for each in self.strategies:
                each.on_batch_begin(context)
            return executor.run(context.optimize_graph, context.scope, batch)

        for results in batches(context.train_reader, run):
            if context.batch_id % self.log_period == 0:
                values = [round(float(np.mean(result)), 6) for result in results]
                names = list(context.optimize_graph.out_nodes)
                _logger.info("epoch:%s; batch_id:%s; %s = %s", context.epoch_id, context.batch_id, names, values)
            for each in self.strategies:
                each.on_batch_end(context)
            context.batch_id += 1
        context.batch_id = 0

    def _eval(self, context: Context) -> None:
        if self.eval_func is not None:
            found = {name: function(self.eval_graph.program, self.scope) for name, function in self.eval_func.items()}
        else:
            results, names = context.run_eval_graph()
            found = dict(zip(names, results, strict=True))
        for name, value in found.items():
            context.eval_results.setdefault(name, []).append(value)

    # ---------------------------------------------------------------- files
    def _init_model(self, context: Context) -> None:
        """Begin with the parameters in a folder, which may be pruned."""
        if not (self.init_model and os.path.exists(self.init_model)):
            return
        with scope_guard(context.scope):
            self.train_graph.load_persistables(self.init_model, SlimGraphExecutor(context.place))
        for graph in (self.eval_graph, self.train_graph):
            graph.update_param_shape(context.scope)
            graph.update_groups_of_conv()
        self.train_graph.infer_shape()
        _logger.info("Init model from: %s", self.init_model)

    def _load_checkpoint(self, context: Context) -> None:
        """Continue from the newest checkpoint: after its epoch, with what the strategies had learnt by then."""
        if not self.checkpoint_path or not os.path.exists(self.checkpoint_path):
            return
        epochs = [int(name) for name in os.listdir(self.checkpoint_path) if name.isdigit()]
        if not epochs:
            return
        folder = Path(self.checkpoint_path, str(max(epochs)))
        if (folder / "context").exists():
            context.from_file(str(folder / "context"))
            context.epoch_id += 1
        if (folder / "strategies").exists():
            self._restore_strategies(pickles.load((folder / "strategies").read_bytes(), str(folder / "strategies")))
        for strategy in self.strategies:
            strategy.restore_from_checkpoint(context)
        if (folder / "model").exists():
            with scope_guard(context.scope):
                context.optimize_graph.load_persistables(str(folder / "model"), SlimGraphExecutor(context.place))
        _logger.info("Loaded checkpoint from: %s", folder)

    def _restore_strategies(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Give strategies what they had besides what is configured now."""
        if len(states) != len(self.strategies):
            raise AssertedError(f"the checkpoint has {len(states)} strategies, {len(self.strategies)} are configured")
        for strategy, state in zip(self.strategies, states, strict=True):
            vars(strategy).update({name: value for name, value in state.items() if name not in vars(strategy)})

    def _save_checkpoint(self, context: Context) -> None:
        if not self.checkpoint_path:
            return
        folder, executor = Path(self.checkpoint_path, str(context.epoch_id)), SlimGraphExecutor(context.place)
        (folder / "model").mkdir(parents=True, exist_ok=True)
        graph = self.eval_graph if context.eval_graph is None else context.eval_graph
        with scope_guard(context.scope):
            context.optimize_graph.save_persistables(str(folder / "model"), executor)
            if self.save_eval_model:
                graph.save_model(str(folder / "eval_model"), executor)
            if self.prune_infer_model:
                graph.save_infer_model(
                    str(folder / "eval_model"), executor, self.prune_infer_model, program_only=self.save_eval_model
                )
        context.to_file(str(folder / "context"))
        states = [_data_of(strategy) for strategy in self.strategies]
        (folder / "strategies").write_bytes(pickle.dumps(states, 2))
        _logger.info("Saved checkpoint to: %s", folder)


def _data_of(strategy: Any) -> dict[str, Any]:
    """The attributes of a strategy that are plain data."""
    state = strategy.__getstate__() if isinstance(strategy, Strategy) else vars(strategy)
    return {name: value for name, value in state.items() if _is_data(value)}


def _is_data(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_data, value))
    if isinstance(value, dict):
        return all(map(_is_data, (*value.keys(), *value.values())))
    plain = isinstance(value, (bool, int, float, str, np.ndarray)) and not isinstance(value, np.generic)
    return value is None or plain
