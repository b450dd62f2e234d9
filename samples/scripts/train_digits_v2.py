"""Train a perceptron on the digits and save it in the format of PaddlePaddle 2 (PaddlePaddle 2.6).

Usage: python train_digits_v2.py DATA_FOLDER OUT_FOLDER, where DATA_FOLDER holds what prepare_data.py wrote.
"""

import sys
import zlib  # noqa: F401  (PaddlePaddle 2.6.2 must not be the first to load the system's zlib)
from pathlib import Path

import numpy as np
import paddle

data_folder, out_folder = map(Path, sys.argv[1:])
data = np.load(data_folder / "digits.npz")
paddle.enable_static()
paddle.seed(1)

image = paddle.static.data("image", [None, 1, 8, 8], "float32")
label = paddle.static.data("label", [None, 1], "int64")
hidden = paddle.static.nn.fc(image, size=128)
hidden = paddle.nn.functional.gelu(hidden)
hidden = paddle.static.nn.fc(hidden, size=32, activation="relu")
logits = paddle.static.nn.fc(hidden, size=10)
probability = paddle.nn.functional.softmax(logits)
loss = paddle.nn.functional.cross_entropy(logits, label)
test_program = paddle.static.default_main_program().clone(for_test=True)
paddle.optimizer.Adam(learning_rate=0.001).minimize(loss)

exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(paddle.static.default_startup_program())
random = np.random.RandomState(1)
for epoch in range(30):
    order = random.permutation(len(data["train_images"]))
    for start in range(0, len(order) - 63, 64):
        batch = order[start : start + 64]
        feed = {"image": data["train_images"][batch], "label": data["train_labels"][batch]}
        exe.run(feed=feed, fetch_list=[loss])
    feed = {"image": data["test_images"], "label": data["test_labels"]}
    found = exe.run(test_program, feed=feed, fetch_list=[probability])[0].argmax(axis=1)
    print(f"epoch {epoch}: test accuracy {(found == data['test_labels'][:, 0]).mean():.4f}")

out_folder.mkdir(parents=True, exist_ok=True)
prefix = str(out_folder / "model")
paddle.static.save_inference_model(prefix, [image], [probability], exe, program=test_program)

program, feeds, fetches = paddle.static.load_inference_model(prefix, exe)
images, labels = data["test_images"][:8], data["test_labels"][:8]
outputs = exe.run(program, feed={feeds[0]: images}, fetch_list=fetches)
np.save(out_folder / "x.npy", images)
np.save(out_folder / "labels.npy", labels)
np.savez(out_folder / "expected.npz", **{fetches[0].name: outputs[0]})
