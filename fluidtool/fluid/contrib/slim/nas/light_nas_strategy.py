"""A search for networks that are small and good (Paddle 1.8.5 contrib/slim/nas/light_nas_strategy.py)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from fluidtool.errors import UsageError
from fluidtool.fluid.contrib.slim.nas.controller_server import ControllerServer
from fluidtool.fluid.contrib.slim.nas.lock import lock, unlock
from fluidtool.fluid.contrib.slim.nas.search_agent import SearchAgent
from fluidtool.fluid.contrib.slim.strategy import Strategy
from fluidtool.fluid.executor import Executor
from fluidtool.fluid.log_helper import get_logger

__all__ = ["LightNASStrategy"]

_logger = get_logger(__name__, logging.INFO, fmt="LightNASStrategy-%(asctime)s-%(levelname)s: %(message)s")
STARTED = "./slim_LightNASStrategy_controller_server.socket"  # not empty once a process of this folder serves
TRIES = 100


class LightNASStrategy(Strategy):
    """Trains networks of the Compressor's search_space, each for retrain_epoch epochs, and tells a controller their metric.

    target_flops, target_latency: the most operations and time that are allowed; 0 allows any time. is_server: whether this process
    starts the server, of which there is one for a folder.
    """

    def __init__(
        self,
        controller: Any = None,
        end_epoch: int = 1000,
        target_flops: float = 629145600,
        target_latency: float = 0,
        retrain_epoch: int = 1,
        metric_name: str = "top1_acc",
        server_ip: str | None = None,
        server_port: int = 0,
        is_server: bool = False,
        max_client_num: int = 100,
        search_steps: int | None = None,
        key: str = "light-nas",
    ) -> None:
        super().__init__(0, end_epoch)
        self._controller, self._metric_name, self._retrain_epoch = controller, metric_name, retrain_epoch
        self._max_flops, self._max_latency = target_flops, target_latency
        self._server_ip = _own_address() if server_ip is None else server_ip
        self._server_port, self._is_server, self._max_client_num = server_port, is_server, max_client_num
        self._search_steps, self._key = search_steps, key
        self._current_tokens: list[int] = []
        self._search_agent: SearchAgent | None = None
        self._server: ControllerServer | None = None

    def __getstate__(self) -> dict[str, Any]:
        """All attributes but connections."""
        return {name: value for name, value in vars(self).items() if name not in ("_search_agent", "_server")}

    def on_compression_begin(self, context: Any) -> None:
        """Set the controller up, start the server if this process is to, and connect with it."""
        self._current_tokens = context.search_space.init_tokens()
        self._controller.reset(context.search_space.range_table(), self._current_tokens, None)
        if self._is_server:
            self._serve()
        self._search_agent = SearchAgent(self._server_ip, self._server_port, key=self._key)

    def _serve(self) -> None:
        Path(STARTED).touch()
        with open(STARTED, "r+", encoding="utf-8") as file:
            lock(file)
            if not file.readline():
                self._server = ControllerServer(
                    self._controller,
                    (self._server_ip, self._server_port),
                    self._max_client_num,
                    self._search_steps,
                    self._key,
                )
                file.write(self._server.start())
                self._server_port = self._server.port()
            unlock(file)

    def _is_try(self, epoch: int) -> bool:
        return self._retrain_epoch == 0 or (epoch - self.start_epoch) % self._retrain_epoch == 0

    def on_epoch_begin(self, context: Any) -> None:
        """Make the next network: of tokens that are changed until it is small enough, up to a hundred times."""
        if not (self.start_epoch <= context.epoch_id <= self.end_epoch and self._is_try(context.epoch_id)):
            return
        smallest, fewest = self._current_tokens[:], -1.0
        for _ in range(TRIES):
            made = context.search_space.create_net(self._current_tokens)
            context.eval_graph.program = made[2]
            flops = context.eval_graph.flops()
            if fewest < 0 or flops < fewest:
                smallest, fewest = self._current_tokens[:], fewest if fewest >= 0 else flops
            _logger.info("try [%s] with flops %s", self._current_tokens, flops)
            if flops <= self._max_flops and not self._is_slow(context, made[2]):
                break
            self._current_tokens = self._controller.next_tokens(smallest)
        startup, context.train_reader, context.eval_reader = made[0], made[-2], made[-1]
        Executor(context.place).run(startup, scope=context.scope)
        context.optimize_graph.program = made[1]
        context.optimize_graph.compile()
        context.skip_training = self._retrain_epoch == 0

    def _is_slow(self, context: Any, program: Any) -> bool:
        return self._max_latency > 0 and context.search_space.get_model_latency(program) > self._max_latency

    def on_epoch_end(self, context: Any) -> None:
        """Tell the server how good the network was, and ask for other tokens."""
        if not (self.start_epoch <= context.epoch_id < self.end_epoch and self._is_try(context.epoch_id + 1)):
            return
        reward, flops = context.eval_results[self._metric_name][-1], context.eval_graph.flops()
        if flops > self._max_flops:
            reward = 0.0
        if self._max_latency > 0 and self._is_slow(context, context.search_space.create_net(self._current_tokens)[2]):
            reward = 0.0
        _logger.info("reward: %s; flops: %s; tokens: %s", reward, flops, self._current_tokens)
        if self._search_agent is None:
            raise UsageError("the search has not begun: on_compression_begin comes first")
        self._current_tokens = self._search_agent.update(self._current_tokens, reward)


def _own_address() -> str:
    import socket

    return socket.gethostbyname(socket.gethostname())
