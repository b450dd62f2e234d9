"""Trains from text files, and shows losses and parameters: `PYTHON dataset_script.py` in an empty folder.

Real Paddle 1.8.5 runs it as it is, fluidtool with `fluidtool exec`.
"""

import sys

import numpy as np
import paddle.fluid as fluid

random = np.random.RandomState(0)


def write(path, count):
    """`count` samples of up to three words (0 among them), three numbers and a label."""
    with open(path, "w") as file:
        for index in range(count):
            words = random.randint(0, 20, random.randint(1, 4))
            dense = " ".join(map("{:.4f}".format, random.randn(3)))
            file.write(f"{len(words)} {' '.join(map(str, words))} 3 {dense} 1 {index % 2}\n")


def build():
    """(inputs, loss, cross entropies): a bag of words beside dense numbers, Momentum."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    dense = fluid.layers.data("dense", [3], dtype="float32")
    label = fluid.layers.data("label", [1], dtype="int64")
    constant = fluid.initializer.Constant
    embedded = fluid.layers.embedding(words, [20, 4], param_attr=fluid.ParamAttr(initializer=constant(0.1)))
    pooled = fluid.layers.sequence_pool(embedded, "sum")
    attr = fluid.ParamAttr(initializer=constant(0.3))
    probability = fluid.layers.fc([pooled, dense], 2, act="softmax", param_attr=attr)
    entropies = fluid.layers.cross_entropy(probability, label)
    loss = fluid.layers.mean(entropies)
    fluid.optimizer.Momentum(0.1, momentum=0.9).minimize(loss)
    return [words, dense, label], loss, entropies


def open_dataset(kind, files, inputs):
    """Batches of three; a pipe command changes a word."""
    dataset = fluid.DatasetFactory().create_dataset(kind)
    dataset.set_use_var(inputs)
    dataset.set_batch_size(3)
    dataset.set_filelist(files)
    dataset.set_pipe_command("sed s/19/18/g")
    if kind == "InMemoryDataset":
        dataset.load_into_memory()
        print("samples", dataset.get_memory_data_size())
    print(dataset.desc())
    sys.stdout.flush()  # Paddle writes variables past Python's buffer
    return dataset


def run(kind, files):
    """Train twice and infer once from a data set of this kind; show what is fetched, the parameters, a loader's batches."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        inputs, loss, entropies = build()
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        dataset = open_dataset(kind, files, inputs)
        fetches = {"fetch_list": [loss, entropies, *inputs], "fetch_info": ["loss", "each", "words", "dense", "label"]}
        for _ in range(2):
            executor.train_from_dataset(main, dataset, print_period=1, **fetches)
        executor.infer_from_dataset(main, dataset, print_period=2, **fetches)
        for var in sorted(main.list_vars(), key=lambda var: var.name):
            if var.persistable and var.name.startswith(("fc", "embedding")):
                values = np.array(fluid.global_scope().find_var(var.name).get_tensor())
                print(var.name, " ".join(map("{:.6g}".format, values.ravel())))
        loader = fluid.io.DataLoader.from_dataset(open_dataset(kind, files, inputs), fluid.cpu_places(1), True)
        for (feed,) in loader():
            for name in sorted(feed):
                print(name, feed[name].lod(), np.array(feed[name]).ravel().tolist())
        sys.stdout.flush()


write("first.txt", 7)
write("second.txt", 6)
run("QueueDataset", ["first.txt", "second.txt"])
run("InMemoryDataset", ["first.txt", "second.txt"])
