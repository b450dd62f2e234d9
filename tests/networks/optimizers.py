"""Networks trained by every optimizer, with penalties, clips and gradients of all kinds."""


def _loss(fluid, **attrs):
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 3, act="tanh", **attrs)
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))


def _table_loss(fluid, **attrs):
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    rows = fluid.layers.embedding(words, [10, 4], is_sparse=True, **attrs)
    return fluid.layers.mean(fluid.layers.fc(rows, 2))


def net_sgd(fluid):
    fluid.optimizer.SGD(0.1).minimize(_loss(fluid))


def net_sgd_at_the_rate_of_a_variable(fluid):
    rate = fluid.layers.create_global_var([1], 0.1, "float32", persistable=True, name="rate")
    fluid.optimizer.SGDOptimizer(rate, name="plain").minimize(_loss(fluid))


def net_momentum(fluid):
    fluid.optimizer.Momentum(0.1, 0.9).minimize(_loss(fluid))


def net_momentum_of_nesterov(fluid):
    fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True, name="ball").minimize(_loss(fluid))


def net_lars_momentum(fluid):
    fluid.optimizer.LarsMomentum(0.1, 0.9, lars_weight_decay=0.001).minimize(_loss(fluid))


def net_adagrad(fluid):
    fluid.optimizer.Adagrad(0.1, initial_accumulator_value=0.2).minimize(_loss(fluid))


def net_adam(fluid):
    fluid.optimizer.Adam(0.1).minimize(_loss(fluid))


def net_adam_with_betas_of_variables(fluid):
    first = fluid.layers.create_global_var([1], 0.8, "float32", persistable=True, name="first")
    second = fluid.layers.create_global_var([1], 0.95, "float32", persistable=True, name="second")
    fluid.optimizer.Adam(0.1, first, second, 1e-6).minimize(_loss(fluid))


def net_adam_lazy_on_sparse_rows(fluid):
    fluid.optimizer.Adam(0.1, lazy_mode=True).minimize(_table_loss(fluid))


def net_adamax(fluid):
    fluid.optimizer.Adamax(0.1).minimize(_loss(fluid))


def net_dpsgd(fluid):
    fluid.optimizer.Dpsgd(0.1, clip=10.0, batch_size=16.0, sigma=1.0).minimize(_loss(fluid))


def net_decayed_adagrad(fluid):
    fluid.optimizer.DecayedAdagrad(0.1).minimize(_loss(fluid))


def net_adadelta(fluid):
    fluid.optimizer.Adadelta(0.1).minimize(_loss(fluid))


def net_rmsprop(fluid):
    fluid.optimizer.RMSProp(0.1, momentum=0.5, centered=True).minimize(_loss(fluid))


def net_ftrl(fluid):
    fluid.optimizer.Ftrl(0.1, l1=0.2, l2=0.3).minimize(_loss(fluid))


def net_lamb(fluid):
    def biases(param):
        return param.name.endswith(".b_0")

    fluid.optimizer.Lamb(0.1, exclude_from_weight_decay_fn=biases).minimize(_loss(fluid))


# ---------------------------------------------------------------- penalties
def net_l2_decay(fluid):
    fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.01)).minimize(_loss(fluid))


def net_l1_decay(fluid):
    fluid.optimizer.Momentum(0.1, 0.9, regularization=fluid.regularizer.L1DecayRegularizer(0.01)).minimize(_loss(fluid))


def net_l1_decay_of_one_parameter(fluid):
    attr = fluid.ParamAttr(regularizer=fluid.regularizer.L1Decay(0.5))
    regularizer = fluid.regularizer.L2Decay(0.01)
    fluid.optimizer.Adam(0.1, regularization=regularizer).minimize(_loss(fluid, param_attr=attr))


def net_l2_decay_of_sparse_rows(fluid):
    attr = fluid.ParamAttr(name="table", regularizer=fluid.regularizer.L2Decay(0.5))
    fluid.optimizer.SGD(0.1).minimize(_table_loss(fluid, param_attr=attr))


def net_l1_decay_of_sparse_rows(fluid):
    fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L1Decay(0.01)).minimize(_table_loss(fluid))


# ---------------------------------------------------------------- clips
def net_clip_by_value(fluid):
    fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByValue(0.5, -0.25)).minimize(_loss(fluid))


def net_clip_by_norm_of_some(fluid):
    clip = fluid.clip.GradientClipByNorm(1.0, need_clip=lambda param: param.name.endswith(".w_0"))
    fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(_loss(fluid))


def net_clip_by_global_norm(fluid):
    fluid.optimizer.Adam(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)).minimize(_loss(fluid))


def net_clip_by_global_norm_with_penalties(fluid):
    clip = fluid.clip.GradientClipByGlobalNorm(1.0, need_clip=lambda param: "b_0" not in param.name)
    optimizer = fluid.optimizer.SGD(0.1, grad_clip=clip, regularization=fluid.regularizer.L2Decay(0.01))
    optimizer.minimize(_loss(fluid))


def net_clip_of_sparse_rows_by_global_norm(fluid):
    fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)).minimize(_table_loss(fluid))


def net_clip_of_sparse_rows_by_norm(fluid):
    fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByNorm(1.0)).minimize(_table_loss(fluid))


def net_set_gradient_clip_by_value(fluid):
    loss = _loss(fluid)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(0.5))
    fluid.optimizer.SGD(0.1).minimize(loss)


def net_set_gradient_clip_by_norm(fluid):
    loss = _loss(fluid)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(0.5))
    fluid.optimizer.SGD(0.1).minimize(loss)


def net_set_gradient_clip_by_global_norm(fluid):
    loss = _loss(fluid)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.5))
    fluid.optimizer.Momentum(0.1, 0.9, regularization=fluid.regularizer.L2Decay(0.01)).minimize(loss)


def net_set_gradient_clip_of_one_parameter(fluid):
    loss = _loss(fluid)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(0.5), param_list=["fc_0.w_0"])
    fluid.optimizer.SGD(0.1).minimize(loss)


def net_set_gradient_clip_on_sparse_rows(fluid):
    loss = _table_loss(fluid)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.5))
    fluid.optimizer.SGD(0.1).minimize(loss)


def net_error_clip(fluid):
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 3, act="tanh")
    hidden.error_clip = fluid.clip.ErrorClipByValue(max=0.1, min=-0.2)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    fluid.optimizer.SGD(0.1).minimize(loss)


# ---------------------------------------------------------------- parameters and rates
def net_factors_of_the_learning_rate(fluid):
    attr = fluid.ParamAttr(learning_rate=0.5)
    fluid.optimizer.Adam(0.1).minimize(_loss(fluid, param_attr=attr, bias_attr=fluid.ParamAttr(learning_rate=2.0)))


def net_factor_of_a_schedule(fluid):
    rate = fluid.layers.exponential_decay(0.1, 100, 0.9)
    fluid.optimizer.Momentum(rate, 0.9).minimize(_loss(fluid, param_attr=fluid.ParamAttr(learning_rate=0.5)))


def net_parameters_that_stay(fluid):
    attr = fluid.ParamAttr(name="fixed", trainable=False)
    fluid.optimizer.Adam(0.1).minimize(_loss(fluid, param_attr=attr))


def net_parameter_list(fluid):
    fluid.optimizer.SGD(0.1).minimize(_loss(fluid), parameter_list=["fc_1.w_0", "fc_0.b_0"])


def net_parameter_list_of_the_optimizer(fluid):
    loss = _loss(fluid)
    block = fluid.default_main_program().global_block()
    fluid.optimizer.Adagrad(0.1, parameter_list=[block.var("fc_1.b_0")]).minimize(loss)


def net_no_grad_set(fluid):
    fluid.optimizer.SGD(0.1).minimize(_loss(fluid), no_grad_set={"fc_0.w_0", "fc_1.b_0"})


def net_no_grad_set_in_the_middle(fluid):
    fluid.optimizer.SGD(0.1).minimize(_loss(fluid), no_grad_set={"fc_0.tmp_2"})


def net_stop_gradient_in_the_middle(fluid):
    hidden = fluid.layers.fc(fluid.layers.data("x", [4]), 3, act="relu")
    hidden.stop_gradient = True
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.fc(hidden, 2)))


def net_a_parameter_used_twice(fluid):
    attr = fluid.ParamAttr(name="shared")
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [4])
    both = [fluid.layers.fc(var, 3, param_attr=attr, bias_attr=False) for var in (x, y)]
    fluid.optimizer.Adam(0.1).minimize(fluid.layers.mean(fluid.layers.sums(both)))


def net_a_sparse_table_used_twice(fluid):
    attr = fluid.ParamAttr(name="shared")
    words = [fluid.layers.data(name, [1], dtype="int64") for name in ("first", "second", "third")]
    rows = [fluid.layers.embedding(ids, [10, 4], is_sparse=True, param_attr=attr) for ids in words]
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.concat(rows, axis=1)))


def net_two_losses(fluid):
    x = fluid.layers.data("x", [4])
    hidden = fluid.layers.fc(x, 3)
    first, second = fluid.layers.mean(fluid.layers.fc(hidden, 1)), fluid.layers.mean(fluid.layers.fc(hidden, 2))
    fluid.optimizer.SGD(0.1).minimize(first)
    fluid.optimizer.Adam(0.2).minimize(second, parameter_list=["fc_0.w_0", "fc_2.w_0"])


def net_backward_and_apply(fluid):
    optimizer = fluid.optimizer.Adam(0.1)
    pairs = optimizer.backward(_loss(fluid))
    optimizer.apply_gradients(pairs)


def net_weight_norm(fluid):
    attr = fluid.WeightNormParamAttr(dim=1, name="normed")
    fluid.optimizer.SGD(0.1).minimize(_loss(fluid, param_attr=attr))


def net_devices(fluid):
    with fluid.device_guard("cpu"):
        hidden = fluid.layers.fc(fluid.layers.data("x", [4]), 3)
    with fluid.device_guard("gpu"):
        loss = fluid.layers.mean(fluid.layers.fc(hidden, 2))
    fluid.optimizer.Adam(0.1).minimize(loss)


def net_name_scopes(fluid):
    with fluid.name_scope("tower"):
        hidden = fluid.layers.fc(fluid.layers.data("x", [4]), 3)
        with fluid.name_scope("head"):
            loss = fluid.layers.mean(fluid.layers.fc(hidden, 2))
    fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByNorm(1.0)).minimize(loss)


# ---------------------------------------------------------------- gradients without an optimizer
def net_append_backward(fluid):
    fluid.backward.append_backward(_loss(fluid))


def net_append_backward_with_lists(fluid):
    loss = _loss(fluid)
    block = fluid.default_main_program().global_block()
    fluid.backward.append_backward(
        loss, parameter_list=[block.var("fc_0.w_0"), "fc_1.w_0"], no_grad_set=[block.var("x")]
    )


def net_append_backward_with_checkpoints(fluid):
    x = fluid.layers.data("x", [4])
    first = fluid.layers.fc(x, 3, act="tanh")
    second = fluid.layers.fc(first, 3, act="relu")
    loss = fluid.layers.mean(fluid.layers.fc(second, 1))
    fluid.backward.append_backward(loss, checkpoints=[first, second])


def net_gradients(fluid):
    x = fluid.layers.data("x", [4])
    x.stop_gradient = False
    fluid.gradients(fluid.layers.tanh(fluid.layers.fc(x, 3)), x)


def net_gradients_of_several(fluid):
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [4])
    x.stop_gradient = y.stop_gradient = False
    product = fluid.layers.elementwise_mul(x, y)
    start = fluid.layers.fill_constant_batch_size_like(product, [-1, 4], "float32", 2.0)
    fluid.gradients([product, fluid.layers.square(x)], [x, y], target_gradients=[start, None])


def net_gradients_of_gradients(fluid):
    x = fluid.layers.data("x", [4])
    x.stop_gradient = False
    (first,) = fluid.gradients([fluid.layers.square(fluid.layers.tanh(x))], [x])
    penalty = fluid.layers.mean(fluid.layers.square(first))
    fluid.gradients([penalty], [x])


def net_gradient_penalty(fluid):
    x = fluid.layers.data("x", [4])
    x.stop_gradient = False
    out = fluid.layers.fc(x, 3, act="tanh")
    (first,) = fluid.gradients([out], [x])
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.square(first)))


def net_gradients_up_to_a_set(fluid):
    x = fluid.layers.data("x", [4])
    x.stop_gradient = False
    hidden = fluid.layers.fc(x, 3)
    fluid.gradients([fluid.layers.fc(hidden, 2)], [x, hidden], no_grad_set={"fc_0.w_0"})
