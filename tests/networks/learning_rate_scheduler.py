"""Networks trained with learning rates that change."""


def _train(fluid, rate):
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 1))
    fluid.optimizer.SGD(rate).minimize(loss)


def net_noam_decay(fluid):
    _train(fluid, fluid.layers.noam_decay(64, 100, 0.5))


def net_exponential_decay(fluid):
    _train(fluid, fluid.layers.exponential_decay(0.1, 100, 0.9))


def net_exponential_decay_by_stairs(fluid):
    _train(fluid, fluid.layers.exponential_decay(0.1, 100, 0.9, staircase=True))


def net_natural_exp_decay(fluid):
    _train(fluid, fluid.layers.natural_exp_decay(0.1, 100, 0.9))


def net_natural_exp_decay_by_stairs(fluid):
    _train(fluid, fluid.layers.natural_exp_decay(0.1, 100, 0.9, True))


def net_inverse_time_decay(fluid):
    _train(fluid, fluid.layers.inverse_time_decay(0.1, 100, 0.9))


def net_inverse_time_decay_by_stairs(fluid):
    _train(fluid, fluid.layers.inverse_time_decay(0.1, 100, 0.9, True))


def net_polynomial_decay(fluid):
    _train(fluid, fluid.layers.polynomial_decay(0.1, 100, 0.01, 2.0))


def net_polynomial_decay_in_cycles(fluid):
    _train(fluid, fluid.layers.polynomial_decay(0.1, 100, cycle=True))


def net_piecewise_decay(fluid):
    _train(fluid, fluid.layers.piecewise_decay([100, 200], [1.0, 0.5, 0.1]))


def net_cosine_decay(fluid):
    _train(fluid, fluid.layers.cosine_decay(0.1, 30, 10))


def net_linear_lr_warmup(fluid):
    _train(fluid, fluid.layers.linear_lr_warmup(0.1, 50, 0.0, 0.2))


def net_linear_lr_warmup_before_a_schedule(fluid):
    schedule = fluid.layers.piecewise_decay([100, 200], [1.0, 0.5, 0.1])
    _train(fluid, fluid.layers.linear_lr_warmup(schedule, 50, 0.01, 1.0))


def net_linear_lr_warmup_before_a_cosine(fluid):
    _train(fluid, fluid.layers.linear_lr_warmup(fluid.layers.cosine_decay(0.1, 30, 10), 50, 0.0, 0.1))
