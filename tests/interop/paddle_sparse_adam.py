"""Which rows Adam with a sparse gradient treats wrongly in Paddle 1.8.5 alone: `PYTHON paddle_sparse_adam.py [STEPS]`.

Its loop over the rows of the table compares with the next row number of the gradient, and after the last one with what lies
behind the row numbers in memory. A row of that number takes a gradient from behind the gradient. Each step is compared with
the formula, from the moments before it.
"""

import sys

import numpy as np
import paddle.fluid as fluid

ROWS, WIDTH, MOST = 200, 4, 12


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    ids = fluid.layers.data("ids", [1], dtype="int64")
    attr = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.3))
    loss = fluid.layers.reduce_sum(fluid.layers.embedding(ids, [ROWS, WIDTH], is_sparse=True, param_attr=attr))
    fluid.optimizer.Adam(0.01).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    (moment,) = [name for name in fluid.default_main_program().global_block().vars if "moment1" in name]
    tensor = fluid.global_scope().find_var(moment).get_tensor()
    random, wrong, behind = np.random.RandomState(0), 0, 0
    for step in range(steps):
        batch = random.randint(0, ROWS, (random.randint(1, MOST), 1))
        gradient = np.zeros((ROWS, WIDTH))
        np.add.at(gradient, batch[:, 0], 1.0)
        expected = 0.9 * np.array(tensor) + 0.1 * gradient
        executor.run(feed={"ids": batch})
        found = np.flatnonzero(np.abs(np.array(tensor) - expected).max(1) > 1e-5)
        wrong, behind = wrong + len(found), behind + int((found > batch.max()).sum())
        if len(found):
            print("step", step, "ids", np.unique(batch).tolist(), "rows that differ", found.tolist())
    print(steps, "steps:", wrong, "rows differ,", behind, "of them come after the last id of their step")


if __name__ == "__main__":
    main()
