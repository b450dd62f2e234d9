# ruff: noqa: UP031
# An old script, which also runs on Paddle 1.8.5.

import sys

import numpy
import paddle
import paddle.fluid as fluid


def main(passes):
    x = fluid.layers.data(name="x", shape=[13], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    y_predict = fluid.layers.fc(input=x, size=1, act=None)
    cost = fluid.layers.square_error_cost(input=y_predict, label=y)
    avg_cost = fluid.layers.mean(cost)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(learning_rate=0.05).minimize(avg_cost)

    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    feeder = fluid.DataFeeder(place=place, feed_list=[x, y])
    train_reader = paddle.batch(paddle.reader.shuffle(paddle.dataset.uci_housing.train(), buf_size=500), batch_size=20)
    test_reader = paddle.batch(paddle.dataset.uci_housing.test(), batch_size=20)
    exe.run(fluid.default_startup_program())

    for pass_id in range(passes):
        for data in train_reader():
            exe.run(fluid.default_main_program(), feed=feeder.feed(data), fetch_list=[avg_cost])
        losses = [exe.run(test_program, feed=feeder.feed(data), fetch_list=[avg_cost])[0] for data in test_reader()]
        print("pass %d, test cost %.3f" % (pass_id, numpy.mean(losses)))

    fluid.io.save_inference_model(sys.argv[2], ["x"], [y_predict], exe)


if __name__ == "__main__":
    main(int(sys.argv[1]))
