"""Sentiment: is a review good or bad? Convolutions over its words, or stacked LSTMs that read in turns from both ends.

Usage: python understand_sentiment.py [--network conv|lstm] [--epochs N] [--small] [--out FOLDER]

The reviews are made up: one to three clauses, all praise or all blame, where "not" or "hardly" turns praise into blame and
the reverse, so that single words do not tell.
"""

import common
import numpy as np

import fluidtool.fluid as fluid

PRAISE = ["good", "great", "funny", "moving", "clever", "lovely", "fresh", "gripping"]
BLAME = ["bad", "boring", "silly", "weak", "tired", "awful", "slow", "flat"]
SUBJECTS = ["film", "plot", "cast", "music", "ending", "dialogue", "pace", "camera"]
DEGREES = ["really", "very", "so", "quite"]
NEGATIONS = ["not", "hardly"]
WORDS = ["the", "was", "and", *NEGATIONS, *DEGREES, *SUBJECTS, *PRAISE, *BLAME]
WORD_DICT = {word: number for number, word in enumerate(WORDS)}


def clause(positive, draw):
    """Words that praise or blame something."""
    negated = draw.randint(5) < 2
    degree = [DEGREES[draw.randint(4)]] if draw.randint(2) else []
    adjective = (PRAISE if positive != negated else BLAME)[draw.randint(8)]
    negation = [NEGATIONS[draw.randint(2)]] if negated else []
    return ["the", SUBJECTS[draw.randint(8)], "was", *negation, *degree, adjective]


def reviews(count, seed):
    """A reader of (word ids, 1 for a good review and 0 for a bad one)."""

    def reader():
        draw = np.random.RandomState(seed)
        for _ in range(count):
            positive = bool(draw.randint(2))
            words = [word for _ in range(draw.randint(1, 4)) for word in ["and", *clause(positive, draw)]][1:]
            yield [WORD_DICT[word] for word in words], int(positive)

    return reader


def convolution_net(data, emb_dim, hid_dim):
    emb = fluid.layers.embedding(input=data, size=[len(WORDS), emb_dim], is_sparse=True)
    conv_3 = fluid.nets.sequence_conv_pool(input=emb, num_filters=hid_dim, filter_size=3, act="tanh", pool_type="sqrt")
    conv_4 = fluid.nets.sequence_conv_pool(input=emb, num_filters=hid_dim, filter_size=4, act="tanh", pool_type="sqrt")
    return fluid.layers.fc(input=[conv_3, conv_4], size=2, act="softmax")


def stacked_lstm_net(data, emb_dim, hid_dim, stacked_num=3):
    emb = fluid.layers.embedding(input=data, size=[len(WORDS), emb_dim], is_sparse=True)
    fc = fluid.layers.fc(input=emb, size=4 * hid_dim)
    lstm, _ = fluid.layers.dynamic_lstm(input=fc, size=4 * hid_dim)
    inputs = [fc, lstm]
    for number in range(2, stacked_num + 1):
        fc = fluid.layers.fc(input=inputs, size=4 * hid_dim)
        lstm, _ = fluid.layers.dynamic_lstm(input=fc, size=4 * hid_dim, is_reverse=number % 2 == 0)
        inputs = [fc, lstm]
    fc_last = fluid.layers.sequence_pool(input=inputs[0], pool_type="max")
    lstm_last = fluid.layers.sequence_pool(input=inputs[1], pool_type="max")
    return fluid.layers.fc(input=[fc_last, lstm_last], size=2, act="softmax")


def train(options, place):
    data = fluid.layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    network = stacked_lstm_net if options.network == "lstm" else convolution_net
    prediction = network(data, *(12, 12) if options.small else (32, 32))
    cost = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
    accuracy = fluid.layers.accuracy(input=prediction, label=label)
    fluid.optimizer.Adam(learning_rate=0.01).minimize(cost)

    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=[data, label], place=place)
    samples = reviews(1000 if options.small else 3000, seed=1)
    reader = fluid.io.batch(fluid.io.shuffle(samples, buf_size=3000), batch_size=32)
    for epoch in range(options.epochs):
        results = [exe.run(feed=feeder.feed(batch), fetch_list=[cost, accuracy]) for batch in reader()]
        loss, right = np.mean(results, axis=0).ravel()
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {right:.4f}")
    fluid.io.save_inference_model(options.out, ["words"], [prediction], exe)


def infer(options, place):
    exe = fluid.Executor(place)
    with fluid.scope_guard(fluid.Scope()):
        program, feed_names, fetches = fluid.io.load_inference_model(options.out, exe)
        samples = list(reviews(200, seed=2)())
        words = [ids for ids, _ in samples]
        tensor = fluid.create_lod_tensor(np.concatenate(words)[:, None], [[len(ids) for ids in words]], place)
        feed = {feed_names[0]: tensor}
        outputs = exe.run(program, feed=feed, fetch_list=fetches)
    labels = np.array([label for _, label in samples])
    common.save_example(options.out, feed, [fetch.name for fetch in fetches], outputs)
    common.report("accuracy", np.mean(outputs[0].argmax(axis=1) == labels), 0.9)


def main():
    options = common.options(__doc__, epochs=4, epochs_of_small=6, networks=("conv", "lstm"))
    fluid.default_startup_program().random_seed = 1
    place = fluid.CPUPlace()
    train(options, place)
    infer(options, place)


if __name__ == "__main__":
    main()
