"""Train a word-sequence classifier on docstring paragraphs and save it for inference (PaddlePaddle 1.8).

Usage: python train_topics.py DATA_FOLDER OUT_FOLDER, where DATA_FOLDER holds what prepare_data.py wrote.

The program and all parameters go into one file each (`model`, `params`).
"""

import json
import os
import sys

import numpy as np
import paddle.fluid as fluid

data_folder, out_folder = sys.argv[1:]
data = np.load(os.path.join(data_folder, "topics.npz"))
fluid.default_main_program().random_seed = 1
fluid.default_startup_program().random_seed = 1
place = fluid.CPUPlace()


class Paragraphs:
    """One part of the data: its paragraphs as id arrays [n, 1], and their labels."""

    def __init__(self, part):
        ends = np.cumsum(data[part + "_lengths"])
        self.paragraphs = np.split(data[part + "_words"], ends[:-1])
        self.labels = data[part + "_labels"]

    def batch(self, indexes):
        chosen = [self.paragraphs[i] for i in indexes]
        words = fluid.create_lod_tensor(np.concatenate(chosen), [[len(p) for p in chosen]], place)
        return {"words": words, "label": self.labels[indexes]}


words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
label = fluid.layers.data("label", [1], dtype="int64")
embedding = fluid.layers.embedding(words, size=[len(data["vocabulary"]), 24])
embedding = fluid.layers.dropout(embedding, 0.5, dropout_implementation="upscale_in_train")
projected = fluid.layers.fc(embedding, size=4 * 24)
hidden, _ = fluid.layers.dynamic_lstm(projected, size=4 * 24, use_peepholes=True)
read = fluid.layers.sequence_pool(hidden, "max")
phrases = fluid.nets.sequence_conv_pool(embedding, num_filters=24, filter_size=3, act="tanh", pool_type="max")
probability = fluid.layers.fc([read, phrases], size=len(data["topics"]), act="softmax")
loss = fluid.layers.mean(fluid.layers.cross_entropy(probability, label))
accuracy = fluid.layers.accuracy(probability, label)
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.Adam(learning_rate=0.002).minimize(loss)

exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())
random = np.random.RandomState(1)
train, test = Paragraphs("train"), Paragraphs("test")
for epoch in range(6):
    order = random.permutation(len(train.paragraphs))
    for start in range(0, len(order) - 31, 32):
        exe.run(feed=train.batch(order[start : start + 32]), fetch_list=[loss])
    result = exe.run(test_program, feed=test.batch(np.arange(len(test.paragraphs))), fetch_list=[loss, accuracy])
    print(f"epoch {epoch}: test loss {result[0].item():.4f}, accuracy {result[1].item():.4f}")

fluid.io.save_inference_model(
    out_folder, ["words"], [probability], exe, test_program, model_filename="model", params_filename="params"
)

program, feeds, fetches = fluid.io.load_inference_model(out_folder, exe, "model", "params")
chosen = np.random.RandomState(2).choice(len(test.paragraphs), 6, replace=False)
feed = test.batch(chosen)
outputs = exe.run(program, feed={"words": feed["words"]}, fetch_list=fetches)
np.savez(os.path.join(out_folder, "feed.npz"), words=np.array(feed["words"]))
with open(os.path.join(out_folder, "lod.json"), "w") as stream:
    json.dump({"words": feed["words"].recursive_sequence_lengths()}, stream)
    stream.write("\n")
np.save(os.path.join(out_folder, "labels.npy"), feed["label"])
np.savez(os.path.join(out_folder, "expected.npz"), **{fetches[0].name: outputs[0]})
for name in ("vocabulary", "topics"):
    with open(os.path.join(out_folder, name + ".txt"), "w") as stream:
        stream.writelines(word + "\n" for word in data[name])
