"""Recommendation: ratings of films, from what is known of the user and of the film, by cosine similarity.

Usage: python recommender_system.py [--epochs N] [--small] [--out FOLDER]

The ratings are made up: tastes depend on age, sex and job, films on categories and words of the title; a rating of 1 to 5
is how well they fit, plus noise of standard deviation 0.3.
"""

import common
import numpy as np

import fluidtool.fluid as fluid

USERS, AGES, JOBS, FILMS, CATEGORIES, WORDS = 60, 7, 10, 80, 8, 40
FACTORS = 4
NAMES = ["user_id", "gender_id", "age_id", "job_id", "movie_id", "category_id", "movie_title"]


def ratings(count, seed):
    """A reader of [user, sex, age, job, film, categories, title, [rating]]."""
    world = np.random.RandomState(0)
    of_sex, of_age, of_job = (world.normal(0, 1, (size, FACTORS)) for size in (2, AGES, JOBS))
    of_category, of_word = (world.normal(0, 1, (size, FACTORS)) for size in (CATEGORIES, WORDS))
    users = [[user, world.randint(2), world.randint(AGES), world.randint(JOBS)] for user in range(USERS)]
    films = [
        (
            film,
            list(world.choice(CATEGORIES, world.randint(1, 4), replace=False)),
            list(world.choice(WORDS, world.randint(3, 6))),
        )
        for film in range(FILMS)
    ]

    def reader():
        draw = np.random.RandomState(seed)
        for _ in range(count):
            user, sex, age, job = users[draw.randint(USERS)]
            film, categories, title = films[draw.randint(FILMS)]
            taste = of_sex[sex] + of_age[age] + of_job[job]
            kind = of_category[categories].mean(axis=0) + of_word[title].mean(axis=0)
            fit = taste.dot(kind) / np.linalg.norm(taste) / np.linalg.norm(kind)
            yield [user, sex, age, job, film, categories, title, [np.clip(3 + 2 * fit + draw.normal(0, 0.3), 1, 5)]]

    return reader


def embedded(name, size, width):
    """An input of ids, its embedding, and a fully connected layer on it."""
    ids = fluid.layers.data(name=name, shape=[1], dtype="int64")
    embedding = fluid.layers.embedding(input=ids, size=[size, width], param_attr=name + "_table", is_sparse=True)
    return fluid.layers.fc(input=embedding, size=width)


def usr_combined_features(width):
    user = embedded("user_id", USERS, width)
    gender = embedded("gender_id", 2, width // 2)
    age = embedded("age_id", AGES, width // 2)
    job = embedded("job_id", JOBS, width // 2)
    concat = fluid.layers.concat(input=[user, gender, age, job], axis=1)
    return fluid.layers.fc(input=concat, size=2 * width, act="tanh")


def mov_combined_features(width):
    film = embedded("movie_id", FILMS, width)
    category = fluid.layers.data(name="category_id", shape=[1], dtype="int64", lod_level=1)
    category = fluid.layers.embedding(input=category, size=[CATEGORIES, width], is_sparse=True)
    category = fluid.layers.sequence_pool(input=category, pool_type="sum")
    title = fluid.layers.data(name="movie_title", shape=[1], dtype="int64", lod_level=1)
    title = fluid.layers.embedding(input=title, size=[WORDS, width], is_sparse=True)
    title = fluid.nets.sequence_conv_pool(input=title, num_filters=width, filter_size=3, act="tanh", pool_type="sum")
    concat = fluid.layers.concat(input=[film, category, title], axis=1)
    return fluid.layers.fc(input=concat, size=2 * width, act="tanh")


def train(options, place):
    width = 8 if options.small else 32
    inference = fluid.layers.cos_sim(X=usr_combined_features(width), Y=mov_combined_features(width))
    scale_infer = fluid.layers.scale(x=inference, scale=2.0, bias=3.0)
    label = fluid.layers.data(name="score", shape=[1], dtype="float32")
    avg_cost = fluid.layers.mean(fluid.layers.square_error_cost(input=scale_infer, label=label))
    fluid.optimizer.Adam(learning_rate=0.005).minimize(avg_cost)

    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=[*NAMES, "score"], place=place)
    samples = ratings(1500 if options.small else 4000, seed=1)
    reader = fluid.io.batch(fluid.io.shuffle(samples, buf_size=4000), batch_size=64)
    for epoch in range(options.epochs):
        losses = [exe.run(feed=feeder.feed(batch), fetch_list=[avg_cost])[0].item() for batch in reader()]
        print(f"epoch {epoch}: loss {np.mean(losses):.4f}")
    fluid.io.save_inference_model(options.out, NAMES, [scale_infer], exe)


def infer(options, place):
    exe = fluid.Executor(place)
    with fluid.scope_guard(fluid.Scope()):
        program, feed_names, fetches = fluid.io.load_inference_model(options.out, exe)
        samples = list(ratings(300, seed=2)())
        feed = fluid.DataFeeder(feed_names, place, program).feed([sample[:-1] for sample in samples])
        outputs = exe.run(program, feed=feed, fetch_list=fetches)
    scores = np.array([sample[-1] for sample in samples])
    common.save_example(options.out, feed, [fetch.name for fetch in fetches], outputs)
    print(f"of the mean rating: {np.std(scores):.4f}")
    common.report("root mean squared error", np.sqrt(np.mean((outputs[0] - scores) ** 2)), 0.5, at_most=True)


def main():
    options = common.options(__doc__, epochs=8, epochs_of_small=10)
    fluid.default_startup_program().random_seed = 1
    place = fluid.CPUPlace()
    train(options, place)
    infer(options, place)


if __name__ == "__main__":
    main()
