# ruff: noqa: UP031
# An old script, which also runs on Paddle 1.8.5.

import numpy
import paddle
import paddle.dataset.mnist as mnist
import paddle.fluid as fluid
import paddle.fluid.layers as layers
from paddle.fluid.param_attr import ParamAttr

BATCH_SIZE = 64

img = layers.data(name="pixel", shape=[1, 28, 28], dtype="float32")
label = layers.data(name="label", shape=[1], dtype="int64")
conv = layers.conv2d(input=img, filter_size=5, num_filters=4, act="relu")
pool = layers.pool2d(input=conv, pool_size=2, pool_stride=2)
predict = layers.fc(input=pool, size=10, act="softmax", param_attr=ParamAttr(name="out.w"))
avg_cost = layers.mean(layers.cross_entropy(input=predict, label=label))
accuracy = layers.accuracy(input=predict, label=label)
inference_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.AdamOptimizer(learning_rate=0.001).minimize(avg_cost)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())
feeder = fluid.DataFeeder(feed_list=[img, label], place=place)
train_reader = paddle.batch(paddle.reader.firstn(mnist.train(), 1024), batch_size=BATCH_SIZE)
test_reader = paddle.batch(paddle.reader.firstn(mnist.test(), 256), batch_size=BATCH_SIZE)

for batch in train_reader():
    exe.run(feed=feeder.feed(batch), fetch_list=[avg_cost, accuracy])
found = [exe.run(inference_program, feed=feeder.feed(batch), fetch_list=[accuracy])[0] for batch in test_reader()]
print("accuracy %.3f" % numpy.mean(found))
