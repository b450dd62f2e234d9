"""Machine translation: an encoder, a decoder that attends to it, and a beam search.

Usage: python machine_translation.py [--epochs N] [--small] [--out FOLDER]

The sentences are made up: a little English whose French puts adjectives behind nouns, adverbs behind verbs, and chooses
articles and adjectives by gender. Training runs the decoder in a DynamicRNN over the known translation; translating, a
While loop keeps the best beams.
"""

import common
import numpy as np

import fluidtool.fluid as fluid

NOUNS = [
    "cat chat m",
    "dog chien m",
    "table table f",
    "house maison f",
    "boy garçon m",
    "girl fille f",
    "car voiture f",
]
ADJECTIVES = ["green vert verte", "small petit petite", "black noir noire", "heavy lourd lourde"]
VERBS = ["sees voit", "wants veut", "finds trouve", "loves aime"]
ADVERBS = ["often souvent", "always toujours"]
ARTICLES = {"the": {"m": "le", "f": "la"}, "a": {"m": "un", "f": "une"}}
START, END, UNKNOWN = 0, 1, 2
MAX_LENGTH = 12


def sentence(draw):
    """English words and French words."""

    def choose(table):
        return table[draw.randint(len(table))].split()

    def noun():
        (english, french, gender), article = choose(NOUNS), ["the", "a"][draw.randint(2)]
        adjective, *genders = choose(ADJECTIVES)
        if draw.randint(2):
            return [article, english], [ARTICLES[article][gender], french]
        agreeing = genders["mf".index(gender)]
        return [article, adjective, english], [ARTICLES[article][gender], french, agreeing]

    (subject, sujet), (thing, objet), (verb, verbe) = noun(), noun(), choose(VERBS)
    adverb, adverbe = choose(ADVERBS) if draw.randint(2) else ("", "")
    return [*subject, *adverb.split(), verb, *thing], [*sujet, verbe, *adverbe.split(), *objet]


def dictionary(language):
    draw = np.random.RandomState(0)
    words = sorted({word for _ in range(500) for word in sentence(draw)[language]})
    return {word: number for number, word in enumerate(["<s>", "<e>", "<unk>", *words])}


ENGLISH, FRENCH = dictionary(0), dictionary(1)


def pairs(count, seed):
    """A reader of (source ids, target ids after <s>, target ids before <e>)."""

    def reader():
        draw = np.random.RandomState(seed)
        for _ in range(count):
            english, french = sentence(draw)
            target = [FRENCH[word] for word in french]
            yield [ENGLISH[word] for word in english], [START, *target], [*target, END]

    return reader


def encoder(source, size):
    """For each word what is around it, and its part in attention; the decoder's first state."""
    embedding = fluid.layers.embedding(input=source, size=[len(ENGLISH), size])
    forward = fluid.layers.dynamic_gru(input=fluid.layers.fc(embedding, size=3 * size), size=size)
    backward = fluid.layers.dynamic_gru(input=fluid.layers.fc(embedding, size=3 * size), size=size, is_reverse=True)
    encoded = fluid.layers.concat(input=[forward, backward], axis=1)
    projected = fluid.layers.fc(input=encoded, size=size, bias_attr=False)
    first_state = fluid.layers.fc(input=fluid.layers.sequence_first_step(backward), size=size, act="tanh")
    return encoded, projected, first_state


def simple_attention(encoded, projected, state, size):
    """The sum of what is encoded, weighted by how well each word goes with the decoder's state."""
    state_projected = fluid.layers.fc(input=state, size=size, bias_attr=False)
    state_expanded = fluid.layers.sequence_expand(x=state_projected, y=projected)
    mixed = fluid.layers.tanh(fluid.layers.elementwise_add(x=projected, y=state_expanded))
    weights = fluid.layers.sequence_softmax(fluid.layers.fc(input=mixed, size=1, bias_attr=False))
    scaled = fluid.layers.elementwise_mul(x=encoded, y=fluid.layers.reshape(x=weights, shape=[-1]), axis=0)
    return fluid.layers.sequence_pool(input=scaled, pool_type="sum")


def decoder_step(word, state, encoded, projected, size):
    """The next state of the decoder, and the probabilities of the next word."""
    context = simple_attention(encoded, projected, state, size)
    gates = fluid.layers.fc(input=[context, word], size=3 * size)
    state, _, _ = fluid.layers.gru_unit(input=gates, hidden=state, size=3 * size)
    return state, fluid.layers.fc(input=state, size=len(FRENCH), act="softmax")


def training_decoder(target, encoder_outputs, size):
    encoded, projected, first_state = encoder_outputs
    embedding = fluid.layers.embedding(input=target, size=[len(FRENCH), size])
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(embedding)
        encoded, projected = rnn.static_input(encoded), rnn.static_input(projected)
        state = rnn.memory(init=first_state, need_reorder=True)
        next_state, probabilities = decoder_step(word, state, encoded, projected, size)
        rnn.update_memory(state, next_state)
        rnn.output(probabilities)
    return rnn()


def translating_decoder(encoder_outputs, size, beam_size):
    """Ids and scores of the best translations. All that belongs to a beam goes from array to array, as beams come and go."""
    layers = fluid.layers
    init_ids = layers.data(name="init_ids", shape=[1], dtype="int64", lod_level=2)
    init_scores = layers.data(name="init_scores", shape=[1], dtype="float32", lod_level=2)
    limit = layers.fill_constant(shape=[1], dtype="int64", value=MAX_LENGTH)
    counter = layers.zeros(shape=[1], dtype="int64", force_cpu=True)
    ids_array, scores_array = layers.array_write(init_ids, i=counter), layers.array_write(init_scores, i=counter)
    beam_arrays = [layers.array_write(value, i=counter) for value in encoder_outputs]
    cond = layers.less_than(x=counter, y=limit)
    while_op = layers.While(cond=cond)
    with while_op.block():
        pre_ids, pre_scores = layers.array_read(ids_array, i=counter), layers.array_read(scores_array, i=counter)
        encoded, projected, state = (
            layers.sequence_expand(x=layers.array_read(array, i=counter), y=pre_scores) for array in beam_arrays
        )
        word = layers.embedding(input=pre_ids, size=[len(FRENCH), size])
        state, probabilities = decoder_step(word, state, encoded, projected, size)
        topk_scores, topk_ids = layers.topk(layers.lod_reset(x=probabilities, y=pre_scores), k=beam_size)
        scores = layers.elementwise_add(x=layers.log(topk_scores), y=layers.reshape(pre_scores, shape=[-1]), axis=0)
        ids, scores = layers.beam_search(pre_ids, pre_scores, topk_ids, scores, beam_size, end_id=END, level=0)
        layers.increment(x=counter, value=1, in_place=True)
        layers.array_write(ids, array=ids_array, i=counter)
        layers.array_write(scores, array=scores_array, i=counter)
        for value, array in zip((encoded, projected, state), beam_arrays):
            layers.array_write(value, array=array, i=counter)
        within = layers.less_than(x=counter, y=limit)
        layers.logical_and(x=within, y=layers.logical_not(layers.is_empty(x=ids)), out=cond)
    return layers.beam_search_decode(ids=ids_array, scores=scores_array, beam_size=beam_size, end_id=END)


def train(options, place, size):
    source = fluid.layers.data(name="source", shape=[1], dtype="int64", lod_level=1)
    target = fluid.layers.data(name="target", shape=[1], dtype="int64", lod_level=1)
    next_word = fluid.layers.data(name="next_word", shape=[1], dtype="int64", lod_level=1)
    probabilities = training_decoder(target, encoder(source, size), size)
    avg_cost = fluid.layers.mean(fluid.layers.cross_entropy(input=probabilities, label=next_word))
    fluid.optimizer.Adam(learning_rate=0.01).minimize(avg_cost)

    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=[source, target, next_word], place=place)
    samples = pairs(800 if options.small else 2000, seed=1)
    reader = fluid.io.batch(fluid.io.shuffle(samples, buf_size=4000), batch_size=32)
    for epoch in range(options.epochs):
        losses = [exe.run(feed=feeder.feed(batch), fetch_list=[avg_cost])[0].item() for batch in reader()]
        print(f"epoch {epoch}: loss {np.mean(losses):.4f}")


def save(options, place, size):
    """Save the program that translates. Built in the same order as the other, it has the same names of parameters."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        source = fluid.layers.data(name="source", shape=[1], dtype="int64", lod_level=1)
        translations = translating_decoder(encoder(source, size), size, beam_size=3)
        feeds = ["source", "init_ids", "init_scores"]
        program = fluid.default_main_program()
        fluid.io.save_inference_model(options.out, feeds, list(translations), fluid.Executor(place), program)


def infer(options, place):
    exe = fluid.Executor(place)
    samples = list(pairs(50, seed=2)())
    sources = [source for source, _, _ in samples]
    one_each = [[1] * len(samples)] * 2
    feed = {
        "source": fluid.create_lod_tensor(np.concatenate(sources)[:, None], [[len(ids) for ids in sources]], place),
        "init_ids": fluid.create_lod_tensor(np.full((len(samples), 1), START, "int64"), one_each, place),
        "init_scores": fluid.create_lod_tensor(np.zeros((len(samples), 1), "float32"), one_each, place),
    }
    with fluid.scope_guard(fluid.Scope()):
        program, _, fetches = fluid.io.load_inference_model(options.out, exe)
        outputs = exe.run(program, feed=feed, fetch_list=fetches, return_numpy=False)
    common.save_example(options.out, feed, [fetch.name for fetch in fetches], outputs)
    found = best_of_each(outputs[0])
    french, english = sorted(FRENCH, key=FRENCH.get), sorted(ENGLISH, key=ENGLISH.get)
    print(" ".join(english[number] for number in sources[0]), "->", " ".join(french[number] for number in found[0]))
    right = [ids == target[1:] for ids, (_, target, _) in zip(found, samples)]
    common.report("share of sentences translated word by word as expected", np.mean(right), 0.9)


def best_of_each(translations):
    """The word ids of the first, best translation of each sentence, without <s> and <e>."""
    ids, (beams, words) = np.array(translations).ravel(), translations.lod()
    hypotheses = [ids[words[beam] : words[beam + 1]] for beam in beams[:-1]]
    return [[number for number in hypothesis if number not in (START, END)] for hypothesis in hypotheses]


def main():
    options = common.options(__doc__, epochs=2, epochs_of_small=5)
    size = 24 if options.small else 48
    fluid.default_startup_program().random_seed = 1
    place = fluid.CPUPlace()
    with fluid.unique_name.guard():
        train(options, place, size)
    save(options, place, size)
    infer(options, place)


if __name__ == "__main__":
    main()
