"""Scripts that train with `fluid.incubate.fleet`, as jobs: they learn what one process learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.support import process

pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")

pytestmark = pytest.mark.slow

MODEL = """
import os, sys
import numpy
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker

x = fluid.layers.data(name="x", shape=[4])
y = fluid.layers.data(name="y", shape=[1])
predicted = fluid.layers.fc(x, 1, param_attr=fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.1)))
loss = fluid.layers.mean(fluid.layers.square_error_cost(predicted, y))
optimizer = fluid.optimizer.Momentum(learning_rate=0.1, momentum=0.5)
numbers = numpy.random.RandomState(7).uniform(-1, 1, (6, 8, 4)).astype("float32")
exe = fluid.Executor(fluid.CPUPlace())

def train(program, worker, workers):
    rows = 8 // workers
    for batch in numbers:
        own = batch[worker * rows:worker * rows + rows]
        exe.run(program, feed={"x": own, "y": own[:, :1]}, fetch_list=[loss])
"""
ALONE = """
optimizer.minimize(loss)
exe.run(fluid.default_startup_program())
train(fluid.default_main_program(), 0, 1)
fluid.io.save_persistables(exe, sys.argv[1])
"""
SERVERS = """
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet, StrategyFactory

fleet.init(role_maker.PaddleCloudRoleMaker())
fleet.distributed_optimizer(optimizer, StrategyFactory.create_sync_strategy()).minimize(loss)
if fleet.is_server():
    fleet.init_server(*sys.argv[2:])
    fleet.run_server()
else:
    fleet.init_worker()
    exe.run(fleet.startup_program)
    train(fleet.main_program, fleet.worker_index(), fleet.worker_num())
    if fleet.is_first_worker():
        fleet.save_persistables(exe, sys.argv[1])
        fleet.save_inference_model(exe, sys.argv[1] + "_inference", ["x"], [predicted])
    fleet.stop_worker()
"""
COLLECTIVE = """
from paddle.fluid.incubate.fleet.collective import fleet

fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
fleet.distributed_optimizer(optimizer).minimize(loss)
exe.run(fleet.startup_program)
train(fleet.main_program, fleet.worker_index(), fleet.worker_num())
if fleet.worker_index() == 0:
    fleet.save_persistables(exe, sys.argv[1])
"""


def learnt(folder: Path, name: str, code: str, *words: str) -> dict[str, np.ndarray]:
    """The values that a script saves, by name."""
    import fluidtool.fluid as fluid

    script = folder / f"{name}.py"
    script.write_text(MODEL + code)
    done = process(*words, script, folder / name, text=True)
    assert done.returncode == 0, done.stderr
    return fluid.io.load_program_state(str(folder / name))


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, np.ndarray]:
    """What one process learns; a job with servers saves no learning rate (as in Paddle 1.8.5)."""
    values = learnt(tmp_path, "alone", ALONE, "exec")
    return {name: value for name, value in values.items() if name != "learning_rate_0"}


def test_a_fleet_with_servers_learns_what_one_process_learns(alone: dict[str, np.ndarray], tmp_path: Path) -> None:
    words = ["launch", "--any-ports", "--pservers", "1", "--trainers", "2"]
    together = learnt(tmp_path, "together", SERVERS, *words)
    assert together.keys() == alone.keys()
    for name, value in alone.items():
        np.testing.assert_allclose(together[name], value, rtol=0, atol=1e-6, err_msg=name)
    assert not np.allclose(alone["w"], 0.1)
    assert (tmp_path / "together_inference" / "__model__").is_file()


def test_a_server_begins_with_what_was_saved(alone: dict[str, np.ndarray], tmp_path: Path) -> None:
    code = SERVERS.replace("*sys.argv[2:]", repr(str(tmp_path / "alone"))).replace("in numbers", "in numbers[:0]")
    script = MODEL.replace("in numbers", "in numbers[:0]")
    (tmp_path / "again.py").write_text(script + code)
    words = ["launch", "--any-ports", "--pservers", "1", "--trainers", "1", tmp_path / "again.py", tmp_path / "again"]
    done = process(*words, text=True)
    assert done.returncode == 0, done.stderr
    import fluidtool.fluid as fluid

    state = fluid.io.load_program_state(str(tmp_path / "again"))
    for name, value in alone.items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)


def test_a_fleet_of_workers_learns_what_one_process_learns(alone: dict[str, np.ndarray], tmp_path: Path) -> None:
    words = ["launch", "--any-ports", "--mode", "collective", "--trainers", "2"]
    together = learnt(tmp_path, "workers", COLLECTIVE, *words)
    for name, value in alone.items():
        np.testing.assert_allclose(together[name], value, rtol=0, atol=1e-6, err_msg=name)
