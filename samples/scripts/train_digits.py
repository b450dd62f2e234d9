"""Train a small convolutional network on the digits and save it for inference (PaddlePaddle 1.8).

Usage: python train_digits.py DATA_FOLDER OUT_FOLDER, where DATA_FOLDER holds what prepare_data.py wrote.
"""

import os
import sys

import numpy as np
import paddle.fluid as fluid

data_folder, out_folder = sys.argv[1:]
data = np.load(os.path.join(data_folder, "digits.npz"))
fluid.default_main_program().random_seed = 1
fluid.default_startup_program().random_seed = 1


def conv_bn(input, filters):
    conv = fluid.layers.conv2d(input, num_filters=filters, filter_size=3, padding=1, bias_attr=False)
    return fluid.layers.batch_norm(conv, act="relu")


image = fluid.data("image", [None, 1, 8, 8], "float32")
label = fluid.data("label", [None, 1], "int64")
hidden = conv_bn(image, 16)
hidden = conv_bn(hidden, 32)
hidden = fluid.layers.pool2d(hidden, pool_size=2, pool_stride=2, pool_type="max")
probability = fluid.layers.fc(hidden, size=10, act="softmax")
loss = fluid.layers.mean(fluid.layers.cross_entropy(probability, label))
accuracy = fluid.layers.accuracy(probability, label)
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.Adam(learning_rate=0.002).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
random = np.random.RandomState(1)
for epoch in range(12):
    order = random.permutation(len(data["train_images"]))
    for start in range(0, len(order) - 63, 64):
        batch = order[start : start + 64]
        feed = {"image": data["train_images"][batch], "label": data["train_labels"][batch]}
        exe.run(feed=feed, fetch_list=[loss])
    feed = {"image": data["test_images"], "label": data["test_labels"]}
    result = exe.run(test_program, feed=feed, fetch_list=[loss, accuracy])
    print(f"epoch {epoch}: test loss {result[0].item():.4f}, accuracy {result[1].item():.4f}")

fluid.io.save_inference_model(out_folder, ["image"], [probability], exe, main_program=test_program)

program, feeds, fetches = fluid.io.load_inference_model(out_folder, exe)
images, labels = data["test_images"][:8], data["test_labels"][:8]
outputs = exe.run(program, feed={feeds[0]: images}, fetch_list=fetches)
np.save(os.path.join(out_folder, "x.npy"), images)
np.save(os.path.join(out_folder, "labels.npy"), labels)
np.savez(os.path.join(out_folder, "expected.npz"), **{fetches[0].name: outputs[0]})
