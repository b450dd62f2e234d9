"""Small networks of loops, branches and recurrent blocks, with parameters that are no chance.

Each takes the fluid module (real Paddle's, on Python 3.7, too) and returns what is to be fetched.
"""

import numpy as np


def fixed(fluid, shape, name, start=-0.4, step=0.1):
    """A ParamAttr whose parameter counts up from `start`."""
    values = (start + step * np.arange(int(np.prod(shape)))).reshape(shape).astype("float32")
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(values))


def number(fluid, value, dtype="int64"):
    return fluid.layers.fill_constant([1], dtype, value)


def squares_by_while(fluid):
    """The squares of 0 to 4 in an array, joined; and how many."""
    i, limit = number(fluid, 0), number(fluid, 5)
    array = fluid.layers.create_array("int64")
    running = fluid.layers.less_than(i, limit)
    with fluid.layers.While(running).block():
        fluid.layers.array_write(fluid.layers.elementwise_mul(i, i), i, array)
        fluid.layers.increment(i)
        fluid.layers.less_than(i, limit, cond=running)
    return [fluid.layers.concat([array], axis=0), fluid.layers.array_length(array)]


def powers_by_while_loop(fluid):
    """1.5 doubled until it is above x."""
    x = fluid.layers.data("x", [1], append_batch_size=False)
    count, value = number(fluid, 0), number(fluid, 1.5, "float32")
    return fluid.layers.while_loop(
        lambda count, value: fluid.layers.less_than(value, x),
        lambda count, value: [count + 1, value * 2.0],
        [count, value],
    )


def trained_loop(fluid):
    """Three steps of s = tanh(s W), read back from an array; the gradients of x and W."""
    x = fluid.layers.data("x", [2, 3], append_batch_size=False)
    x.stop_gradient = False
    w = fluid.layers.create_parameter([3, 3], "float32", attr=fixed(fluid, [3, 3], "w"))
    i, limit = number(fluid, 0), number(fluid, 3)
    states = fluid.layers.array_write(x, i)
    running = fluid.layers.less_than(i, limit)
    with fluid.layers.While(running).block():
        state = fluid.layers.tanh(fluid.layers.mul(fluid.layers.array_read(states, i), w))
        fluid.layers.increment(i)
        fluid.layers.array_write(state, i, states)
        fluid.layers.less_than(i, limit, cond=running)
    last = fluid.layers.array_read(states, i)
    return [last, *fluid.gradients(fluid.layers.reduce_sum(last), [x, w])]


def branches(fluid):
    """cond, case and switch_case on the same x."""
    x = fluid.layers.data("x", [2], append_batch_size=False)
    index = fluid.layers.data("index", [1], append_batch_size=False, dtype="int64")
    total = fluid.layers.reduce_sum(x)
    zero, ten = number(fluid, 0.0, "float32"), number(fluid, 10.0, "float32")
    negative, large = fluid.layers.less_than(total, zero), fluid.layers.greater_than(total, ten)
    return [
        fluid.layers.cond(negative, lambda: x - 1.0, lambda: x + 1.0),
        fluid.layers.case([(negative, lambda: x * 2.0), (large, lambda: x * 3.0)], default=lambda: x * 4.0),
        fluid.layers.switch_case(index, {1: lambda: x / 2.0, 3: lambda: x / 4.0}, default=lambda: x),
    ]


def trained_branch(fluid):
    """The gradient of w through the branch that x chooses."""
    x = fluid.layers.data("x", [3], append_batch_size=False)
    w = fluid.layers.create_parameter([3], "float32", attr=fixed(fluid, [3], "w"))
    negative = fluid.layers.less_than(fluid.layers.reduce_sum(x), number(fluid, 0.0, "float32"))
    out = fluid.layers.cond(negative, lambda: x * w, lambda: fluid.layers.square(x * w))
    return fluid.gradients(fluid.layers.reduce_sum(out), [w])


def switched_rate(fluid):
    """A learning rate by steps."""
    step = fluid.layers.data("step", [1], append_batch_size=False)
    rate = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="rate")
    with fluid.layers.Switch() as switch:
        with switch.case(fluid.layers.less_than(step, number(fluid, 10.0, "float32"))):
            fluid.layers.assign(number(fluid, 0.5, "float32"), rate)
        with switch.case(fluid.layers.less_than(step, number(fluid, 20.0, "float32"))):
            fluid.layers.assign(number(fluid, 0.25, "float32"), rate)
        with switch.default():
            fluid.layers.assign(number(fluid, 0.125, "float32"), rate)
    return [rate]


def rows_by_if_else(fluid):
    """Negative rows negated, the others doubled; and the gradient of the sum by x."""
    x = fluid.layers.data("x", [1])
    x.stop_gradient = False
    zero = fluid.layers.fill_constant_batch_size_like(x, [-1, 1], "float32", 0.0)
    rows = fluid.layers.IfElse(fluid.layers.less_than(x, zero))
    with rows.true_block():
        rows.output(rows.input(x) * -1.0)
    with rows.false_block():
        rows.output(rows.input(x) * 2.0)
    out = rows()[0]
    return [out, *fluid.gradients(fluid.layers.reduce_sum(out), [x])]


def static_rnn(fluid):
    """h = tanh([x, h] W) over three steps; the gradient of W."""
    x = fluid.layers.data("x", [3, 2, 2], append_batch_size=False)
    x.stop_gradient = False
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        step = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 2], batch_ref=x, init_value=0.5)
        joined = fluid.layers.concat([step, before], axis=1)
        now = fluid.layers.fc(joined, 2, act="tanh", bias_attr=False, param_attr=fixed(fluid, [4, 2], "w"))
        rnn.update_memory(before, now)
        rnn.step_output(now)
    out = rnn()
    w = fluid.default_main_program().global_block().var("w")
    return [out, *fluid.gradients(fluid.layers.reduce_sum(out), [w])]


def dynamic_rnn(fluid):
    """h = tanh([x, h, c] W) over sequences, with a context c per sequence; the gradients of x, c and W."""
    x = fluid.layers.data("x", [2], lod_level=1)
    context = fluid.layers.data("context", [1])
    x.stop_gradient = context.stop_gradient = False
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        step = rnn.step_input(x)
        beside = rnn.static_input(context)
        before = rnn.memory(shape=[1], value=0.5)
        joined = fluid.layers.concat([step, before, beside], axis=1)
        now = fluid.layers.fc(joined, 1, act="tanh", bias_attr=False, param_attr=fixed(fluid, [4, 1], "w"))
        rnn.update_memory(before, now)
        rnn.output(now)
    out = rnn()
    w = fluid.default_main_program().global_block().var("w")
    return [out, *fluid.gradients(fluid.layers.reduce_sum(out), [x, context, w])]


def cells(fluid):
    """The outputs and last states of a GRU from right to left and of an LSTM over rows of different lengths."""
    x = fluid.layers.data("x", [2, 3, 2], append_batch_size=False)
    length = fluid.layers.data("length", [2], append_batch_size=False, dtype="int64")
    constant = fluid.initializer.Constant
    weight = {
        "param_attr": fluid.ParamAttr(initializer=constant(0.3)),
        "bias_attr": fluid.ParamAttr(initializer=constant(0.1)),
    }
    gru, gru_state = fluid.layers.rnn(fluid.layers.GRUCell(2, **weight), x, is_reverse=True)
    lstm, (hidden, cell) = fluid.layers.rnn(fluid.layers.LSTMCell(2, **weight), x, sequence_length=length)
    return [gru, gru_state, lstm, hidden, cell]


def _decoding(fluid):
    table, out = fixed(fluid, [5, 2], "table", -0.9, 0.2), fixed(fluid, [2, 5], "out", 0.5, -0.3)
    weight = {"param_attr": fixed(fluid, [4, 8], "cell", -1.5, 0.1), "bias_attr": fluid.ParamAttr(name="bias")}
    start = fluid.layers.data("start", [2])
    states = [start, fluid.layers.scale(start, -1.0)]
    cell = fluid.layers.LSTMCell(2, **weight)
    return (
        cell,
        states,
        lambda ids: fluid.embedding(ids, [5, 2], param_attr=table),
        lambda x: fluid.layers.fc(x, 5, num_flatten_dims=len(x.shape) - 1, param_attr=out, bias_attr=False),
    )


def beams(fluid):
    """The ids of the best three beams, and the lengths."""
    cell, states, embed, project = _decoding(fluid)
    decoder = fluid.layers.BeamSearchDecoder(cell, 0, 1, 3, embed, project)
    outputs, _, lengths = fluid.layers.dynamic_decode(decoder, inits=states, max_step_num=4, return_length=True)
    return [outputs, lengths]


def greedy(fluid):
    """The ids that score highest, and the last hidden states."""
    cell, states, embed, project = _decoding(fluid)
    tokens = fluid.layers.data("tokens", [-1], append_batch_size=False, dtype="int64")
    helper = fluid.layers.GreedyEmbeddingHelper(embed, tokens, 1)
    decoder = fluid.layers.BasicDecoder(cell, helper, output_fn=project)
    outputs, last = fluid.layers.dynamic_decode(decoder, inits=states, max_step_num=3, is_test=True)
    return [outputs.sample_ids, last[0]]


def teacher(fluid):
    """The scores of a decoder that is fed the truth, and the gradient of the start."""
    cell, states, _, project = _decoding(fluid)
    states[0].stop_gradient = False
    x = fluid.layers.data("x", [-1, 3, 2], append_batch_size=False)
    length = fluid.layers.data("length", [-1], append_batch_size=False, dtype="int64")
    decoder = fluid.layers.BasicDecoder(cell, fluid.layers.TrainingHelper(x, length), output_fn=project)
    outputs, _, lengths = fluid.layers.dynamic_decode(decoder, inits=states, impute_finished=True, return_length=True)
    total = fluid.layers.reduce_sum(fluid.layers.square(outputs.cell_outputs))
    return [outputs.cell_outputs, lengths, *fluid.gradients(total, [states[0]])]
