"""Networks of losses over many classes that look at some of them."""


def _rows(fluid, size=5):
    return fluid.layers.fc(fluid.layers.data("x", [4]), size)


def _classes(fluid, size=1):
    return fluid.layers.data("label", [size], dtype="int64")


def _train(fluid, loss):
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(loss))


def net_nce(fluid):
    _train(fluid, fluid.layers.nce(_rows(fluid), _classes(fluid), 20))


def net_nce_of_two_classes_sparse(fluid):
    weight = fluid.layers.data("weight", [1])
    loss = fluid.layers.nce(
        _rows(fluid),
        _classes(fluid, 2),
        20,
        sample_weight=weight,
        param_attr=fluid.ParamAttr(name="w"),
        bias_attr=False,
        num_neg_samples=3,
        name="contrast",
        sampler="log_uniform",
        seed=5,
        is_sparse=True,
    )
    _train(fluid, loss)


def net_nce_with_a_distribution(fluid):
    _train(
        fluid,
        fluid.layers.nce(_rows(fluid), _classes(fluid), 4, sampler="custom_dist", custom_dist=[0.1, 0.25, 0.4, 0.25]),
    )


def net_hsigmoid(fluid):
    _train(fluid, fluid.layers.hsigmoid(_rows(fluid), _classes(fluid), 6))


def net_hsigmoid_of_a_tree(fluid):
    table = fluid.layers.data("table", [3], dtype="int64")
    code = fluid.layers.data("code", [3], dtype="int64")
    loss = fluid.layers.hsigmoid(
        _rows(fluid), _classes(fluid), 6, path_table=table, path_code=code, is_custom=True, is_sparse=True, name="tree"
    )
    _train(fluid, loss)


def net_hsigmoid_without_bias(fluid):
    _train(fluid, fluid.layers.hsigmoid(_rows(fluid), _classes(fluid), 6, bias_attr=False))


def net_sampled_softmax(fluid):
    _train(fluid, fluid.layers.sampled_softmax_with_cross_entropy(_rows(fluid, 30), _classes(fluid), 10, seed=3))


def net_sampled_softmax_of_given_samples(fluid):
    samples = fluid.layers.data("samples", [6], dtype="int64")
    shares = fluid.layers.data("shares", [6])
    loss = fluid.layers.sampled_softmax_with_cross_entropy(
        _rows(fluid, 30),
        _classes(fluid),
        5,
        remove_accidental_hits=False,
        use_customized_samples=True,
        customized_samples=samples,
        customized_probabilities=shares,
    )
    _train(fluid, loss)
