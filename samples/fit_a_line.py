"""Linear regression: house prices from 13 features, one fully connected layer trained by SGD.

Usage: python fit_a_line.py [--epochs N] [--small] [--out FOLDER]

The houses are made up: a price is a weighted sum of the features, plus noise of standard deviation 0.5.
"""

import common
import numpy as np

import fluidtool.fluid as fluid

FEATURES = 13


def houses(count, seed):
    """A reader of (features, [price])."""
    weights = np.random.RandomState(0).normal(0, 2, FEATURES)

    def reader():
        draw = np.random.RandomState(seed)
        for _ in range(count):
            features = draw.uniform(-1, 1, FEATURES)
            yield features.astype("float32"), [22.5 + features.dot(weights) + draw.normal(0, 0.5)]

    return reader


def train(options, place):
    x = fluid.layers.data(name="x", shape=[FEATURES], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    y_predict = fluid.layers.fc(input=x, size=1)
    cost = fluid.layers.square_error_cost(input=y_predict, label=y)
    avg_cost = fluid.layers.mean(cost)
    fluid.optimizer.SGD(learning_rate=0.05).minimize(avg_cost)

    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=[x, y], place=place)
    reader = fluid.io.batch(fluid.io.shuffle(houses(400, seed=1), buf_size=500), batch_size=20)
    for epoch in range(options.epochs):
        losses = [exe.run(feed=feeder.feed(batch), fetch_list=[avg_cost])[0].item() for batch in reader()]
        if epoch % 5 == 0 or epoch == options.epochs - 1:
            print(f"epoch {epoch}: loss {np.mean(losses):.4f}")
    fluid.io.save_inference_model(options.out, ["x"], [y_predict], exe)


def infer(options, place):
    exe = fluid.Executor(place)
    with fluid.scope_guard(fluid.Scope()):
        program, feed_names, fetches = fluid.io.load_inference_model(options.out, exe)
        samples = list(houses(100, seed=2)())
        feed = {feed_names[0]: np.array([features for features, _ in samples])}
        outputs = exe.run(program, feed=feed, fetch_list=fetches)
    prices = np.array([price for _, price in samples])
    common.save_example(options.out, feed, [fetch.name for fetch in fetches], outputs)
    common.report("mean squared error", np.mean((outputs[0] - prices) ** 2), 0.35, at_most=True)


def main():
    options = common.options(__doc__, epochs=30, epochs_of_small=15)
    fluid.default_startup_program().random_seed = 1
    place = fluid.CPUPlace()
    train(options, place)
    infer(options, place)


if __name__ == "__main__":
    main()
