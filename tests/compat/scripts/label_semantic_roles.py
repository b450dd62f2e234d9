# ruff: noqa: UP031
# An old script, which also runs on Paddle 1.8.5.

import numpy as np
import paddle
import paddle.dataset.conll05 as conll05
import paddle.fluid as fluid

word_dict, verb_dict, label_dict = conll05.get_dict()
word_dict_len, label_dict_len, pred_len = len(word_dict), len(label_dict), len(verb_dict)
word_dim, hidden_dim = 32, 64
embedding_name = "emb"


def load_parameter(file_name, h, w):
    with open(file_name, "rb") as f:
        f.read(16)  # skip header.
        return np.fromfile(f, dtype=np.float32).reshape(h, w)


def db_lstm(word, predicate, ctx_n2, ctx_n1, ctx_0, ctx_p1, ctx_p2, mark):
    predicate_embedding = fluid.layers.embedding(
        input=predicate, size=[pred_len, word_dim], dtype="float32", is_sparse=True, param_attr="vemb"
    )
    mark_embedding = fluid.layers.embedding(input=mark, size=[2, 5], dtype="float32", is_sparse=True)
    emb_layers = [
        fluid.layers.embedding(
            size=[word_dict_len, word_dim], input=x, param_attr=fluid.ParamAttr(name=embedding_name, trainable=False)
        )
        for x in [word, ctx_n2, ctx_n1, ctx_0, ctx_p1, ctx_p2]
    ]
    emb_layers += [predicate_embedding, mark_embedding]
    hidden_0 = fluid.layers.sums(input=[fluid.layers.fc(input=emb, size=hidden_dim) for emb in emb_layers])
    lstm_0 = fluid.layers.dynamic_lstm(
        input=hidden_0,
        size=hidden_dim,
        candidate_activation="relu",
        gate_activation="sigmoid",
        cell_activation="sigmoid",
    )
    mix_hidden = fluid.layers.sums(
        input=[fluid.layers.fc(input=x, size=hidden_dim, act="tanh") for x in (hidden_0, lstm_0[0])]
    )
    lstm = fluid.layers.dynamic_lstm(input=mix_hidden, size=hidden_dim, candidate_activation="relu", is_reverse=True)
    return fluid.layers.sums(
        input=[fluid.layers.fc(input=x, size=label_dict_len, act="tanh") for x in (mix_hidden, lstm[0])]
    )


def sequence(name):
    return fluid.layers.data(name=name, shape=[1], dtype="int64", lod_level=1)


names = [
    "word_data",
    "ctx_n2_data",
    "ctx_n1_data",
    "ctx_0_data",
    "ctx_p1_data",
    "ctx_p2_data",
    "verb_data",
    "mark_data",
]
inputs = [sequence(name) for name in names]
word, ctx_n2, ctx_n1, ctx_0, ctx_p1, ctx_p2, predicate, mark = inputs
feature_out = db_lstm(word, predicate, ctx_n2, ctx_n1, ctx_0, ctx_p1, ctx_p2, mark)
target = sequence("target")
crf_cost = fluid.layers.linear_chain_crf(
    input=feature_out, label=target, param_attr=fluid.ParamAttr(name="crfw", learning_rate=1e-1)
)
avg_cost = fluid.layers.mean(crf_cost)
fluid.optimizer.SGD(
    learning_rate=fluid.layers.exponential_decay(learning_rate=0.02, decay_steps=100000, decay_rate=0.5, staircase=True)
).minimize(avg_cost)
crf_decode = fluid.layers.crf_decoding(input=feature_out, param_attr=fluid.ParamAttr(name="crfw"))

train_data = paddle.batch(paddle.reader.shuffle(conll05.test(), buf_size=8192), batch_size=10)
place = fluid.CPUPlace()
feeder = fluid.DataFeeder(feed_list=[*inputs, target], place=place)
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())
embedding_param = fluid.global_scope().find_var(embedding_name).get_tensor()
embedding_param.set(load_parameter(conll05.get_embedding(), word_dict_len, word_dim), place)

costs = []
for _ in range(2):
    for data in train_data():
        cost = exe.run(fluid.default_main_program(), feed=feeder.feed(data), fetch_list=[avg_cost])
        costs.append(cost[0][0])
print("avg_cost from %.4f to %.4f" % (costs[0], costs[-1]))
fluid.io.save_inference_model("roles.model", names, [crf_decode], exe)

with fluid.scope_guard(fluid.core.Scope()):
    inference_program, feed_target_names, fetch_targets = fluid.io.load_inference_model("roles.model", exe)
    assert feed_target_names == names
    feed = {
        name: fluid.create_random_int_lodtensor([[3, 4, 2]], [1], place, low=0, high=1) for name in feed_target_names
    }
    results = exe.run(inference_program, feed=feed, fetch_list=fetch_targets, return_numpy=False)
    print(results[0].recursive_sequence_lengths(), np.array(results[0]).shape)
