"""Semantic roles: who did what to whom, and when? Stacked LSTMs in both directions under a conditional random field.

Usage: python label_semantic_roles.py [--epochs N] [--small] [--out FOLDER]

The sentences are made up: two clauses, active or passive, each with or without a time. The roles asked for are those around
one of the two verbs, which is marked; whatever belongs to the other verb is outside.
"""

import common
import numpy as np

import fluidtool.fluid as fluid

PEOPLE = ["girl", "boy", "teacher", "doctor", "neighbor", "farmer", "driver", "baker"]
ADJECTIVES = ["old", "young", "clever", "tired"]
VERBS = ["saw", "helped", "called", "visited", "paid", "heard"]
TIMES = ["today", "on monday", "last week", "in the morning"]
WORDS = sorted({*PEOPLE, *ADJECTIVES, *VERBS, *" ".join(TIMES).split(), "the", "a", "was", "by", "and", "bos", "eos"})
WORD_DICT = {word: number for number, word in enumerate(WORDS)}
VERB_DICT = {verb: number for number, verb in enumerate(VERBS)}
ROLES = ["A0", "A1", "V", "AM-TMP"]
# As chunk_eval wants it for IOB: B and I of each role, and what is outside of all comes last.
LABEL_DICT = {"O": 2 * len(ROLES), **{p + "-" + role: 2 * i + (p == "I") for i, role in enumerate(ROLES) for p in "BI"}}
FEATURES = ["word", "ctx_n2", "ctx_n1", "ctx_0", "ctx_p1", "ctx_p2", "verb", "mark"]


def tagged(text, role):
    words = text.split()
    return [(word, ("I-" if index else "B-") + role) for index, word in enumerate(words)]


def clause(draw):
    """Words with their tags, and which of them is the verb."""

    def person():
        adjective = [ADJECTIVES[draw.randint(4)]] if draw.randint(2) else []
        return " ".join([["the", "a"][draw.randint(2)], *adjective, PEOPLE[draw.randint(8)]])

    verb = tagged(VERBS[draw.randint(6)], "V")
    if draw.randint(2):
        words = tagged(person(), "A0") + verb + tagged(person(), "A1")
    else:
        words = [*tagged(person(), "A1"), ("was", "O"), *verb, ("by", "O"), *tagged(person(), "A0")]
    time = tagged(TIMES[draw.randint(4)], "AM-TMP") if draw.randint(2) else []
    words = words + time if draw.randint(2) else time + words
    return words, [tag for _, tag in words].index("B-V")


def sentences(count, seed):
    """A reader of (words, five words around the verb, verb, mark, labels), each a list as long as the sentence."""

    def reader():
        draw = np.random.RandomState(seed)
        for _ in range(count):
            (first, first_verb), (second, second_verb) = clause(draw), clause(draw)
            if draw.randint(2):
                second, verb = [(word, "O") for word, _ in second], first_verb
            else:
                first, verb = [(word, "O") for word, _ in first], len(first) + 1 + second_verb
            pairs = [*first, ("and", "O"), *second]
            words = [WORD_DICT[word] for word, _ in pairs]
            padded = [WORD_DICT["bos"]] * 2 + words + [WORD_DICT["eos"]] * 2
            contexts = [[padded[verb + offset]] * len(words) for offset in range(5)]
            mark = [int(abs(index - verb) <= 2) for index in range(len(words))]
            yield (
                words,
                *contexts,
                [VERB_DICT[pairs[verb][0]]] * len(words),
                mark,
                [LABEL_DICT[tag] for _, tag in pairs],
            )

    return reader


def db_lstm(inputs, word_dim, hidden_dim, depth):
    """Scores of the labels for each word."""
    layers = fluid.layers
    embeddings = [
        layers.embedding(input=word, size=[len(WORDS), word_dim], param_attr=fluid.ParamAttr(name="emb"))
        for word in inputs[:6]
    ]
    embeddings.append(layers.embedding(input=inputs[6], size=[len(VERBS), word_dim], param_attr="vemb"))
    embeddings.append(layers.embedding(input=inputs[7], size=[2, 5]))
    hidden = layers.sums(input=[layers.fc(input=one, size=hidden_dim, act="tanh") for one in embeddings])
    activations = {"candidate_activation": "relu", "gate_activation": "sigmoid", "cell_activation": "sigmoid"}
    lstm, _ = layers.dynamic_lstm(input=hidden, size=hidden_dim, **activations)
    for number in range(1, depth):
        hidden = layers.sums(input=[layers.fc(input=one, size=hidden_dim, act="tanh") for one in (hidden, lstm)])
        lstm, _ = layers.dynamic_lstm(input=hidden, size=hidden_dim, is_reverse=number % 2 == 1, **activations)
    return layers.sums(input=[layers.fc(input=one, size=len(LABEL_DICT), act="tanh") for one in (hidden, lstm)])


def train(options, place):
    inputs = [fluid.layers.data(name=name, shape=[1], dtype="int64", lod_level=1) for name in FEATURES]
    target = fluid.layers.data(name="target", shape=[1], dtype="int64", lod_level=1)
    feature_out = db_lstm(inputs, *(16, 64, 2) if options.small else (32, 128, 4))
    crf_cost = fluid.layers.linear_chain_crf(
        input=feature_out, label=target, param_attr=fluid.ParamAttr(name="crfw", learning_rate=2.0)
    )
    avg_cost = fluid.layers.mean(crf_cost)
    crf_decode = fluid.layers.crf_decoding(input=feature_out, param_attr=fluid.ParamAttr(name="crfw"))
    counts = fluid.layers.chunk_eval(crf_decode, target, chunk_scheme="IOB", num_chunk_types=len(ROLES))[3:]
    rate = fluid.layers.exponential_decay(
        0.02 if options.small else 0.01, decay_steps=200, decay_rate=0.8, staircase=True
    )
    fluid.optimizer.Adam(learning_rate=rate).minimize(avg_cost)

    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=[*inputs, target], place=place)
    samples = sentences(500 if options.small else 1200, seed=1)
    reader = fluid.io.batch(fluid.io.shuffle(samples, buf_size=2000), batch_size=20)
    for epoch in range(options.epochs):
        chunks, losses = fluid.metrics.ChunkEvaluator(), []
        for batch in reader():
            loss, *numbers = exe.run(feed=feeder.feed(batch), fetch_list=[avg_cost, *counts])
            chunks.update(*numbers)
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {np.mean(losses):.4f}, F1 {float(chunks.eval()[2]):.4f}")
    fluid.io.save_inference_model(options.out, FEATURES, [crf_decode], exe)


def infer(options, place):
    exe = fluid.Executor(place)
    samples = list(sentences(100, seed=2)())
    with fluid.scope_guard(fluid.Scope()):
        program, feed_names, fetches = fluid.io.load_inference_model(options.out, exe)
        feed = fluid.DataFeeder(feed_names, place, program).feed([sample[:-1] for sample in samples])
        paths = exe.run(program, feed=feed, fetch_list=fetches, return_numpy=False)
    common.save_example(options.out, feed, [fetch.name for fetch in fetches], paths)
    common.report("F1 of roles", score(paths[0], [sample[-1] for sample in samples], place), 0.9)


def score(path, labels, place):
    """The F1 of chunks, by a program that does nothing else."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        found, target = (fluid.layers.data(name, [1], dtype="int64", lod_level=1) for name in ("found", "target"))
        f1 = fluid.layers.chunk_eval(found, target, chunk_scheme="IOB", num_chunk_types=len(ROLES))[2]
        tensor = fluid.create_lod_tensor(np.concatenate(labels)[:, None], [[len(one) for one in labels]], place)
        return fluid.Executor(place).run(feed={"found": path, "target": tensor}, fetch_list=[f1])[0].item()


def main():
    options = common.options(__doc__, epochs=5, epochs_of_small=6)
    fluid.default_startup_program().random_seed = 1
    place = fluid.CPUPlace()
    train(options, place)
    infer(options, place)


if __name__ == "__main__":
    main()
