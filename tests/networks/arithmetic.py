"""Networks of arithmetic, comparisons, clips and reductions."""


def net_elementwise(fluid):
    L = fluid.layers
    x, y = L.data("x", [4, 5]), L.data("y", [4, 5])
    row = L.data("row", [5], append_batch_size=False)
    for name in ("add", "sub", "mul", "div", "max", "min", "pow"):
        getattr(L, "elementwise_" + name)(x, y)
    L.elementwise_add(x, row, axis=2, act="relu")
    a, b = L.cast(x, "int64"), L.cast(y, "int64")
    L.elementwise_mod(a, b)
    L.elementwise_floordiv(a, b)
    L.elementwise_equal(x, y)


def net_operators_of_variables(fluid):
    L = fluid.layers
    x, y = L.data("x", [4]), L.data("y", [4])
    x + y
    x - 1.0
    2.0 - x
    x * 3
    x / 2.0
    1.0 / x
    x / y
    -x
    x**y
    x < y
    x >= y
    x == y
    n = L.cast(x, "int64")
    n + 1
    n // L.cast(y, "int64")
    x.astype("float64")
    fixed = L.fill_constant([2, 3], "float32", 1.0)
    1.0 / fixed


def net_comparisons(fluid):
    L = fluid.layers
    x, y = L.data("x", [4]), L.data("y", [4])
    a = L.less_than(x, y)
    b = L.less_than(x, y, force_cpu=True)
    L.less_equal(x, y)
    L.greater_than(x, y)
    L.greater_equal(x, y)
    L.equal(x, y, cond=a)
    L.not_equal(x, y)
    L.logical_and(a, b)
    L.logical_or(a, b)
    L.logical_xor(a, b, out=a)
    L.logical_not(b)
    L.allclose(x, y)


def net_products(fluid):
    L = fluid.layers
    x, y = L.data("x", [2, 3, 4], append_batch_size=False), L.data("y", [2, 4, 5], append_batch_size=False)
    L.matmul(x, y, alpha=0.5)
    L.matmul(x, x, transpose_y=True)
    L.bmm(x, y)
    L.mul(x, L.data("w", [12, 5], append_batch_size=False))
    a, b = L.data("a", [3]), L.data("b", [3])
    L.dot(a, b)
    L.cross(a, b)
    L.dist(a, b, p=1)
    L.kron(a, b)
    L.cos_sim(a, b)
    m = L.data("m", [3, 3], append_batch_size=False)
    L.addmm(m, m, m, alpha=2.0)
    L.addcmul(a, a, b, value=0.5)


def net_sums_and_clips(fluid):
    L = fluid.layers
    x, y = L.data("x", [4]), L.data("y", [4])
    L.mean(x)
    L.sums([x, y])
    L.sum([x, y])
    L.scale(x, 2.0, 1.0, bias_after_scale=False, act="tanh")
    L.scale(x, L.fill_constant([1], "float32", 2.0))
    L.clip(x, -1.0, 1.0)
    L.clip_by_norm(x, 2.0)
    L.clamp(x, min=0.5, max=L.fill_constant([1], "float32", 2.0))


def net_reductions(fluid):
    L = fluid.layers
    x = L.data("x", [4, 5])
    for name in ("sum", "mean", "max", "min", "prod"):
        getattr(L, "reduce_" + name)(x)
        getattr(L, "reduce_" + name)(x, dim=1, keep_dim=True)
        getattr(L, "reduce_" + name)(x, dim=[1, 2])
    flag = L.less_than(x, x)
    L.reduce_all(flag, dim=-1)
    L.reduce_any(flag)
    L.logsumexp(x, 1)
    L.argmin(x, 1)
    L.argmax(x)
    L.argsort(x, axis=1, descending=True)
    L.topk(x, 2)
    L.isfinite(x)


def net_topk_of_a_tensor(fluid):
    x = fluid.layers.data("x", [4, 5])
    fluid.layers.topk(x, fluid.layers.fill_constant([1], "int32", 2))


def net_has_inf(fluid):
    x = fluid.layers.data("x", [4, 5])
    fluid.layers.has_inf(x)
    fluid.layers.has_nan(x)
