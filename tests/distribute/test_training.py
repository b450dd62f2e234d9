"""The programs of all roles together train as one process does: sending and fetching are done here, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.roles import RolePrograms, server_programs, trainer_programs
from fluidtool.distribute.settings import Settings
from fluidtool.ir import Program
from fluidtool.ir.surgery import copy_operator, copy_program
from tests.distribute.support import A, B, the

STEPS, BATCH, WIDTH, HIDDEN = 5, 4, 100, 200
REMOTE = ("send", "recv", "send_barrier", "fetch_barrier", "concat")
Feed = dict[str, Any]


def network(optimizer: Any) -> tuple[Program, Program, Any]:
    """(main, startup, loss) of x [100] -> 200 -> 1, with listed values for the weight that is cut."""
    values = np.random.RandomState(5).uniform(-0.1, 0.1, (WIDTH, HIDDEN)).astype("float32")
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [WIDTH]), fluid.layers.data("y", [1])
        attr = fluid.ParamAttr(name="w", initializer=fluid.initializer.NumpyArrayInitializer(values))
        hidden = fluid.layers.fc(x, HIDDEN, act="tanh", param_attr=attr)
        out = fluid.layers.fc(hidden, 1, param_attr=fluid.initializer.Constant(0.05))
        loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
        optimizer().minimize(loss)
    return main, startup, loss


def batches(count: int) -> list[list[Feed]]:
    """For each step a batch for each trainer."""
    random = np.random.RandomState(3)

    def batch() -> Feed:
        return {n: random.uniform(-1, 1, (BATCH, k)).astype("float32") for n, k in (("x", WIDTH), ("y", 1))}

    return [[batch() for _ in range(count)] for _ in range(STEPS)]


def run(program: Program, scope: Any, feed: Feed | None = None, fetch: Any = ()) -> list[Any]:
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(scope):
        return list(executor.run(program, feed=feed or {}, fetch_list=list(fetch)))


def value(scope: Any, name: str) -> Any:
    return np.array(scope.find_var(name).get_tensor())


class Server:
    """A server in this process: what `listen_and_serv` does, without a network."""

    def __init__(self, programs: RolePrograms) -> None:
        self.scope, self.main = fluid.Scope(), programs.main
        run(programs.startup, self.scope)
        serving = the(programs.main.global_block(), "listen_and_serv")
        self.blocks = [self._alone(index) for index in serving.attr("optimize_blocks")]
        self.received = serving.input("X")

    def _alone(self, index: int) -> Program:
        """A block as a program of its own."""
        program = copy_program(self.main)
        program.blocks = program.blocks[:1]
        block = program.global_block()
        block.ops = [copy_operator(op, block) for op in self.main.block(index).ops]
        return program

    def optimize(self, gradients: Feed) -> None:
        """Run every block, the learning rate's first."""
        for program in self.blocks:
            read = {name for op in program.global_block().ops for name in op.input_arg_names}
            run(program, self.scope, {name: gradients[name] for name in self.received if name in read})


class Trainer:
    """A trainer in this process: computes gradients, and is given parameters."""

    def __init__(self, programs: RolePrograms, loss: str) -> None:
        self.scope, self.loss = fluid.Scope(), loss
        self.whole = programs.main
        self.main, startup = copy_program(programs.main), copy_program(programs.startup)
        for program in (self.main, startup):
            block = program.global_block()
            block.ops = [op for op in block.ops if op.type not in REMOTE]
        run(startup, self.scope)

    def compute(self, feed: Feed) -> tuple[float, Feed]:
        """The loss, and what each `send` sends."""
        names = [n for op in self.whole.global_block().ops if op.type == "send" for n in op.input("X")]
        loss, *values = run(self.main, self.scope, feed, [self.loss, *names])
        return float(np.ravel(loss)[0]), dict(zip(names, values, strict=True))

    def fetch(self, servers: dict[str, Server]) -> None:
        """What `recv` and `concat` do."""
        ops = self.whole.global_block().ops
        shards = {
            name: value(servers[endpoint].scope, name)
            for op in ops
            if op.type == "recv"
            for name, endpoint in zip(op.output("Out"), op.attr("epmap"), strict=True)
        }
        for op in ops:
            if op.type == "concat":
                shards[op.output("Out")[0]] = np.concatenate([shards.pop(name) for name in op.input("X")])
        for name, array in shards.items():
            self.scope.var(name).get_tensor().set(array, fluid.CPUPlace())


def together(network_: Any, data: list[list[Feed]], **options: Any) -> tuple[list[float], Feed]:
    """Mean losses and final parameters of a synchronous job."""
    main, startup, loss = network_
    settings = Settings(0, len(data[0]), (A, B), **options)
    servers = {role.endpoint: Server(role) for role in server_programs(main, startup, settings, settings.servers)}
    numbers = range(settings.trainers)
    trainers = [Trainer(role, loss.name) for role in trainer_programs(main, startup, settings, numbers)]
    losses = []
    for step in data:
        for trainer in trainers:
            trainer.fetch(servers)
        found = [trainer.compute(feed) for trainer, feed in zip(trainers, step, strict=True)]
        losses.append(float(np.mean([each for each, _ in found])))
        sent = {name: array for _, gradients in found for name, array in gradients.items()}
        for server in servers.values():
            server.optimize({name: sent[name] for name in server.received})
    trainers[0].fetch(servers)
    return losses, {p.name: value(trainers[0].scope, p.name) for p in main.all_parameters()}


def alone(network_: Any, data: list[list[Feed]]) -> tuple[list[float], Feed]:
    """The same training in one process, on the batches of all trainers at once."""
    main, startup, loss = network_
    scope, losses = fluid.Scope(), []
    run(startup, scope)
    for step in data:
        feed = {name: np.concatenate([each[name] for each in step]) for name in step[0]}
        losses.append(float(np.ravel(run(main, scope, feed, [loss])[0])[0]))
    return losses, {p.name: value(scope, p.name) for p in main.all_parameters()}


L1, L2 = fluid.regularizer.L1Decay(0.01), fluid.regularizer.L2Decay(0.01)
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True),
    "adam": lambda: fluid.optimizer.Adam(0.01),
    "adamax": lambda: fluid.optimizer.Adamax(0.01),
    "adagrad": lambda: fluid.optimizer.Adagrad(0.01),
    "decayed_adagrad": lambda: fluid.optimizer.DecayedAdagrad(0.002),
    "rmsprop": lambda: fluid.optimizer.RMSProp(0.01, momentum=0.5),
    "centered rmsprop": lambda: fluid.optimizer.RMSProp(0.01, centered=True),
    "ftrl": lambda: fluid.optimizer.Ftrl(0.1),
    "l1": lambda: fluid.optimizer.SGD(0.1, regularization=L1),
    "l2": lambda: fluid.optimizer.Adam(0.01, regularization=L2),
    "exponential decay": lambda: fluid.optimizer.SGD(fluid.layers.exponential_decay(0.1, 2, 0.5)),
    "noam decay": lambda: fluid.optimizer.Adam(fluid.layers.noam_decay(64, 10)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_trainers_and_two_servers_train_as_one_process_does(name: str) -> None:
    built, data = network(OPTIMIZERS[name]), batches(2)
    losses, values = together(built, data)
    expected, parameters = alone(built, data)
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    for parameter, array in parameters.items():
        np.testing.assert_allclose(values[parameter], array, rtol=1e-4, atol=1e-5, err_msg=parameter)


@pytest.mark.parametrize(
    "options", [{"slice_variables": False}, {"min_block_size": 20000}], ids=["whole", "large blocks"]
)
def test_how_parameters_are_cut_changes_no_number(options: dict[str, Any]) -> None:
    built, data = network(OPTIMIZERS["adam"]), batches(3)
    losses, values = together(built, data, **options)
    expected, parameters = together(built, data)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    for parameter, array in parameters.items():
        np.testing.assert_allclose(values[parameter], array, rtol=1e-5, atol=1e-7, err_msg=parameter)


@pytest.mark.parametrize("way", ["set_gradient_clip", "grad_clip"])
def test_a_single_trainer_clips_by_the_norm_of_all_gradients(way: str) -> None:
    clip = fluid.clip.GradientClipByGlobalNorm(0.05)

    def optimizer() -> Any:
        if way == "grad_clip":
            return fluid.optimizer.SGD(0.5, grad_clip=clip)
        fluid.clip.set_gradient_clip(clip)
        return fluid.optimizer.SGD(0.5)

    built, data = network(optimizer), batches(1)
    losses, values = together(built, data)
    expected, parameters = alone(built, data)
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    for parameter, array in parameters.items():
        np.testing.assert_allclose(values[parameter], array, rtol=1e-4, atol=1e-6, err_msg=parameter)
