"""Scripts for Paddle as distributed jobs, unmodified: the example of Paddle 0.14 with environment variables, and Trainer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.support import process

pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")

pytestmark = pytest.mark.slow

MODEL = """
import os
import numpy
import paddle.fluid as fluid
import paddle.fluid.transpiler.distribute_transpiler as distribute_transpiler

x = fluid.layers.data(name="x", shape=[4])
y = fluid.layers.data(name="y", shape=[1])
predicted = fluid.layers.fc(x, 1, param_attr=fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.1)))
loss = fluid.layers.mean(fluid.layers.square_error_cost(predicted, y))
fluid.optimizer.SGD(learning_rate=0.1).minimize(loss)
numbers = numpy.random.RandomState(7).uniform(-1, 1, (6, 8, 4)).astype("float32")
exe = fluid.Executor(fluid.CPUPlace())
"""
# From here to `get_trainer_program` the lines are those of the documentation of Paddle 0.14.
EXAMPLE = """
# Define your model before these codes.
port = os.getenv("PADDLE_PSERVER_PORT", "6174")
pserver_ips = os.getenv("PADDLE_PSERVER_IPS", "")
eplist = []
for ip in pserver_ips.split(","):
     eplist.append(':'.join([ip, port]))
pserver_endpoints = ",".join(eplist)
trainers = int(os.getenv("PADDLE_TRAINERS"))
current_endpoint = os.getenv("PADDLE_CURRENT_IP", "") + ":" + port
trainer_id = int(os.getenv("PADDLE_TRAINER_ID", "0"))
role = os.getenv("PADDLE_TRAINING_ROLE")

t = distribute_transpiler.DistributeTranspiler()
t.transpile(
     trainer_id, pservers=pserver_endpoints, trainers=trainers)
if role == "PSERVER":
     pserver_program = t.get_pserver_program(current_endpoint)
     pserver_startup_program = t.get_startup_program(current_endpoint,
                                                     pserver_program)
     exe.run(pserver_startup_program)
     exe.run(pserver_program)
elif role == "TRAINER":
     trainer_program = t.get_trainer_program()
     exe.run(fluid.default_startup_program())
     for batch in numbers:
          own = batch[trainer_id * 4:trainer_id * 4 + 4]
          exe.run(trainer_program, feed={"x": own, "y": own[:, :1]}, fetch_list=[loss])
     if trainer_id == 0:
          numpy.save(os.environ["LEARNT"], fluid.fetch_var("w"))
     exe.close()
"""
ALONE = """
exe.run(fluid.default_startup_program())
for batch in numbers:
    exe.run(feed={"x": batch, "y": batch[:, :1]}, fetch_list=[loss])
numpy.save(os.environ["LEARNT"], fluid.fetch_var("w"))
"""
TRAINER = """
import os
import numpy
import paddle.fluid as fluid

def network():
    x = fluid.layers.data(name="x", shape=[4])
    y = fluid.layers.data(name="y", shape=[1])
    attr = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.1))
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1, param_attr=attr), y))

def reader():
    first, count = (4 * int(os.environ["PADDLE_TRAINER_ID"]), 4) if "PADDLE_TRAINER_ID" in os.environ else (0, 8)
    for batch in numpy.random.RandomState(7).uniform(-1, 1, (6, 8, 4)).astype("float32"):
        yield [(row, row[:1]) for row in batch[first:first + count]]

trainer = fluid.Trainer(network, lambda: fluid.optimizer.SGD(0.1), place=fluid.CPUPlace())
trainer.train(1, lambda event: None, reader, ["x", "y"])
if os.environ.get("PADDLE_TRAINING_ROLE") != "PSERVER" and os.environ.get("PADDLE_TRAINER_ID", "0") == "0":
    numpy.save(os.environ["LEARNT"], numpy.array(trainer.scope.find_var("w").get_tensor()))
"""


@pytest.mark.parametrize(("alone", "together"), [(MODEL + ALONE, MODEL + EXAMPLE), (TRAINER, TRAINER)])
def test_a_script_learns_in_a_job_what_it_learns_alone(alone: str, together: str, tmp_path: Path) -> None:
    found = {}
    for name, code, words in (
        ("alone", alone, ["exec"]),
        ("together", together, ["launch", "--any-ports", "--pservers", "1", "--trainers", "2"]),
    ):
        (tmp_path / f"{name}.py").write_text(code)
        done = process(*words, tmp_path / f"{name}.py", env={"LEARNT": str(tmp_path / f"{name}.npy")}, text=True)
        assert done.returncode == 0, done.stderr
        found[name] = np.load(tmp_path / f"{name}.npy")
    np.testing.assert_allclose(found["together"], found["alone"], rtol=0, atol=1e-6)
    assert not np.allclose(found["alone"], 0.1)
