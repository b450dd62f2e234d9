"""Word embeddings: the next word of a sentence from the four before it, by an n-gram neural network.

Usage: python word2vec.py [--epochs N] [--small] [--out FOLDER]

The sentences are made up from templates in which a noun decides the verb, and the verb the last noun. Two words of the same
class should end up near each other: the second metric.
"""

import common
import numpy as np

import fluidtool.fluid as fluid

CLASSES = {
    "animal": ["dog", "cat", "horse", "cow"],
    "moves": ["runs", "walks", "jumps", "sleeps"],
    "place": ["garden", "field", "stable", "street"],
    "person": ["girl", "boy", "woman", "man"],
    "acts": ["reads", "writes", "buys", "sells"],
    "thing": ["book", "letter", "paper", "card"],
}
TEMPLATES = [
    "<s> the animal moves in the place now <e>",
    "<s> a person acts the thing at home <e>",
    "<s> today the animal moves near a place <e>",
    "<s> often a person acts her thing there <e>",
]
WORDS = sorted(
    {word for text in [*TEMPLATES, *map(" ".join, CLASSES.values())] for word in text.split()} - set(CLASSES)
)
WORD_DICT = {word: number for number, word in enumerate(WORDS)}
N = 5


def ngrams(count, seed):
    """A reader of five word ids in a row, from `count` sentences."""

    def reader():
        draw = np.random.RandomState(seed)
        for _ in range(count):
            template = TEMPLATES[draw.randint(len(TEMPLATES))].split()
            words = [CLASSES[word][draw.randint(4)] if word in CLASSES else word for word in template]
            ids = [WORD_DICT[word] for word in words]
            for end in range(N, len(ids) + 1):
                yield tuple(ids[end - N : end])

    return reader


def allowed(gram):
    """The words that can follow the first four: those of the last word's class, or it alone."""
    word = WORDS[gram[-1]]
    group = next((words for words in CLASSES.values() if word in words), [word])
    return [WORD_DICT[word] for word in group]


def inference_program(embedding_size, hidden_size):
    words = [fluid.layers.data(name=name, shape=[1], dtype="int64") for name in ("first", "second", "third", "fourth")]
    embeddings = [
        fluid.layers.embedding(
            input=word, size=[len(WORDS), embedding_size], dtype="float32", is_sparse=True, param_attr="shared_w"
        )
        for word in words
    ]
    concat = fluid.layers.concat(input=embeddings, axis=1)
    hidden = fluid.layers.fc(input=concat, size=hidden_size, act="sigmoid")
    return words, fluid.layers.fc(input=hidden, size=len(WORDS), act="softmax")


def train(options, place):
    words, predict_word = inference_program(*(8, 32) if options.small else (16, 64))
    next_word = fluid.layers.data(name="next", shape=[1], dtype="int64")
    avg_cost = fluid.layers.mean(fluid.layers.cross_entropy(input=predict_word, label=next_word))
    fluid.optimizer.Adagrad(learning_rate=0.1).minimize(avg_cost)

    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=[*words, next_word], place=place)
    samples = ngrams(400 if options.small else 2000, seed=1)
    reader = fluid.io.batch(fluid.io.shuffle(samples, buf_size=20000), batch_size=64)
    for epoch in range(options.epochs):
        losses = [exe.run(feed=feeder.feed(batch), fetch_list=[avg_cost])[0].item() for batch in reader()]
        print(f"epoch {epoch}: perplexity {np.exp(np.mean(losses)):.4f}")
    fluid.io.save_inference_model(options.out, [word.name for word in words], [predict_word], exe)
    return np.array(fluid.global_scope().find_var("shared_w").get_tensor())


def neighbors(embeddings):
    """The share of the words in classes whose nearest such word is of the same class."""
    words = [word for group in CLASSES.values() for word in group]
    vectors = embeddings[[WORD_DICT[word] for word in words]]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    nearest = (vectors.dot(vectors.T) - 2 * np.eye(len(words))).argmax(axis=1)
    return np.mean(nearest // 4 == np.arange(len(words)) // 4)


def infer(options, place):
    exe = fluid.Executor(place)
    with fluid.scope_guard(fluid.Scope()):
        program, feed_names, fetches = fluid.io.load_inference_model(options.out, exe)
        grams = np.array(list(ngrams(50, seed=2)()))
        feed = {name: grams[:, index : index + 1] for index, name in enumerate(feed_names)}
        outputs = exe.run(program, feed=feed, fetch_list=fetches)
    common.save_example(options.out, feed, [fetch.name for fetch in fetches], outputs)
    best = outputs[0].argmax(axis=1)
    right = [word in allowed(gram) for word, gram in zip(best, grams)]
    common.report("share of predicted words that fit", np.mean(right), 0.95)


def main():
    options = common.options(__doc__, epochs=5, epochs_of_small=5)
    fluid.default_startup_program().random_seed = 1
    place = fluid.CPUPlace()
    embeddings = train(options, place)
    infer(options, place)
    common.report("share of words beside one of their class", neighbors(embeddings), 0.9)


if __name__ == "__main__":
    main()
