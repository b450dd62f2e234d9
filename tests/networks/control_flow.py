"""Networks of loops, branches, arrays and ranked sequences."""


def _number(fluid, value, dtype="int64"):
    return fluid.layers.fill_constant([1], dtype, value)


def net_while(fluid):
    i, limit = _number(fluid, 0), _number(fluid, 10)
    cond = fluid.layers.less_than(x=i, y=limit)
    loop = fluid.layers.While(cond=cond)
    with loop.block():
        i = fluid.layers.increment(x=i, value=1, in_place=True)
        fluid.layers.less_than(x=i, y=limit, cond=cond)


def net_while_is_test(fluid):
    i, limit = _number(fluid, 0), _number(fluid, 10)
    total = fluid.layers.fill_constant([2, 3], "float32", 0.0)
    x = fluid.layers.data("x", [2, 3], append_batch_size=False)
    cond = fluid.layers.less_than(x=i, y=limit)
    with fluid.layers.While(cond, is_test=True, name="sum_loop").block():
        fluid.layers.assign(fluid.layers.elementwise_add(total, x), total)
        fluid.layers.increment(i)
        fluid.layers.less_than(i, limit, cond=cond)


def _array_loop(fluid):
    d0 = fluid.layers.data("d0", shape=[10], append_batch_size=False)
    d1 = fluid.layers.data("d1", shape=[10], append_batch_size=False)
    i = fluid.layers.zeros(shape=[1], dtype="int64")
    i.stop_gradient = True
    init = fluid.layers.zeros(shape=[10], dtype="float32")
    mem_array = fluid.layers.array_write(x=init, i=i)
    data_array = fluid.layers.array_write(x=d0, i=i)
    i = fluid.layers.increment(i)
    fluid.layers.array_write(d1, i, array=data_array)
    i = fluid.layers.zeros(shape=[1], dtype="int64")
    i.stop_gradient = True
    length = _number(fluid, 2)
    length.stop_gradient = True
    cond = fluid.layers.less_than(x=i, y=length)
    loop = fluid.layers.While(cond=cond)
    with loop.block():
        d = fluid.layers.array_read(array=data_array, i=i)
        prev = fluid.layers.array_read(array=mem_array, i=i)
        w = fluid.layers.create_parameter([10], "float32", name="w")
        result = fluid.layers.sums(input=[fluid.layers.elementwise_mul(d, w), prev])
        i = fluid.layers.increment(x=i, in_place=True)
        fluid.layers.array_write(result, i=i, array=mem_array)
        fluid.layers.less_than(x=i, y=length, cond=cond)
    return fluid.layers.mean(fluid.layers.array_read(array=mem_array, i=i))


def net_while_over_arrays(fluid):
    _array_loop(fluid)


def net_while_over_arrays_trained(fluid):
    loss = _array_loop(fluid)
    fluid.optimizer.SGD(0.1).minimize(loss)


def net_while_trained(fluid):
    x = fluid.layers.data("x", [4])
    state = fluid.layers.fc(x, 4)
    i, limit = _number(fluid, 0), _number(fluid, 3)
    cond = fluid.layers.less_than(i, limit)
    with fluid.layers.While(cond).block():
        new = fluid.layers.fc(state, 4, act="tanh", param_attr="w_loop", bias_attr=False)
        fluid.layers.assign(new, state)
        fluid.layers.increment(i)
        fluid.layers.less_than(i, limit, cond=cond)
    loss = fluid.layers.mean(state)
    fluid.optimizer.SGD(0.1).minimize(loss)


def net_nested_while(fluid):
    i, limit = _number(fluid, 0), _number(fluid, 3)
    total = _number(fluid, 0.0, "float32")
    cond = fluid.layers.less_than(i, limit)
    with fluid.layers.While(cond).block():
        j = _number(fluid, 0)
        inner = fluid.layers.less_than(j, limit)
        with fluid.layers.While(inner).block():
            fluid.layers.assign(total + 1.0, total)
            fluid.layers.increment(j)
            fluid.layers.less_than(j, limit, cond=inner)
        fluid.layers.increment(i)
        fluid.layers.less_than(i, limit, cond=cond)


def net_while_loop(fluid):
    i, ten = _number(fluid, 0), _number(fluid, 10)
    fluid.layers.while_loop(lambda i: fluid.layers.less_than(i, ten), fluid.layers.increment, [i])


def net_while_loop_of_structures(fluid):
    i, ten = _number(fluid, 0), _number(fluid, 10)
    a, b = _number(fluid, 1.0, "float32"), _number(fluid, 2.0, "float32")

    def cond(i, pair, named):
        return fluid.layers.less_than(i, ten)

    def body(i, pair, named):
        pair[0] = pair[0] + named["b"]
        return [i + 1, pair, {"b": named["b"] * 2.0, "a": pair[0]}]

    fluid.layers.while_loop(cond, body, [i, [a, b], {"b": b, "a": a}], is_test=True, name="loop")


def net_while_loop_trained(fluid):
    i, ten = _number(fluid, 0), _number(fluid, 4)
    x = fluid.layers.data("x", [1], append_batch_size=False)
    x.stop_gradient = False
    w = fluid.layers.create_parameter([1], "float32", name="w")

    def cond(i, x):
        return fluid.layers.less_than(i, ten)

    def body(i, x):
        x = fluid.layers.elementwise_mul(x, w)
        i = fluid.layers.increment(i)
        return [i, x]

    out = fluid.layers.while_loop(cond, body, [i, x])
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out[1]))


def net_cond(fluid):
    a, b = _number(fluid, 1.0, "float32"), _number(fluid, 2.0, "float32")
    pred = fluid.layers.less_than(a, b)
    fluid.layers.cond(pred, lambda: a + b, lambda: a - b)


def net_cond_of_structures(fluid):
    x = fluid.layers.data("x", [3])
    pred = fluid.layers.less_than(fluid.layers.mean(x), _number(fluid, 0.0, "float32"))
    fluid.layers.cond(pred, lambda: [x * 2.0, (x, x + 1.0)], lambda: [x, (x - 1.0, x)], name="choose")


def net_cond_without_result(fluid):
    a, b = _number(fluid, 1.0, "float32"), _number(fluid, 2.0, "float32")
    fluid.layers.cond(fluid.layers.less_than(a, b), lambda: fluid.layers.assign(b, a) and None, None)
    fluid.layers.cond(fluid.layers.less_than(a, b), None, lambda: fluid.layers.assign(a, b) and None)


def net_nested_cond(fluid):
    a, b = _number(fluid, 1.0, "float32"), _number(fluid, 2.0, "float32")
    less = fluid.layers.less_than(a, b)
    more = fluid.layers.greater_than(a, b)

    def inner():
        return fluid.layers.cond(more, lambda: a * b, lambda: a / b)

    fluid.layers.cond(less, inner, lambda: a - b)


def net_cond_trained(fluid):
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 4)
    pred = fluid.layers.less_than(fluid.layers.mean(x), _number(fluid, 0.0, "float32"))

    def deep():
        return fluid.layers.fc(fluid.layers.fc(hidden, 8, act="relu"), 1)

    out = fluid.layers.cond(pred, deep, lambda: fluid.layers.fc(hidden, 1))
    loss = fluid.layers.mean(fluid.layers.square(out - y))
    fluid.optimizer.SGD(0.1).minimize(loss)


def net_nested_cond_trained(fluid):
    x = fluid.layers.data("x", [4])
    w = fluid.layers.create_parameter([4], "float32", name="w")
    zero = _number(fluid, 0.0, "float32")
    first = fluid.layers.less_than(fluid.layers.mean(x), zero)
    second = fluid.layers.less_than(fluid.layers.reduce_max(x), zero)

    def inner():
        return fluid.layers.cond(second, lambda: w * w, lambda: w + 1.0)

    out = fluid.layers.cond(first, inner, lambda: w * 2.0)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))


def net_case(fluid):
    x, y = _number(fluid, 0.3, "float32"), _number(fluid, 0.1, "float32")
    z = _number(fluid, 0.2, "float32")
    pairs = [(fluid.layers.less_than(z, x), lambda: x + y), (fluid.layers.less_than(x, y), lambda: x * y)]
    fluid.layers.case(pairs, default=lambda: x - y)
    fluid.layers.case(pairs, name="two")


def net_switch_case(fluid):
    index = fluid.layers.data("index", [1], append_batch_size=False, dtype="int32")
    x = fluid.layers.data("x", [2])
    fluid.layers.switch_case(index, {2: lambda: x * 2.0, 1: lambda: x + 1.0}, default=lambda: x - 1.0)
    fluid.layers.switch_case(index, [lambda: x, lambda: x + 1.0])
    fluid.layers.switch_case(index, ((7, lambda: x), (3, lambda: x + 1.0), (5, lambda: x * 5.0)))


def net_switch_case_trained(fluid):
    index = fluid.layers.data("index", [1], append_batch_size=False, dtype="int64")
    x = fluid.layers.fc(fluid.layers.data("x", [2]), 2)
    branches = [lambda: fluid.layers.fc(x, 1), lambda: fluid.layers.fc(x * 2.0, 1), lambda: fluid.layers.fc(x, 1)]
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.switch_case(index, branches)))


def net_optimizers_in_branches(fluid):
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    index = fluid.layers.data("index", [1], append_batch_size=False, dtype="int64")

    def sgd():
        out = fluid.layers.fc(x, 1, param_attr="w_a", bias_attr=False)
        loss = fluid.layers.mean(fluid.layers.square(out - y))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return loss

    def other():
        out = fluid.layers.fc(x, 1, param_attr="w_b", bias_attr=False)
        loss = fluid.layers.mean(out)
        fluid.optimizer.SGD(0.2).minimize(loss)
        return loss

    fluid.layers.switch_case(index, [sgd, other])


def net_switch(fluid):
    step = fluid.layers.data("step", [1], append_batch_size=False)
    rate = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="rate")
    bounds = [_number(fluid, value, "float32") for value in (1.0, 2.0)]
    with fluid.layers.Switch() as switch:
        with switch.case(fluid.layers.less_than(step, bounds[0])):
            fluid.layers.assign(_number(fluid, 0.1, "float32"), rate)
        with switch.case(fluid.layers.less_than(step, bounds[1])):
            fluid.layers.assign(_number(fluid, 0.2, "float32"), rate)
        with switch.default():
            fluid.layers.assign(_number(fluid, 0.3, "float32"), rate)


def _if_else(fluid, trained):
    image = fluid.layers.data("x", [8])
    label = fluid.layers.data("y", [1], dtype="int64")
    limit = fluid.layers.fill_constant_batch_size_like(label, [-1, 1], "int64", 5)
    ie = fluid.layers.IfElse(fluid.layers.less_than(label, limit))
    with ie.true_block():
        hidden = fluid.layers.fc(ie.input(image), 10, act="tanh")
        ie.output(fluid.layers.fc(hidden, 3, act="softmax"))
    with ie.false_block():
        ie.output(fluid.layers.fc(ie.input(image), 3, act="softmax"))
    prob = ie()
    loss = fluid.layers.mean(prob[0])
    if trained:
        fluid.optimizer.SGD(0.1).minimize(loss)


def net_if_else(fluid):
    _if_else(fluid, False)


def net_if_else_trained(fluid):
    _if_else(fluid, True)


def net_if_else_one_branch(fluid):
    x = fluid.layers.data("x", [1])
    cond = fluid.layers.less_than(x, fluid.layers.fill_constant_batch_size_like(x, [-1, 1], "float32", 0.0))
    ie = fluid.layers.IfElse(cond, name="positive")
    with ie.true_block():
        part = ie.input(x)
        ie.output(part * 2.0, ie.input(x))
    ie()


def net_arrays(fluid):
    x = fluid.layers.data("x", [3], lod_level=1)
    zero, one = _number(fluid, 0), _number(fluid, 1)
    array = fluid.layers.create_array("float32")
    fluid.layers.array_write(x, zero, array)
    other = fluid.layers.array_write(x, one)
    fluid.layers.array_read(array, zero)
    fluid.layers.array_length(other)
    fluid.layers.increment(zero, value=2.0, in_place=False)
    fluid.layers.is_empty(x)
    fluid.layers.is_empty(x, cond=fluid.layers.less_than(zero, one))


def net_ranking(fluid):
    from importlib import import_module

    flow = import_module(fluid.layers.__name__ + ".control_flow")
    x = fluid.layers.data("x", [3], lod_level=2)
    y = fluid.layers.data("y", [3], lod_level=1)
    table = flow.lod_rank_table(x, level=1)
    flow.max_sequence_len(table)
    array = flow.lod_tensor_to_array(x, table)
    flow.array_to_lod_tensor(array, table)
    flow.shrink_memory(y, _number(fluid, 1), table)
    fluid.layers.reorder_lod_tensor_by_rank(y, table)
    mask = fluid.layers.data("mask", [1], dtype="bool")
    yes, no = flow.split_lod_tensor(y, mask, level=0)
    flow.merge_lod_tensor(yes, no, y, mask, level=0)


def net_selection(fluid):
    from importlib import import_module

    flow = import_module(fluid.layers.__name__ + ".control_flow")
    x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [3])
    mask = fluid.layers.fill_constant([1], "int32", 1)
    out = flow.select_input([x, y], mask)
    block = fluid.default_main_program().current_block()
    outs = [block.create_var(dtype="float32", shape=[-1, 3]) for _ in range(2)]
    flow.select_output(out, outs, mask)


def net_print(fluid):
    x = fluid.layers.data("x", [3])
    x.stop_gradient = False
    y = fluid.layers.Print(x)
    z = fluid.layers.Print(
        y,
        first_n=3,
        message="here:",
        summarize=-1,
        print_tensor_name=False,
        print_tensor_type=False,
        print_tensor_shape=False,
        print_tensor_lod=False,
        print_phase="backward",
    )
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.fc(z, 1)))


def net_joined_arrays(fluid):
    x = fluid.layers.data("x", [3, 4])
    x.stop_gradient = False
    array = fluid.layers.array_write(x, _number(fluid, 0))
    fluid.layers.array_write(x, _number(fluid, 1), array)
    fluid.layers.tensor_array_to_tensor(array, axis=1)
    fluid.layers.tensor_array_to_tensor(array, axis=2, use_stack=True)
    fluid.layers.concat([array], axis=0)
    fluid.layers.stack(array, axis=0)
