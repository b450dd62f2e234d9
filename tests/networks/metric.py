"""Networks of scores."""


def net_accuracy(fluid):
    x = fluid.layers.data("x", [5])
    fluid.layers.accuracy(x, fluid.layers.data("label", [1], dtype="int64"))


def net_accuracy_of_three(fluid):
    x = fluid.layers.fc(fluid.layers.data("x", [5]), 6, act="softmax")
    label = fluid.layers.data("label", [1], dtype="int64")
    correct = fluid.layers.create_tensor("int32", name="correct")
    total = fluid.layers.create_tensor("int32", name="total")
    fluid.layers.accuracy(x, label, 3, correct, total)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.cross_entropy(x, label)))


def net_auc(fluid):
    fluid.layers.auc(fluid.layers.data("x", [2]), fluid.layers.data("label", [1], dtype="int64"))


def net_auc_of_pr_over_batches(fluid):
    x, label = fluid.layers.data("x", [2]), fluid.layers.data("label", [1], dtype="int64")
    fluid.layers.auc(x, label, curve="PR", num_thresholds=31, slide_steps=5)


def net_mean_iou(fluid):
    x, label = (fluid.layers.data(name, [8, 8], dtype="int32") for name in ("x", "label"))
    fluid.layers.mean_iou(x, label, 4)
