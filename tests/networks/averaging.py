"""Averages of parameters, lookahead, recomputation. Also runs on Python 3.7."""


def _line(fluid):
    x = fluid.layers.data("x", [4])
    y = fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 5, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    return hidden, loss


def net_model_average(fluid):
    _, loss = _line(fluid)
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    fluid.optimizer.ModelAverage(0.15, min_average_window=2, max_average_window=20)


def net_moving_average(fluid):
    _, loss = _line(fluid)
    fluid.optimizer.SGD(0.1).minimize(loss)
    average = fluid.optimizer.ExponentialMovingAverage(0.9, name="shadow")
    average.update()


def net_moving_average_by_steps(fluid):
    _, loss = _line(fluid)
    steps = fluid.layers.cast(fluid.layers.autoincreased_step_counter(), "float32")
    fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.optimizer.ExponentialMovingAverage(0.9, thres_steps=steps).update()


def net_lookahead(fluid):
    _, loss = _line(fluid)
    fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1), alpha=0.25, k=3).minimize(loss)


def net_recompute(fluid):
    hidden, loss = _line(fluid)
    optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.Adam(0.1))
    optimizer._set_checkpoints([hidden])
    optimizer.minimize(loss)
