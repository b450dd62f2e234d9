"""Small training programs, and what tests ask of transpiled ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fluidtool.fluid as fluid
from fluidtool.distribute.job import ServerJob, transpile_for_servers
from fluidtool.distribute.settings import Settings
from fluidtool.ir import Block, Operator, Program

A, B, C = "127.0.0.1:6170", "127.0.0.1:6171", "127.0.0.1:6172"
Programs = tuple[Program, Program]


def sgd() -> Any:
    return fluid.optimizer.SGD(0.1)


def built(network: Callable[[], Any], optimizer: Callable[[], Any] | None = sgd) -> Programs:
    """(main, startup) of a network that returns its loss; without an optimizer if that is None."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = network()
        if optimizer is not None:
            optimizer().minimize(loss)
    return main, startup


def mlp() -> Any:
    """x [100] -> 200 -> 10: fc_0.w_0 has 20000 elements, fc_1.w_0 2000."""
    x = fluid.layers.data("x", [100])
    y = fluid.layers.data("y", [1], dtype="int64")
    hidden = fluid.layers.fc(x, 200, act="relu")
    return fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(hidden, 10, act="softmax"), y))


def embeddings(*, tables: tuple[str, ...] = ("emb",), is_distributed: bool = False, is_sparse: bool = True) -> Any:
    """The mean of the rows [32] that the ids of each table of 1000 rows name."""
    rows = []
    for index, table in enumerate(tables):
        ids = fluid.layers.data(f"ids_{index}", [1], dtype="int64")
        size, attr = [1000, 32], fluid.ParamAttr(name=table)
        rows.append(
            fluid.layers.embedding(ids, size, is_sparse=is_sparse, is_distributed=is_distributed, param_attr=attr)
        )
    return fluid.layers.mean(fluid.layers.fc(fluid.layers.concat(rows, axis=1), 1))


def job(programs: Programs, **options: Any) -> ServerJob:
    """Transpile for two servers and two trainers, unless told otherwise."""
    given: dict[str, Any] = {"trainer_id": 0, "trainers": 2, "servers": (A, B)} | options
    return transpile_for_servers(*programs, Settings(**given))


def types(block: Block) -> list[str]:
    """The types of the operators."""
    return [op.type for op in block.ops]


def the(block: Block, kind: str) -> Operator:
    """The one operator of this type."""
    (found,) = [op for op in block.ops if op.type == kind]
    return found


def writers(block: Block, name: str) -> list[Operator]:
    """The operators that write a variable."""
    return [op for op in block.ops if name in op.output_arg_names]


def as_bytes(programs: Programs) -> tuple[bytes, bytes]:
    """Both programs as they stand."""
    return programs[0].serialize_to_string(), programs[1].serialize_to_string()
