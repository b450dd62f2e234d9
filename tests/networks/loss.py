"""Networks of losses, with the gradients that training them appends."""


def _rows(fluid, size=5, name="x"):
    return fluid.layers.fc(fluid.layers.data(name, [4]), size)


def _classes(fluid, name="label"):
    return fluid.layers.data(name, [1], dtype="int64")


def _train(fluid, loss):
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(loss))


def net_cross_entropy(fluid):
    _train(fluid, fluid.layers.cross_entropy(fluid.layers.softmax(_rows(fluid)), _classes(fluid), ignore_index=3))


def net_cross_entropy_of_soft_labels(fluid):
    label = fluid.layers.data("label", [5])
    _train(fluid, fluid.layers.cross_entropy(fluid.layers.softmax(_rows(fluid)), label, soft_label=True))


def net_cross_entropy_of_sequences(fluid):
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    label = fluid.layers.data("label", [1], dtype="int64", lod_level=1)
    scores = fluid.layers.fc(fluid.layers.embedding(words, [10, 4]), 5, act="softmax")
    _train(fluid, fluid.layers.cross_entropy(scores, label))


def net_softmax_with_cross_entropy(fluid):
    _train(fluid, fluid.layers.softmax_with_cross_entropy(_rows(fluid), _classes(fluid)))


def net_softmax_with_cross_entropy_of_soft_labels(fluid):
    label = fluid.layers.data("label", [5])
    loss, softmax = fluid.layers.softmax_with_cross_entropy(
        _rows(fluid), label, soft_label=True, numeric_stable_mode=False, return_softmax=True, axis=1
    )
    fluid.layers.scale(softmax, 2.0)
    _train(fluid, loss)


def net_sigmoid_cross_entropy_with_logits(fluid):
    label = fluid.layers.data("label", [5])
    _train(fluid, fluid.layers.sigmoid_cross_entropy_with_logits(_rows(fluid), label, -1, name="bce", normalize=True))


def net_teacher_student_sigmoid_loss(fluid):
    label = fluid.layers.data("label", [1])
    _train(fluid, fluid.layers.teacher_student_sigmoid_loss(_rows(fluid, 1), label, 10.0, -10))


def net_bpr_loss(fluid):
    _train(fluid, fluid.layers.bpr_loss(_rows(fluid), _classes(fluid), name="bpr"))


def net_label_smooth(fluid):
    label = fluid.layers.one_hot(_classes(fluid), 5)
    smooth = fluid.layers.label_smooth(label, epsilon=0.2)
    _train(fluid, fluid.layers.softmax_with_cross_entropy(_rows(fluid), smooth, soft_label=True))


def net_label_smooth_towards_a_prior(fluid):
    prior = fluid.layers.data("prior", [1, 5], append_batch_size=False)
    fluid.layers.label_smooth(fluid.layers.data("label", [5]), prior, name="smooth")


def net_square_error_cost(fluid):
    _train(fluid, fluid.layers.square_error_cost(_rows(fluid, 1), fluid.layers.data("y", [1])))


def net_mse_loss(fluid):
    _train(fluid, fluid.layers.mse_loss(_rows(fluid, 1), fluid.layers.data("y", [1])))


def net_huber_loss(fluid):
    _train(fluid, fluid.layers.huber_loss(_rows(fluid, 1), fluid.layers.data("y", [1]), 1.5))


def net_smooth_l1(fluid):
    _train(fluid, fluid.layers.smooth_l1(_rows(fluid), fluid.layers.data("y", [5])))


def net_smooth_l1_with_weights(fluid):
    inside, outside = fluid.layers.data("inside", [5]), fluid.layers.data("outside", [5])
    _train(fluid, fluid.layers.smooth_l1(_rows(fluid), fluid.layers.data("y", [5]), inside, outside, 2.0))


def net_log_loss(fluid):
    probability = fluid.layers.sigmoid(_rows(fluid, 1))
    _train(fluid, fluid.layers.log_loss(probability, fluid.layers.data("y", [1]), 0.01, name="log"))


def net_kldiv_loss(fluid):
    target = fluid.layers.data("target", [5])
    _train(fluid, fluid.layers.kldiv_loss(_rows(fluid), target))
    fluid.layers.kldiv_loss(_rows(fluid), target, reduction="none", name="each")


def net_rank_loss(fluid):
    label = fluid.layers.data("label", [1])
    _train(fluid, fluid.layers.rank_loss(label, _rows(fluid, 1), _rows(fluid, 1, "z"), name="rank"))


def net_margin_rank_loss(fluid):
    label = fluid.layers.data("label", [1])
    _train(fluid, fluid.layers.margin_rank_loss(label, _rows(fluid, 1), _rows(fluid, 1, "z"), 0.3))


def net_center_loss(fluid):
    attr = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5))
    _train(fluid, fluid.layers.center_loss(_rows(fluid), _classes(fluid), 3, 0.2, attr))


def net_center_loss_at_a_rate_of_a_variable(fluid):
    rate = fluid.layers.fill_constant([1], "float32", 0.1)
    _train(fluid, fluid.layers.center_loss(_rows(fluid), _classes(fluid), 3, rate, None, update_center=False))


def net_npair_loss(fluid):
    anchor = fluid.layers.data("anchor", [6, 4], append_batch_size=False)
    positive = fluid.layers.data("positive", [6, 4], append_batch_size=False)
    labels = fluid.layers.data("labels", [6], append_batch_size=False)
    _train(fluid, fluid.layers.npair_loss(fluid.layers.fc(anchor, 3), fluid.layers.fc(positive, 3), labels))


def net_dice_loss(fluid):
    _train(fluid, fluid.layers.dice_loss(fluid.layers.softmax(_rows(fluid)), _classes(fluid)))
