"""Image classification: a VGG or a ResNet, as for CIFAR-10.

Usage: python image_classification.py [--network resnet|vgg] [--epochs N] [--small] [--out FOLDER]

The images are made up: 3 x 32 x 32 pixels with stripes whose direction, width and color depend on the class, but none of
the three alone, in any phase and under noise.
"""

import common
import numpy as np

import fluidtool.fluid as fluid

CLASSES = 8


def images(count, seed):
    """A reader of (3072 pixels around 0, class); the bits of a class are the direction, the width, and the color."""
    rows, columns = np.mgrid[0:32, 0:32]

    def reader():
        draw = np.random.RandomState(seed)
        for _ in range(count):
            label = draw.randint(CLASSES)
            along = rows + columns if label & 1 else rows - columns
            stripes = np.sin(along * (1.1 if label & 2 else 0.55) + draw.uniform(0, 6.28))
            color = np.array([1, 0.2, 0.5] if label & 4 else [0.2, 1, 0.5]) * draw.uniform(0.6, 1.4)
            pixels = color[:, None, None] * stripes + draw.normal(0, 0.5, (3, 32, 32))
            yield pixels.astype("float32").reshape(3072), label

    return reader


def conv_bn_layer(input, ch_out, filter_size, stride, padding, act="relu"):
    conv = fluid.layers.conv2d(
        input=input, num_filters=ch_out, filter_size=filter_size, stride=stride, padding=padding, bias_attr=False
    )
    return fluid.layers.batch_norm(input=conv, act=act)


def shortcut(input, ch_in, ch_out, stride):
    return input if ch_in == ch_out else conv_bn_layer(input, ch_out, 1, stride, 0, None)


def basicblock(input, ch_in, ch_out, stride):
    conv = conv_bn_layer(input, ch_out, 3, stride, 1)
    conv = conv_bn_layer(conv, ch_out, 3, 1, 1, act=None)
    return fluid.layers.elementwise_add(x=conv, y=shortcut(input, ch_in, ch_out, stride), act="relu")


def resnet(input, width, count):
    """A first convolution, and three groups of `count` blocks, each twice as wide as the one before."""
    hidden, ch_in = conv_bn_layer(input, width, 3, 1 if count > 1 else 2, 1), width
    for group in range(3):
        for block in range(count):
            hidden = basicblock(hidden, ch_in, width << group, 2 if block == 0 and group else 1)
            ch_in = width << group
    pool = fluid.layers.pool2d(input=hidden, pool_size=hidden.shape[2], pool_type="avg", pool_stride=1)
    return fluid.layers.fc(input=pool, size=CLASSES, act="softmax")


def vgg(input, width, count):
    """Three groups of `count` convolutions with dropout between them, and two fully connected layers."""
    hidden = input
    for group in range(3):
        hidden = fluid.nets.img_conv_group(
            input=hidden,
            conv_num_filter=[width << group] * count,
            conv_filter_size=3,
            conv_act="relu",
            conv_with_batchnorm=True,
            conv_batchnorm_drop_rate=[0.2] * (count - 1) + [0],
            pool_size=2,
            pool_stride=2,
            pool_type="max",
        )
    drop = fluid.layers.dropout(x=hidden, dropout_prob=0.3)
    fc = fluid.layers.fc(input=drop, size=width * 4, act=None)
    bn = fluid.layers.batch_norm(input=fc, act="relu")
    fc = fluid.layers.fc(input=fluid.layers.dropout(x=bn, dropout_prob=0.3), size=width * 4, act=None)
    return fluid.layers.fc(input=fc, size=CLASSES, act="softmax")


def train(options, place):
    pixels = fluid.layers.data(name="pixels", shape=[3, 32, 32], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    network = vgg if options.network == "vgg" else resnet
    predict = network(pixels, 4, 1) if options.small else network(pixels, 8, 2)
    avg_cost = fluid.layers.mean(fluid.layers.cross_entropy(input=predict, label=label))
    acc = fluid.layers.accuracy(input=predict, label=label)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.005).minimize(avg_cost)

    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=[pixels, label], place=place)
    samples = images(400 if options.small else 800, seed=1)
    reader = fluid.io.batch(fluid.io.shuffle(samples, buf_size=800), batch_size=32, drop_last=True)
    test_batch = feeder.feed(images(64, seed=3)())
    for epoch in range(options.epochs):
        for batch in reader():
            exe.run(feed=feeder.feed(batch), fetch_list=[avg_cost])
        loss, accuracy = exe.run(test_program, feed=test_batch, fetch_list=[avg_cost, acc])
        print(f"epoch {epoch}: test loss {loss.item():.4f}, accuracy {accuracy.item():.4f}")
    fluid.io.save_inference_model(options.out, ["pixels"], [predict], exe, test_program)


def infer(options, place):
    exe = fluid.Executor(place)
    with fluid.scope_guard(fluid.Scope()):
        program, feed_names, fetches = fluid.io.load_inference_model(options.out, exe)
        samples = list(images(128, seed=2)())
        feed = {feed_names[0]: np.array([pixels for pixels, _ in samples]).reshape(-1, 3, 32, 32)}
        outputs = exe.run(program, feed=feed, fetch_list=fetches)
    labels = np.array([label for _, label in samples])
    common.save_example(options.out, feed, [fetch.name for fetch in fetches], outputs)
    common.report("accuracy", np.mean(outputs[0].argmax(axis=1) == labels), 0.9)


def main():
    options = common.options(__doc__, epochs=5, epochs_of_small=7, networks=("resnet", "vgg"))
    fluid.default_main_program().random_seed = 1
    fluid.default_startup_program().random_seed = 1
    place = fluid.CPUPlace()
    train(options, place)
    infer(options, place)


if __name__ == "__main__":
    main()
