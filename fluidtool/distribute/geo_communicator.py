"""The communicator of Geo-SGD trainers, which optimize by themselves and share how their parameters changed.

Fields: Paddle 1.8.5 operators/distributed/communicator.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool.distribute.communicator import Connect, Shards, Variables, array_of, cut
from fluidtool.distribute.geo import INITIAL, delta_name
from fluidtool.errors import ProgramError
from fluidtool.tensor import LoDTensor, SelectedRows


class GeoCommunicator:
    """Every few steps: tell the servers how parameters changed here, by a share of 1 / trainers, and add what others did.

    Of sparse tables only the rows of ids that were looked up travel.
    """

    def __init__(
        self,
        parameters: Mapping[str, Shards],
        sparse: frozenset[str],
        scope: Variables,
        connect: Connect,
        trainers: int,
        every: int,
    ) -> None:
        self._parameters, self._sparse, self._scope, self._connect = parameters, sparse, scope, connect
        self._share, self._every = 1.0 / trainers, every
        self._known: dict[str, Any] = {}
        self._ids: dict[str, list[Any]] = {}
        self._steps = 0

    def start(self) -> None:
        """Remember the parameters as they came from the servers; of those that hold no value yet there is nothing to tell."""
        for name in self._parameters:
            if (array := self._held(name)) is not None:
                self._known[name] = np.array(array)

    def hand_over(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Note the ids of a step by table; after every so many steps exchange."""
        if list(names) == [INITIAL]:
            self.start()
            return
        for table, ids in zip(names, values, strict=True):
            self._ids.setdefault(table, []).append(np.asarray(ids.array).reshape(-1))
        self._steps += 1
        if self._steps % self._every == 0:
            self.exchange()

    def barrier(self) -> None:
        """There are no barriers."""

    def stop(self) -> None:
        """Exchange what the last steps changed."""
        if self._steps % self._every:
            self._steps = 0
            self.exchange()

    def exchange(self) -> None:
        """Send the changes of every parameter and take those of the others."""
        ids, self._ids = self._ids, {}
        for name, shards in self._parameters.items():
            if name in self._sparse:
                self._push_rows(name, shards, np.unique(np.concatenate(ids[name])) if name in ids else np.zeros(0, int))
                self._pull_rows(name, shards)
            else:
                self._push(name, shards)
                self._pull(name, shards)

    def _held(self, name: str) -> Any:
        variable = self._scope.find_var(name)
        if variable is None or not isinstance(variable.value, LoDTensor) or variable.value.array is None:
            return None
        return variable.value.numpy()

    def _latest(self, name: str) -> Any:
        array = self._held(name)
        if array is None or name not in self._known:
            raise ProgramError(
                f"the communicator keeps parameter {name}, which held no value when it started; run the startup program first"
            )
        return array

    def _push(self, name: str, shards: Shards) -> None:
        latest, known = self._latest(name), self._known[name]
        delta = (latest - known) * known.dtype.type(self._share)
        self._known[name] = known + delta
        self._send(LoDTensor(delta), shards)

    def _push_rows(self, name: str, shards: Shards, rows: Any) -> None:
        if not len(rows):
            return
        latest, known = self._latest(name), self._known[name]
        delta = (latest[rows] - known[rows]) * known.dtype.type(self._share)
        known[rows] += delta
        self._send(SelectedRows(rows, len(known), delta), shards)

    def _send(self, delta: Any, shards: Shards) -> None:
        clients = []
        for endpoint, name, shard in cut(delta, shards):
            clients.append(self._connect(endpoint))
            clients[-1].post_send(delta_name(name), shard)
        for client in clients:
            client.settle()

    def _pull(self, name: str, shards: Shards) -> None:
        found = np.concatenate(
            [array_of(self._connect(e).get(shard)) for e, shard in zip(shards.endpoints, shards.names, strict=True)]
        )
        self._store(name, self._latest(name) + (found - self._known[name]))
        self._known[name] = found

    def _pull_rows(self, name: str, shards: Shards) -> None:
        latest, known, start = np.array(self._latest(name)), self._known[name], 0
        for endpoint, shard, length in zip(shards.endpoints, shards.names, shards.rows, strict=True):
            client = self._connect(endpoint)
            changed = client.wait_value(client.post_get(shard, table_name=shard))
            if isinstance(changed, SelectedRows):
                rows, array = changed.row_ids + start, changed.value
            else:
                rows, array = np.arange(start, start + length), changed.array
            latest[rows] += array - known[rows]
            known[rows] = array
            start += length
        self._store(name, latest)

    def _store(self, name: str, array: Any) -> None:
        self._scope.find_var(name).value = LoDTensor(array)
