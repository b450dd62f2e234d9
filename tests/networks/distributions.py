"""Networks of probability distributions."""

import numpy


def _value(fluid):
    return fluid.layers.data("value", [3])


def _both(fluid):
    return fluid.layers.data("first", [3]), fluid.layers.data("second", [3])


def net_uniform_of_numbers(fluid):
    uniform = fluid.layers.Uniform(0.0, 3.0)
    uniform.sample([2, 3], seed=4)
    uniform.entropy()
    uniform.log_prob(fluid.layers.data("value", [1], append_batch_size=False))


def net_uniform_of_lists(fluid):
    uniform = fluid.layers.Uniform([0.0, 1.0, 1.5], [3.0, 4.0, 5.0])
    uniform.sample([2])
    uniform.log_prob(fluid.layers.data("value", [3], append_batch_size=False))


def net_uniform_of_variables(fluid):
    uniform = fluid.layers.Uniform(*_both(fluid))
    uniform.sample([2])
    uniform.entropy()
    uniform.log_prob(_value(fluid))


def net_normal_of_numbers(fluid):
    normal = fluid.layers.Normal(0.0, 3.0)
    normal.sample([2, 3], seed=4)
    normal.entropy()
    normal.log_prob(_value(fluid))
    normal.kl_divergence(fluid.layers.Normal(1.0, 2.0))


def net_normal_of_arrays(fluid):
    normal = fluid.layers.Normal(numpy.array([0.0, 1.0, 2.0], "float32"), [3.0, 4.0, 5.0])
    normal.sample([2])


def net_normal_of_variables(fluid):
    normal = fluid.layers.Normal(*_both(fluid))
    normal.sample([2])
    normal.entropy()
    normal.log_prob(_value(fluid))


def net_categorical(fluid):
    first = fluid.layers.Categorical(fluid.layers.data("first", [5]))
    first.entropy()
    first.kl_divergence(fluid.layers.Categorical(fluid.layers.data("second", [5])))
    fluid.layers.Categorical([0.5, 0.25, 0.25]).entropy()


def net_multivariate_normal_diag(fluid):
    first = fluid.layers.MultivariateNormalDiag([0.3, 0.5], [[0.4, 0.0], [0.0, 0.5]])
    second = fluid.layers.MultivariateNormalDiag(numpy.array([0.2, 0.4], "float32"), [[0.3, 0.0], [0.0, 0.4]])
    first.entropy()
    first.kl_divergence(second)
