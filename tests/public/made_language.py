"""Files for scripts of models that read language: BERT and ERNIE of 2 layers of 16, classes, questions and dialogues."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator

Files = Iterator[tuple[str, bytes]]
LETTERS = "一丁七万丈三上下"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[EOS]", "[unused0]", "[unused1]", "<S>", "<T>")
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "relu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 16,
    "initializer_range": 0.02,
    "intermediate_size": 32,
    "max_position_embeddings": 513,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": 400,
}


class Draw(random.Random):
    """Draws words and letters."""

    def words(self, least: int, most: int) -> str:
        """Words by number, parted by blanks."""
        return " ".join(f"w{int(199 * self.random() ** 2)}" for _ in range(self.randint(least, most)))

    def numbers(self, least: int, most: int) -> str:
        """Words as numbers, parted by blanks."""
        return " ".join(str(self.randrange(1, 200)) for _ in range(self.randint(least, most)))


def rows(count: int, row: Callable[[int], str], heading: str = "") -> bytes:
    """Lines, below a heading."""
    return (heading + "".join(f"{row(number)}\n" for number in range(count))).encode()


def network(name: str, folder: str) -> Files:
    """The vocabulary and the settings of a network."""
    yield f"{folder}/vocab.txt", "\n".join([*SPECIAL, *(f"w{n}" for n in range(200)), *LETTERS]).encode()
    yield f"{folder}/{name}", json.dumps(CONFIG).encode()


def bert() -> Files:
    """`BERT`: pairs of sentences (MRPC, MNLI), judged sentences (CoLA), questions (SQuAD) and text to be pretrained on."""
    draw = Draw(5)
    yield from network("bert_config.json", "small")
    pairs = rows(
        24, lambda n: f"{n % 2}\t{n}\t{n + 1}\t{draw.words(3, 9)}\t{draw.words(3, 9)}", "Quality\tID\tID\tText\tText\n"
    )
    judged = rows(24, lambda n: f"gj{n}\t{n % 2}\t*\t{draw.words(6, 6)}")
    kinds = ("neutral", "entailment", "contradiction")
    followed = rows(
        25, lambda n: "\t".join([*"00000000", draw.words(5, 5), draw.words(6, 6), kinds[n % 3], kinds[n % 3]])
    )
    for name in ("train", "dev", "test"):
        yield f"glue/{name}.tsv", pairs
        yield f"cola/{name}.tsv", judged
    for name in ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"):
        yield f"mnli/{name}.tsv", followed
    questions = json.dumps({"version": "1.1", "data": [asked(draw, number) for number in range(4)]}).encode()
    yield "squad/train.json", questions
    yield "squad/dev.json", questions
    text = gzip.compress(rows(40, lambda n: pretrained_on(draw, n % 2)), mtime=0)
    yield "pre/train/part.gz", text
    yield "pre/val/part.gz", text


def asked(draw: Draw, article: int) -> dict[str, object]:
    """An article with three questions, whose answers are two of its words."""
    words = draw.words(40, 40).split()
    questions = []
    for number in range(3):
        first = draw.randrange(1, 30)
        answer = {"text": " ".join(words[first : first + 2]), "answer_start": len(" ".join(words[:first])) + 1}
        questions.append({"id": f"{article}-{number}", "question": draw.words(6, 6), "answers": [answer]})
    return {"title": "t", "paragraphs": [{"context": " ".join(words), "qas": questions}]}


def pretrained_on(draw: Draw, follows: int) -> str:
    """Two sentences as numbers: of their words, of the sentences, of the positions, and whether one follows the other."""
    first, second = ([str(draw.randrange(10, 200)) for _ in range(draw.randint(5, 10))] for _ in range(2))
    words = ["2", *first, "3", *second, "3"]
    parts = ["0"] * (len(first) + 2) + ["1"] * (len(second) + 1)
    return ";".join([" ".join(words), " ".join(parts), " ".join(map(str, range(len(words)))), str(follows)])


def evaluated() -> Files:
    """`auto_dialogue_evaluation`: what was said and answered, with whether it fits, or how well."""
    draw = Draw(6)
    for folder, classes in (("unlabel", 2), ("label", 3)):
        for name in ("train", "test"):
            said = rows(40, lambda n: f"{draw.numbers(3, 12)}\t{draw.numbers(3, 12)}\t{n % classes}")  # noqa: B023
            yield f"data/small/{folder}/{name}.ids", said
    for folder in ("a", "b"):
        yield f"data/saved_models/{folder}/empty", b""


def understood() -> Files:
    """`dialogue_general_understanding`: its six tasks."""
    draw = Draw(7)
    yield from network("bert_config.json", "data/small")
    yield "data/small/init/empty", b""

    def slots() -> str:
        said = draw.words(3, 8)
        return f"{said}\t{' '.join(str(draw.randrange(120)) for _ in said.split())}"

    tasks: dict[str, Callable[[int], str]] = {
        "udc": lambda n: f"{n % 2}\t{draw.words(3, 8)}\t{draw.words(3, 8)}\t{draw.words(3, 8)}",
        "swda": lambda n: f"{n // 5}\t{n % 40}\tA\t{draw.words(3, 8)}",
        "mrda": lambda n: f"{n // 5}\t{n % 5}\tB\t{draw.words(3, 8)}",
        "atis_intent": lambda n: f"{n % 20}\t{draw.words(3, 8)}",
        "atis_slot": lambda n: slots(),
        "dstc2": lambda n: (
            f"{n // 4}\t{draw.words(3, 8)}\1{draw.words(3, 8)}\t{draw.randrange(200)} {draw.randrange(200)}"
        ),
    }
    for task, row in tasks.items():
        yield f"data/saved_models/{task}/empty", b""
        for name in ("train", "dev", "test"):
            yield f"data/small/{task}/{name}.txt", rows(20, row)


def characters() -> Files:
    """ERNIE's scripts: Chinese characters by chance in classes or with tags, longer than what is read of them."""
    draw = Draw(8)
    yield from network("ernie_config.json", "ern")
    yield "ern/params/empty", b""

    def text() -> list[str]:
        return draw.choices(LETTERS, k=44)

    for name in ("train", "dev", "test", "infer"):
        yield f"ern/{name}.tsv", rows(24, lambda n: f"{''.join(text())}\t{n % 2}", "text_a\tlabel\n")
        yield f"ern/e{name}.tsv", rows(24, lambda n: f"{n % 3}\t{''.join(text())}", "label\ttext_a\n")
        tagged = rows(
            24,
            lambda n: "\2".join(text()) + "\t" + "\2".join(draw.choices(["n-B", "n-I", "v-B", "O"], k=44)),
            "text_a\tlabel\n",
        )
        yield f"ern/s{name}.tsv", tagged


LANGUAGE = {
    "PaddleNLP/PaddleDialogue/auto_dialogue_evaluation": evaluated,
    "PaddleNLP/PaddleDialogue/dialogue_general_understanding": understood,
    "PaddleNLP/PaddleLARK/BERT": bert,
    "PaddleNLP/dialogue_system/auto_dialogue_evaluation": evaluated,
    "PaddleNLP/dialogue_system/dialogue_general_understanding": understood,
    "PaddleNLP/emotion_detection": characters,
    "PaddleNLP/lexical_analysis": characters,
    "PaddleNLP/pretrain_language_models/BERT": bert,
    "PaddleNLP/sentiment_classification": characters,
}
