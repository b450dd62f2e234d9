# ruff: noqa: UP031
# An old script, which also runs on Paddle 1.8.5.

import sys

import numpy as np
import paddle
import paddle.fluid as fluid
import paddle.fluid.framework as framework
import paddle.fluid.layers as pd
from paddle.fluid.executor import Executor

dict_size, word_dim, hidden_dim, decoder_size = 43, 32, 32, 32
batch_size, beam_size, max_length = 10, 2, 8


def encoder(is_sparse):
    src_word_id = pd.data(name="src_word_id", shape=[1], dtype="int64", lod_level=1)
    src_embedding = pd.embedding(
        input=src_word_id,
        size=[dict_size, word_dim],
        dtype="float32",
        is_sparse=is_sparse,
        param_attr=fluid.ParamAttr(name="vemb"),
    )
    fc1 = pd.fc(input=src_embedding, size=hidden_dim * 4, act="tanh")
    lstm_hidden0, _ = pd.dynamic_lstm(input=fc1, size=hidden_dim * 4)
    return pd.sequence_last_step(input=lstm_hidden0)


def decoder_train(context, is_sparse):
    trg_language_word = pd.data(name="target_language_word", shape=[1], dtype="int64", lod_level=1)
    trg_embedding = pd.embedding(
        input=trg_language_word,
        size=[dict_size, word_dim],
        dtype="float32",
        is_sparse=is_sparse,
        param_attr=fluid.ParamAttr(name="vemb"),
    )
    rnn = pd.DynamicRNN()
    with rnn.block():
        current_word = rnn.step_input(trg_embedding)
        pre_state = rnn.memory(init=context)
        current_state = pd.fc(input=[current_word, pre_state], size=decoder_size, act="tanh")
        current_score = pd.fc(input=current_state, size=dict_size, act="softmax")
        rnn.update_memory(pre_state, current_state)
        rnn.output(current_score)
    return rnn()


def decoder_decode(context, is_sparse):
    init_state = context
    array_len = pd.fill_constant(shape=[1], dtype="int64", value=max_length)
    counter = pd.zeros(shape=[1], dtype="int64", force_cpu=True)
    state_array = pd.create_array("float32")
    pd.array_write(init_state, array=state_array, i=counter)
    ids_array = pd.create_array("int64")
    scores_array = pd.create_array("float32")
    init_ids = pd.data(name="init_ids", shape=[1], dtype="int64", lod_level=2)
    init_scores = pd.data(name="init_scores", shape=[1], dtype="float32", lod_level=2)
    pd.array_write(init_ids, array=ids_array, i=counter)
    pd.array_write(init_scores, array=scores_array, i=counter)
    cond = pd.less_than(x=counter, y=array_len)
    while_op = pd.While(cond=cond)
    with while_op.block():
        pre_ids = pd.array_read(array=ids_array, i=counter)
        pre_state = pd.array_read(array=state_array, i=counter)
        pre_score = pd.array_read(array=scores_array, i=counter)
        pre_state_expanded = pd.sequence_expand(pre_state, pre_score)
        pre_ids_emb = pd.embedding(
            input=pre_ids, size=[dict_size, word_dim], dtype="float32", is_sparse=is_sparse, param_attr="vemb"
        )
        current_state = pd.fc(input=[pre_state_expanded, pre_ids_emb], size=decoder_size, act="tanh")
        current_state_with_lod = pd.lod_reset(x=current_state, y=pre_score)
        current_score = pd.fc(input=current_state_with_lod, size=dict_size, act="softmax")
        topk_scores, topk_indices = pd.topk(current_score, k=beam_size)
        accu_scores = pd.elementwise_add(x=pd.log(topk_scores), y=pd.reshape(pre_score, shape=[-1]), axis=0)
        selected_ids, selected_scores = pd.beam_search(
            pre_ids, pre_score, topk_indices, accu_scores, beam_size, end_id=10, level=0
        )
        with pd.Switch() as switch:
            with switch.case(pd.is_empty(selected_ids)):
                pd.fill_constant(shape=[1], value=0, dtype="bool", force_cpu=True, out=cond)
            with switch.default():
                pd.increment(x=counter, value=1, in_place=True)
                pd.array_write(current_state, array=state_array, i=counter)
                pd.array_write(selected_ids, array=ids_array, i=counter)
                pd.array_write(selected_scores, array=scores_array, i=counter)
                length_cond = pd.less_than(x=counter, y=array_len)
                finish_cond = pd.logical_not(pd.is_empty(x=selected_ids))
                pd.logical_and(x=length_cond, y=finish_cond, out=cond)
    return pd.beam_search_decode(ids=ids_array, scores=scores_array, beam_size=beam_size, end_id=10)


def train(place, is_sparse):
    rnn_out = decoder_train(encoder(is_sparse), is_sparse)
    label = pd.data(name="target_language_next_word", shape=[1], dtype="int64", lod_level=1)
    avg_cost = pd.mean(pd.cross_entropy(input=rnn_out, label=label))
    optimizer = fluid.optimizer.Adagrad(
        learning_rate=0.05, regularization=fluid.regularizer.L2DecayRegularizer(regularization_coeff=1e-4)
    )
    optimizer.minimize(avg_cost)
    train_data = paddle.batch(
        paddle.reader.shuffle(paddle.dataset.wmt14.train(dict_size), buf_size=1000), batch_size=batch_size
    )
    names = ["src_word_id", "target_language_word", "target_language_next_word"]
    feed_list = [framework.default_main_program().global_block().var(name) for name in names]
    feeder = fluid.DataFeeder(feed_list, place)
    exe = Executor(place)
    exe.run(framework.default_startup_program())
    costs = []
    for data in train_data():
        outs = exe.run(framework.default_main_program(), feed=feeder.feed(data), fetch_list=[avg_cost])
        costs.append(np.array(outs[0])[0])
    print("avg_cost from %.3f to %.3f" % (costs[0], costs[-1]))


def decode(place, is_sparse):
    translation_ids, translation_scores = decoder_decode(encoder(is_sparse), is_sparse)
    exe = Executor(place)
    exe.run(framework.default_startup_program())
    init_ids = np.array([1 for _ in range(batch_size)], dtype="int64").reshape((batch_size, 1))
    init_scores = np.array([1.0 for _ in range(batch_size)], dtype="float32").reshape((batch_size, 1))
    lengths = [[1] * batch_size, [1] * batch_size]
    train_data = paddle.batch(paddle.dataset.wmt14.train(dict_size), batch_size=batch_size)
    feeder = fluid.DataFeeder([framework.default_main_program().global_block().var("src_word_id")], place)
    for data in train_data():
        feed_dict = feeder.feed([[x[0]] for x in data])
        feed_dict["init_ids"] = fluid.create_lod_tensor(init_ids, lengths, place)
        feed_dict["init_scores"] = fluid.create_lod_tensor(init_scores, lengths, place)
        result_ids, result_scores = exe.run(
            framework.default_main_program(),
            feed=feed_dict,
            fetch_list=[translation_ids, translation_scores],
            return_numpy=False,
        )
        beams, words = result_ids.recursive_sequence_lengths()
        print(beams, sum(words) == len(np.array(result_ids)) == len(np.array(result_scores)))
        break


if __name__ == "__main__":
    {"train": train, "decode": decode}[sys.argv[1]](fluid.CPUPlace(), is_sparse="sparse" in sys.argv)
