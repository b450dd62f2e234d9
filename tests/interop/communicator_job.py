"""One process of an asynchronous job whose trainers use a Communicator; runs under Paddle 1.8.5 and under fluidtool.

PYTHON communicator_job.py pserver|trainer async|half_async|geo ENDPOINTS TRAINERS NUMBER ENDPOINT STEPS ENOUGH. A trainer ends
after so many steps, or once its loss is below ENOUGH, and prints the loss of its last step.
"""

import sys

import numpy as np
import paddle.fluid as fluid
from paddle.fluid.communicator import Communicator
from paddle.fluid.transpiler.distribute_transpiler import DistributedMode
from paddle.fluid.transpiler.geo_sgd_transpiler import GeoSgdTranspiler

MODES = {"async": DistributedMode.ASYNC, "half_async": DistributedMode.HALF_ASYNC, "geo": DistributedMode.GEO}
PUSH_EVERY = 5
# Where trainers do not wait, nothing limits the age of parameters, and on a busy machine it grows: with 0.05 the asynchronous
# job ends in NaN, with servers of either kind, once they are six updates old.
RATES = {"async": 0.01, "half_async": 0.05, "geo": 0.05}
SETTINGS = {  # the defaults of Paddle's fleet, for one thread; Paddle's own Communicator has none
    "communicator_max_merge_var_num": "1",
    "communicator_send_queue_size": "1",
    "communicator_independent_recv_thread": "1",
    "communicator_min_send_grad_num_before_recv": "1",
    "communicator_thread_pool_size": "5",
    "communicator_send_wait_times": "5",
    "communicator_is_sgd_optimizer": "1",
}


def network(rate):
    """Dense and sparse features, one output."""
    ids = fluid.layers.data("ids", [1], dtype="int64")
    x = fluid.layers.data("x", [16])
    y = fluid.layers.data("y", [1])
    constant = fluid.initializer.Constant(0.1)
    attr = fluid.ParamAttr(name="emb", initializer=constant)
    rows = fluid.layers.embedding(ids, [1000, 8], is_sparse=True, param_attr=attr)
    features = fluid.layers.concat([x, rows], axis=1)
    out = fluid.layers.fc(features, 1, param_attr=fluid.ParamAttr(name="w", initializer=constant))
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
    fluid.optimizer.SGD(rate).minimize(loss)
    return loss


def transpiled(mode, endpoints, trainers, number, endpoint):
    """The transpiler after its work."""
    config = fluid.DistributeTranspilerConfig()
    config.sync_mode = False
    if mode == "geo":
        config.geo_sgd_mode, config.geo_sgd_need_push_nums = True, PUSH_EVERY
    else:
        config.runtime_split_send_recv, config.half_async = True, mode == "half_async"
    transpiler = GeoSgdTranspiler(config) if mode == "geo" else fluid.DistributeTranspiler(config)
    transpiler.transpile(number, pservers=endpoints, trainers=trainers, sync_mode=False, current_endpoint=endpoint)
    return transpiler


def batch(random):
    """What a trainer feeds: y is the sum of x."""
    x, ids = random.rand(32, 16).astype("float32"), random.randint(0, 50, (32, 1))
    return {"x": x, "ids": ids, "y": x.sum(1, keepdims=True)}


def main():
    role, mode, endpoints, trainers, number, endpoint, steps, enough = sys.argv[1:9]
    loss = network(RATES[mode])
    transpiler = transpiled(mode, endpoints, int(trainers), int(number), endpoint)
    executor = fluid.Executor(fluid.CPUPlace())
    if role == "pserver":
        program, startup = transpiler.get_pserver_programs(endpoint)
        executor.run(startup)
        executor.run(program)
        return
    program = transpiler.get_trainer_program()
    given = None
    if mode == "geo":
        given = {"push_vars": transpiler._get_vars_info(), "trainers": int(trainers), "push_nums": PUSH_EVERY}
    communicator = Communicator(program, MODES[mode], given, dict(SETTINGS))
    if mode == "geo":  # its startup program hands the parameters over
        communicator.start()
        executor.run(fluid.default_startup_program())
    else:
        executor.run(fluid.default_startup_program())
        communicator.start()
    random = np.random.RandomState(int(number))
    for _ in range(int(steps)):
        last = float(np.ravel(executor.run(program, feed=batch(random), fetch_list=[loss])[0])[0])
        if last < float(enough):
            break
    communicator.stop()
    executor.close()
    print("last loss", last)


if __name__ == "__main__":
    main()
