"""Hand-drawn digits: softmax regression, a multi-layer perceptron, or a convolutional network.

Usage: python recognize_digits.py [--network conv|mlp|softmax] [--epochs N] [--small] [--out FOLDER]

The digits are made up: glyphs of 5 x 7 dots, drawn three times as large, somewhere near the middle of 28 x 28 pixels, under
noise, and with a weaker second digit's strokes on top.
"""

import common
import numpy as np

import fluidtool.fluid as fluid

WANTED = {"conv": 0.97, "mlp": 0.93, "softmax": 0.9}
# A row of a glyph is a number of five bits, seven rows a digit, from the top.
GLYPHS = [
    [14, 17, 19, 21, 25, 17, 14],
    [4, 12, 4, 4, 4, 4, 14],
    [14, 17, 1, 2, 4, 8, 31],
    [31, 2, 4, 2, 1, 17, 14],
    [2, 6, 10, 18, 31, 2, 2],
    [31, 16, 30, 1, 1, 17, 14],
    [6, 8, 16, 30, 17, 17, 14],
    [31, 1, 2, 4, 8, 8, 8],
    [14, 17, 17, 14, 17, 17, 14],
    [14, 17, 17, 15, 1, 2, 12],
]


def drawn(digit, draw):
    """28 x 28 pixels with a digit, moved by up to two of them each way."""
    rows = [[row >> bit & 1 for bit in (4, 3, 2, 1, 0)] for row in GLYPHS[digit]]
    glyph = np.kron(np.array(rows, "float32"), np.ones((3, 3), "float32"))
    top, left = draw.randint(1, 6), draw.randint(4, 9)
    image = np.zeros((28, 28), "float32")
    image[top : top + 21, left : left + 15] = glyph
    return image


def digits(count, seed):
    """A reader of (784 pixels from -1 to 1, digit)."""

    def reader():
        draw = np.random.RandomState(seed)
        for _ in range(count):
            digit = draw.randint(10)
            image = drawn(digit, draw) + 0.3 * drawn(draw.randint(10), draw) + draw.normal(0, 0.3, (28, 28))
            yield (2 * np.clip(image, 0, 1) - 1).astype("float32").reshape(784), digit

    return reader


def softmax_regression(img):
    return fluid.layers.fc(input=img, size=10, act="softmax")


def multilayer_perceptron(img):
    hidden = fluid.layers.fc(input=img, size=64, act="relu")
    hidden = fluid.layers.fc(input=hidden, size=64, act="relu")
    return fluid.layers.fc(input=hidden, size=10, act="softmax")


def convolutional_neural_network(img, filters=(20, 50)):
    conv_pool = fluid.nets.simple_img_conv_pool(
        input=img, filter_size=5, num_filters=filters[0], pool_size=2, pool_stride=2, act="relu"
    )
    conv_pool = fluid.layers.batch_norm(conv_pool)
    conv_pool = fluid.nets.simple_img_conv_pool(
        input=conv_pool, filter_size=5, num_filters=filters[1], pool_size=2, pool_stride=2, act="relu"
    )
    return fluid.layers.fc(input=conv_pool, size=10, act="softmax")


def train(options, place):
    img = fluid.layers.data(name="img", shape=[1, 28, 28], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    if options.network == "softmax":
        prediction = softmax_regression(img)
    elif options.network == "mlp":
        prediction = multilayer_perceptron(img)
    else:
        prediction = convolutional_neural_network(img, (6, 12) if options.small else (20, 50))
    avg_cost = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
    accuracy = fluid.layers.accuracy(input=prediction, label=label)
    fluid.optimizer.Adam(learning_rate=0.004).minimize(avg_cost)

    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=[img, label], place=place)
    samples = digits(1000 if options.small else 2000, seed=1)
    reader = fluid.io.batch(fluid.io.shuffle(samples, buf_size=2000), batch_size=50)
    for epoch in range(options.epochs):
        results = [exe.run(feed=feeder.feed(batch), fetch_list=[avg_cost, accuracy]) for batch in reader()]
        loss, right = np.mean(results, axis=0).ravel()
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {right:.4f}")
    fluid.io.save_inference_model(options.out, ["img"], [prediction], exe)


def infer(options, place):
    exe = fluid.Executor(place)
    with fluid.scope_guard(fluid.Scope()):
        program, feed_names, fetches = fluid.io.load_inference_model(options.out, exe)
        samples = list(digits(200, seed=2)())
        feed = {feed_names[0]: np.array([image for image, _ in samples]).reshape(-1, 1, 28, 28)}
        outputs = exe.run(program, feed=feed, fetch_list=fetches)
    labels = np.array([label for _, label in samples])
    common.save_example(options.out, feed, [fetch.name for fetch in fetches], outputs)
    common.report("accuracy", np.mean(outputs[0].argmax(axis=1) == labels), WANTED[options.network])


def main():
    options = common.options(__doc__, epochs=4, epochs_of_small=5, networks=("conv", "mlp", "softmax"))
    fluid.default_startup_program().random_seed = 1
    place = fluid.CPUPlace()
    train(options, place)
    infer(options, place)


if __name__ == "__main__":
    main()
