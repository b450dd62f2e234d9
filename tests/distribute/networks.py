"""Training jobs for `dump.py`, which builds and transpiles them under real Paddle 1.8.5 (Python 3.7) and under fluidtool."""


def _classified(fluid, features):
    label = fluid.layers.data("y", [1], dtype="int64")
    out = fluid.layers.fc(features, 10, act="softmax")
    return fluid.layers.mean(fluid.layers.cross_entropy(out, label))


def mlp(fluid, **attrs):
    """x [200] -> 300 -> 200 -> 10."""
    hidden = fluid.layers.data("x", [200])
    for size in (300, 200):
        hidden = fluid.layers.fc(hidden, size, act="relu", **attrs)
    return _classified(fluid, hidden)


def small(fluid):
    """x [4] -> 4 -> 10: nothing to cut."""
    return _classified(fluid, fluid.layers.fc(fluid.layers.data("x", [4]), 4))


def frozen(fluid):
    """One layer that is not trained, one with a rate of its own."""
    hidden = fluid.layers.data("x", [100])
    for size, attr in ((300, {"trainable": False}), (90, {"learning_rate": 0.5})):
        hidden = fluid.layers.fc(hidden, size, param_attr=fluid.ParamAttr(**attr))
    return _classified(fluid, hidden)


def convolutions(fluid):
    """Two convolutions with batch_norm."""
    hidden = fluid.layers.data("x", [3, 16, 16])
    for filters in (32, 64):
        hidden = fluid.layers.batch_norm(fluid.layers.conv2d(hidden, filters, 3, bias_attr=False), act="relu")
    return _classified(fluid, fluid.layers.pool2d(hidden, 2, "max", 2))


def tables(fluid, names=("emb_a", "emb_b"), **options):
    """A bag of words for each table, of 1003 rows."""
    bags = []
    for index, name in enumerate(names):
        words = fluid.layers.data(f"words_{index}", [1], dtype="int64", lod_level=1)
        rows = fluid.layers.embedding(words, [1003, 17], param_attr=fluid.ParamAttr(name=name), **options)
        bags.append(fluid.layers.sequence_pool(rows, "sum"))
    return _classified(fluid, fluid.layers.concat(bags, axis=1))


def one_vocabulary(fluid):
    """Two sparse tables and a dense one, all asked for the same words."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    bags = []
    for name, width, is_sparse in (("a", 16, True), ("b", 1, True), ("c", 16, False)):
        attr = fluid.ParamAttr(name=name)
        rows = fluid.layers.embedding(words, [2000, width], is_sparse=is_sparse, param_attr=attr)
        bags.append(fluid.layers.sequence_pool(rows, "sum"))
    return _classified(fluid, bags)


def recurrent(fluid):
    """A sparse embedding and a GRU."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    rows = fluid.layers.embedding(words, [800, 64], is_sparse=True)
    hidden = fluid.layers.dynamic_gru(fluid.layers.fc(rows, 64 * 3), 64)
    return _classified(fluid, fluid.layers.sequence_pool(hidden, "last"))


def computed_ids(fluid):
    """One table looked up by ids that are fed and by ids that are computed."""
    fed = fluid.layers.data("ids", [1], dtype="int64")
    computed = fluid.layers.cast(fluid.layers.scale(fluid.layers.cast(fed, "float32"), 2.0), "int64")
    attr = fluid.ParamAttr(name="emb")
    rows = [fluid.layers.embedding(ids, [500, 40], is_sparse=True, param_attr=attr) for ids in (fed, computed)]
    return _classified(fluid, fluid.layers.concat(rows, axis=1))


def normal(fluid):
    """Random values of a given seed."""
    return mlp(fluid, param_attr=fluid.ParamAttr(initializer=fluid.initializer.Normal(0.0, 1.0, seed=5)))


# ---------------------------------------------------------------- optimizers
def sgd(fluid, rate=0.1, **options):
    return fluid.optimizer.SGD(rate, **options)


def adam(fluid, rate=0.1, **options):
    return fluid.optimizer.Adam(rate, **options)


def momentum(fluid, rate=0.1, **options):
    return fluid.optimizer.Momentum(rate, 0.9, **options)


def decayed(fluid, optimizer=sgd):
    return optimizer(fluid, fluid.layers.exponential_decay(0.1, 10, 0.5, True))


def l2(fluid, optimizer=sgd):
    return optimizer(fluid, regularization=fluid.regularizer.L2Decay(1e-4))


def l1(fluid, optimizer=momentum):
    return optimizer(fluid, regularization=fluid.regularizer.L1Decay(1e-4))


class Clipped:
    """SGD after set_gradient_clip."""

    def __init__(self, fluid, clip):
        self.fluid, self.clip = fluid, clip

    def minimize(self, loss):
        self.fluid.clip.set_gradient_clip(self.clip)
        l2(self.fluid, adam).minimize(loss)


class Averaged:
    """Momentum, and averages of the parameters."""

    def __init__(self, fluid):
        self.fluid = fluid

    def minimize(self, loss):
        momentum(self.fluid).minimize(loss)
        self.fluid.optimizer.ModelAverage(0.15, min_average_window=2, max_average_window=20)


# ---------------------------------------------------------------- jobs
def job(network, optimizer, servers=2, trainers=2, trainer_id=0, sync=True, **config):
    """What `dump.py` takes: the rest are attributes of DistributeTranspilerConfig."""
    arguments = {"servers": servers, "trainers": trainers, "trainer_id": trainer_id, "sync": sync}
    return network, optimizer, arguments, config


def _sparse(fluid):
    return tables(fluid, is_sparse=True)


def _shared(fluid):
    return tables(fluid, ("emb", "emb"), is_sparse=True)


SPLIT = {"sync_mode": False, "runtime_split_send_recv": True}
GEO = {"sync_mode": False, "geo_sgd_mode": True}
JOBS = {
    "lars": job(mlp, lambda f: f.optimizer.LarsMomentum(0.1, 0.9), 3, 2),
    "nesterov": job(mlp, lambda f: momentum(f, use_nesterov=True), 4, 1, sync=False),
    "dpsgd": job(mlp, lambda f: f.optimizer.Dpsgd(0.1), 2, 3, 2),
    "rmsprop": job(mlp, lambda f: f.optimizer.RMSProp(0.1, momentum=0.5), 3, 2, sync=False),
    "rmsprop_centered": job(mlp, lambda f: f.optimizer.RMSProp(0.1, centered=True), 3, 2),
    "adamax_async": job(mlp, lambda f: f.optimizer.Adamax(0.1), 2, 2, 1, False),
    "parameter_rates": job(frozen, momentum, 3, 2, 1),
    "nothing_to_cut": job(small, sgd, 5, 2),
    "larger_blocks": job(mlp, l1, 5, 7, 6, min_block_size=16384),
    "convolutions": job(convolutions, lambda f: l2(f, momentum), 3, 2),
    "convolutions_whole": job(convolutions, adam, 4, 2, slice_var_up=False),
    "normal_values": job(normal, adam, 3, 2),
    "natural_exp": job(mlp, lambda f: sgd(f, f.layers.natural_exp_decay(0.1, 10, 0.5)), 2, 3, 2, False),
    "inverse_time": job(mlp, lambda f: sgd(f, f.layers.inverse_time_decay(0.1, 10, 0.5)), 2, 2),
    "polynomial_cycle": job(
        mlp, lambda f: momentum(f, f.layers.polynomial_decay(0.1, 10, cycle=True)), 2, 2, sync=False
    ),
    "piecewise_async": job(
        mlp, lambda f: sgd(f, f.layers.piecewise_decay([10, 20], [0.1, 0.01, 0.001])), 2, 2, 1, False
    ),
    "cosine": job(mlp, lambda f: adam(f, f.layers.cosine_decay(0.1, 10, 10)), 3, 4, 3),
    "clip_by_value": job(mlp, lambda f: Clipped(f, f.clip.GradientClipByValue(0.5)), 3, 2),
    "clip_by_norm": job(mlp, lambda f: Clipped(f, f.clip.GradientClipByNorm(1.0)), 2, 2, sync=False),
    "clip_by_global_norm": job(_sparse, lambda f: Clipped(f, f.clip.GradientClipByGlobalNorm(1.0)), 2, 2, 1),
    "averages": job(mlp, Averaged, 3, 2),
    "sparse_adam_lazy": job(_sparse, lambda f: adam(f, lazy_mode=True), 3, 3, 1),
    "sparse_l2": job(_sparse, l2, 2, 2),
    "sparse_decayed": job(_sparse, lambda f: decayed(f, adam), 3, 2, sync=False),
    "sparse_whole": job(_shared, sgd, 3, 2, slice_var_up=False),
    "dense_tables": job(tables, adam, 2, 2),
    "shared_table_split": job(_shared, lambda f: f.optimizer.Adagrad(0.1), 3, 2, 1, False, **SPLIT),
    "one_vocabulary": job(one_vocabulary, lambda f: decayed(f, adam), 2, 2, 1),
    "one_vocabulary_geo": job(one_vocabulary, adam, 3, 2, sync=False, **GEO),
    "geo_dense": job(mlp, lambda f: decayed(f, momentum), 2, 2, sync=False, **GEO),
    "recurrent": job(recurrent, lambda f: adam(f, f.layers.noam_decay(64, 100)), 2, 2),
    "computed_ids": job(computed_ids, sgd, 2, 2),
    "half_async": job(mlp, lambda f: decayed(f, adam), 2, 2, 1, False, half_async=True, **SPLIT),
    "not_async": job(mlp, adam, 2, 2, 1, False, half_async=True, completely_not_async=True, **SPLIT),
    "delay_compensation": job(mlp, adam, 2, 2, sync=False, enable_dc_asgd=True),
    "threads": job(mlp, lambda f: l2(f, momentum), mode="collective", collective_mode="single_process_multi_thread"),
}
