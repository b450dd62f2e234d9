"""Write the programs that train the network of train_digits.py, and data for them (PaddlePaddle 1.8).

Usage: python digits_training.py DATA_FOLDER OUT_FOLDER, where DATA_FOLDER holds what prepare_data.py wrote.
"""

import os
import sys

import numpy as np
import paddle.fluid as fluid

data_folder, out_folder = sys.argv[1:]
data = np.load(os.path.join(data_folder, "digits.npz"))


def conv_bn(input, filters):
    conv = fluid.layers.conv2d(input, num_filters=filters, filter_size=3, padding=1, bias_attr=False)
    return fluid.layers.batch_norm(conv, act="relu")


image = fluid.data("image", [None, 1, 8, 8], "float32")
label = fluid.data("label", [None, 1], "int64")
hidden = conv_bn(image, 16)
hidden = conv_bn(hidden, 32)
hidden = fluid.layers.pool2d(hidden, pool_size=2, pool_stride=2, pool_type="max")
hidden = fluid.layers.dropout(hidden, dropout_prob=0.3)
probability = fluid.layers.fc(hidden, size=10, act="softmax")
loss = fluid.layers.mean(fluid.layers.cross_entropy(probability, label))
accuracy = fluid.layers.accuracy(probability, label)
fluid.optimizer.Adam(learning_rate=0.002).minimize(loss)
print("probability", probability.name, "loss", loss.name, "accuracy", accuracy.name)

os.makedirs(out_folder, exist_ok=True)
for name, program in [("main.pb", fluid.default_main_program()), ("startup.pb", fluid.default_startup_program())]:
    with open(os.path.join(out_folder, name), "wb") as file:
        file.write(program.desc.serialize_to_string())
np.savez_compressed(
    os.path.join(out_folder, "data.npz"), image=data["train_images"][:512], label=data["train_labels"][:512]
)
