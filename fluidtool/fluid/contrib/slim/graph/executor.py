"""Runs the graphs of slim (Paddle 1.8.5 contrib/slim/graph/executor.py)."""

from __future__ import annotations

from typing import Any

from fluidtool.errors import ArgumentTypeError
from fluidtool.fluid.contrib.slim.graph.graph_wrapper import GraphWrapper
from fluidtool.fluid.data_feeder import DataFeeder
from fluidtool.fluid.executor import Executor
from fluidtool.runtime.scope import Scope

__all__ = ["SlimGraphExecutor"]


class SlimGraphExecutor:
    """Runs a graph at a place."""

    def __init__(self, place: Any) -> None:
        self.exe, self.place = Executor(place), place

    def run(self, graph: GraphWrapper, scope: Scope, data: Any = None) -> list[Any]:
        """The values of the graph's results.

        data: a mini-batch: samples, whose values go to the graph's inputs in order, or dicts that are fed as they are; None
        where the program reads by itself.
        """
        if not isinstance(graph, GraphWrapper):
            raise ArgumentTypeError(f"expected a GraphWrapper, found {type(graph).__name__}")
        feed = data
        if data is not None and not isinstance(data[0], dict):
            feeder = DataFeeder(feed_list=list(graph.in_nodes.values()), place=self.place, program=graph.program)
            feed = feeder.feed(data)
        program = graph.compiled_graph or graph.program
        if isinstance(feed, list) and program is graph.program and len(feed) == 1:
            feed = feed[0]
        return self.exe.run(program, feed=feed, fetch_list=list(graph.out_nodes.values()), scope=scope)
