"""Networks of activations and elementary functions."""


def net_without_attributes(fluid):
    L = fluid.layers
    x = L.data("x", [4])
    for name in (
        "sigmoid logsigmoid exp tanh atan tanh_shrink sqrt rsqrt abs ceil floor cos acos asin sin round reciprocal square "
        "softplus softsign log relu erf log1p gelu sign"
    ).split():
        getattr(L, name)(x)


def net_with_attributes(fluid):
    L = fluid.layers
    x = L.data("x", [4])
    L.softshrink(x, alpha=0.3)
    L.hard_shrink(x, threshold=0.2)
    L.thresholded_relu(x)
    L.cumsum(x, axis=1, exclusive=True, reverse=True)
    L.relu6(x, 5.0)
    L.elu(x, 0.5)
    L.selu(x, scale=1.1)
    L.stanh(x)
    L.hard_sigmoid(x, slope=0.3)
    L.hard_swish(x)
    L.swish(x, 2.0)
    L.mish(x)
    L.brelu(x, 1.0, 3.0)
    L.leaky_relu(x, alpha=0.1)
    L.soft_relu(x)
    L.pow(x, 2.0)
    L.pow(x, L.fill_constant([1], "float32", 3.0))
    L.gelu(x, True)


def net_of_images(fluid):
    L = fluid.layers
    x = L.data("x", [4, 3, 3])
    L.maxout(x, 2)
    L.prelu(x, "channel")
    L.prelu(x, "all", param_attr=fluid.ParamAttr(name="alpha"))
    L.prelu(x, "element")
    L.softmax(x, axis=1)
    L.log_softmax(x, axis=-1)
    L.log_softmax(x, dtype="float64")
