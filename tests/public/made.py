"""`python -m tests.public.made FOLDER`: small files in the formats that scripts of PaddlePaddle/models read, for --data."""

from __future__ import annotations

import gzip
import pickle
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.public.made_language import LANGUAGE

WORDS = 200


def sentences(count: int, lengths: tuple[int, int]) -> Iterator[list[int]]:
    """Lists of words by number, from 1 on: some are more frequent than others."""
    draw = random.Random(count)
    for _ in range(count):
        yield [1 + int((WORDS - 1) * draw.random() ** 2) for _ in range(draw.randint(*lengths))]


def text(numbers: list[int]) -> str:
    """Numbers, parted by blanks."""
    return " ".join(map(str, numbers))


def interest_network() -> Iterator[tuple[str, bytes]]:
    """`ctr/din`: bought items; their categories; an item; its category; whether it is bought next."""
    lines = (
        f"{text(s)};{text([n % 9 for n in s])};{s[0] + 1};{(s[0] + 1) % 9};{s[0] % 2}" for s in sentences(64, (2, 9))
    )
    data = "\n".join(lines).encode()
    yield "config.txt", f"{WORDS}\n{WORDS + 2}\n9\n".encode()
    yield "paddle_train.txt", data
    yield "paddle_test.txt", data


def sessions() -> Iterator[tuple[str, bytes]]:
    """`gnn`: items of sessions, and the item that follows each."""
    found = list(sentences(220, (3, 9)))
    yield "config.txt", f"{WORDS + 1}\n".encode()
    for name in ("train.txt", "test.txt"):
        yield name, pickle.dumps(([each[:-1] for each in found], [each[-1] for each in found]), 2)


def corpus() -> Iterator[tuple[str, bytes]]:
    """`word2vec`: lines of words by number, and how often each occurs."""
    found = [[number - 1 for number in each] for each in sentences(60, (5, 12))]
    flat = [number for each in found for number in each]
    yield "text/part-0", "\n".join(map(text, found)).encode()
    yield "1-billion_dict", "\n".join(f"word{number} {1 + flat.count(number)}" for number in range(WORDS)).encode()
    yield "1-billion_dict_word_to_id_", "\n".join(f"word{number} {number}" for number in range(WORDS)).encode()


def pictures() -> Iterator[tuple[str, bytes]]:
    """`image_classification`: pictures of 64 by 64, in a format that is read alike everywhere, and lists of them with classes."""
    draw = random.Random(0)
    for number in range(16):
        yield f"made/{number}.ppm", picture(draw, 64, 64)
    for name in ("train_list.txt", "val_list.txt"):
        yield name, "\n".join(f"made/{number}.ppm {number % 10}" for number in range(16)).encode()


def words(numbers: list[int]) -> str:
    """Words by number, parted by blanks."""
    return " ".join(f"w{number}" for number in numbers)


def labeled() -> Iterator[tuple[str, bytes]]:
    """`emotion_detection` and `sentiment_classification`: sentences with classes, in the order that each reads, and the words."""
    found = list(sentences(48, (3, 20)))
    classed = "label\ttext_a\n" + "\n".join(f"{s[0] % 3}\t{words(s)}" for s in found)
    yield "data/vocab.txt", "\n".join(["<pad>", *(f"w{n}" for n in range(WORDS))]).encode()
    yield "senta_data/word_dict.txt", "\n".join(["<pad>", *(f"w{n}" for n in range(WORDS)), "<unk>"]).encode()
    for name in ("train", "dev", "test"):
        yield f"data/{name}.tsv", classed.encode()
        yield (
            f"senta_data/{name}.tsv",
            ("text_a\tlabel\n" + "\n".join(f"{words(s)}\t{s[0] % 2}" for s in found)).encode(),
        )
    yield "data/infer.tsv", ("text_a\n" + "\n".join(map(words, found))).encode()


def matches() -> Iterator[tuple[str, bytes]]:
    """`similarity_net`: a query with a title that fits and one that does not, or with a title and whether it fits."""
    found = list(sentences(48, (3, 9)))
    others = zip(found, found[1:] + found[:1], strict=True)
    pairs = "\n".join(f"{words(a)}\t{words(a[1:])}\t{words(b)}" for a, b in others)
    judged = "\n".join(f"{words(a)}\t{words(a[1:])}\t{a[0] % 2}" for a in found)
    yield "term2id.dict", "\n".join(f"w{n}\t{n + 1}" for n in range(WORDS)).encode()
    yield "train_pairwise_data", pairs.encode()
    for name in ("train_pointwise_data", "test_pairwise_data", "test_pointwise_data"):
        yield name, judged.encode()
    yield "infer_data", "\n".join(f"{words(a)}\t{words(a[1:])}" for a in found).encode()


def tagged() -> Iterator[tuple[str, bytes]]:
    """`lexical_analysis`: characters and their tags, and text without."""
    letters = "\u4e00\u4e01\u4e03\u4e07\u4e08\u4e09\u4e0a\u4e0b"
    found = [[number % len(letters) for number in each] for each in sentences(40, (4, 20))]
    rows = (
        "\002".join(letters[n] for n in s) + "\t" + "\002".join(["n-B", "n-I", "v-B", "O"][n % 4] for n in s)
        for s in found
    )
    data = ("text_a\tlabel\n" + "\n".join(rows) + "\n").encode()
    yield "train.tsv", data
    yield "test.tsv", data
    yield "infer.tsv", "\n".join("".join(letters[n] for n in s) for s in found).encode()


def plain_text() -> Iterator[tuple[str, bytes]]:
    """`language_model` and `variational_seq2seq`: text alone."""
    for name, count in (("train", 150), ("valid", 60), ("test", 60)):
        data = "\n".join(f" {words(s)} " for s in sentences(count, (5, 15))).encode()
        yield f"simple-examples/data/ptb.{name}.txt", data
        yield f"ptb/ptb.{name}.txt", data


def translations() -> Iterator[tuple[str, bytes]]:
    """`seq2seq`: sentences in two languages, and the words of both."""
    vocabulary = "\n".join(["<unk>", "<s>", "</s>", *(f"w{n}" for n in range(WORDS))]).encode()
    found = list(sentences(60, (3, 9)))
    for language in ("en", "vi"):
        yield f"vocab.{language}", vocabulary
        for name in ("train", "tst2012", "tst2013"):
            sides = found if language == "en" else [each[::-1] for each in found]
            yield f"{name}.{language}", "\n".join(map(words, sides)).encode()


def paired() -> Iterator[tuple[str, bytes]]:
    """`transformer`: both languages in one line."""
    found = list(sentences(60, (3, 9)))
    data = "\n".join(f"{words(s)}\t{words(s[::-1])}" for s in found).encode()
    yield "vocab_all.bpe.32000", "\n".join(["<s>", "<e>", "<unk>", *(f"w{n}" for n in range(WORDS))]).encode()
    yield "train.tok.clean.bpe.32000.en-de", data
    yield "newstest2016.tok.bpe.32000.en-de", data


def advertisements() -> Iterator[tuple[str, bytes]]:
    """`ctr/dcn`, `ctr/deepfm`, `ctr/xdeepfm`, `ctr/dnn`: clicks with 13 numbers and 26 classes."""
    rows = [[1 + (number * 7 + place * 3) % 11 for place in range(39)] for number in range(400)]
    named = "".join(
        f"{i % 2}\t{chr(9).join(map(str, r[:13]))}\t{chr(9).join(f'{n:08x}' for n in r[13:])}\n"
        for i, r in enumerate(rows)
    )
    for folder in (
        "dcn/data/train",
        "dcn/data/test_valid",
        "deepfm/data/train_data",
        "deepfm/data/test_data",
        "dnn/data/raw",
    ):
        yield f"{folder}/part-0", named.encode()
    for name in range(1, 27):
        yield f"dcn/data/vocab/C{name}.txt", "".join(f"{n:08x}\n" for n in range(12)).encode()
    yield "dcn/data/cat_feature_num.txt", "".join(f"C{name} 14\n" for name in range(1, 27)).encode()
    features = {**{place: place for place in range(1, 14)}, **{f"{n:08x}": 14 + n for n in range(12)}}
    yield "deepfm/data/aid_data/feat_dict_10.pkl2", pickle.dumps(features, 2)
    numbered = "".join(f"{i % 2}\t{chr(9).join(map(str, r))}\n" for i, r in enumerate(rows)).encode()
    yield "xdeepfm/data/train_data/part-0", numbered
    yield "xdeepfm/data/test_data/part-0", numbered


def incomes() -> Iterator[tuple[str, bytes]]:
    """`ctr/wide_deep`: 8 and 58 features and a class, below a heading."""
    rows = "".join(",".join(str((i * 5 + k) % 7) for k in range(66)) + f",{i % 2}\n" for i in range(120))
    for name in ("train", "test"):
        yield f"{name}_data/{name}_data.csv", f"heading\n{rows}".encode()
        yield f"{name}_data/columns.txt", b"8\n58\n"


def censuses() -> Iterator[tuple[str, bytes]]:
    """`multi_task/mmoe` and `share_bottom`: two classes and 499 features, below a heading."""
    rows = "".join(
        f"{i % 2},{i // 2 % 2}," + ",".join(str((i * 5 + k) % 7 / 7) for k in range(499)) + "\n" for i in range(64)
    )
    for name in ("train", "test"):
        yield f"{name}_data/part.csv", f"heading\n{rows}".encode()


def ratings() -> Iterator[tuple[str, bytes]]:
    """`ncf`: users and items, with whether they met; and those to be ranked."""
    pairs = [(s[0], s[1]) for s in sentences(600, (3, 4))]
    yield "train_data.csv", "".join(f"{u},{i},{(u + i) % 2}\n" for u, i in pairs).encode()
    yield "test.txt", "".join(f"{u},{i}\n" for u, i in pairs).encode()
    yield "ml-1m.test.rating", "".join(f"{u}\t{i}\t3\t0\n" for u, i in pairs[:50]).encode()
    yield (
        "ml-1m.test.negative",
        "".join(f"({u},{i})\t{chr(9).join(map(str, range(1, 20)))}\n" for u, i in pairs[:50]).encode(),
    )
    yield "ml-1m.train.rating", "".join(f"{u}\t{i}\t3\t0\n" for u, i in pairs).encode()


def visits() -> Iterator[tuple[str, bytes]]:
    """`multi_task/esmm`: clicks and purchases, with features by field."""
    fields = ("101", "109_14", "121", "127", "205", "508", "853", "301")
    rows = (
        f"{i},{i % 2},{i % 4 // 2},0,"
        + ",".join(f"{field}:{(i * 3 + k) % 50 + 1}" for k, field in enumerate(fields))
        + "\n"
        for i in range(300)
    )
    data = "".join(rows).encode()
    yield "train_data/part-0", data
    yield "test_data/part-0", data


def digits() -> Iterator[tuple[str, bytes]]:
    """`gan`: handwritten digits in MNIST's own files."""
    draw = random.Random(0)
    images = bytes(draw.randrange(256) for _ in range(200 * 28 * 28))
    yield "train-images-idx3-ubyte.gz", gzip.compress(struct.pack(">4i", 2051, 200, 28, 28) + images, mtime=0)
    yield (
        "train-labels-idx1-ubyte.gz",
        gzip.compress(struct.pack(">2i", 2049, 200) + bytes(n % 10 for n in range(200)), mtime=0),
    )


def picture(draw: random.Random, width: int, height: int) -> bytes:
    """A picture of random colors, in a format that is read alike everywhere."""
    return f"P6 {width} {height} 255\n".encode() + draw.randbytes(3 * width * height)


def products() -> Iterator[tuple[str, bytes]]:
    """`metric_learning`: pictures of products, and a list of their classes below a heading."""
    draw = random.Random(0)
    for number in range(16):
        yield f"made/{number}.ppm", picture(draw, 72, 72)
    rows = "".join(f"{n + 1} {n // 4 + 1} 1 made/{n}.ppm\n" for n in range(16))
    for name in ("Ebay_train.txt", "Ebay_test.txt"):
        yield name, f"image_id class_id super_class_id path\n{rows}".encode()


def lines_of_text() -> Iterator[tuple[str, bytes]]:
    """`ocr_recognition`: pictures of lines of text, and lists of their sizes and letters."""
    draw = random.Random(0)
    for number in range(160):
        yield f"images/{number}.ppm", picture(draw, 384, 48)
    rows = "".join(f"384 48 {n}.ppm {','.join(str((n * 3 + k) % 90) for k in range(2 + n % 4))}\n" for n in range(160))
    yield "list.txt", rows.encode()


def styles() -> Iterator[tuple[str, bytes]]:
    """`gan`: pictures of two kinds, in pairs, and faces with attributes."""
    draw = random.Random(0)
    for name in ("A", "B"):
        for number in range(4):
            yield f"cityscapes/{name}/{number}.jpg", picture(draw, 40, 40)
        rows = "".join(f"{name}/{number}.jpg\n" for number in range(4))
        yield f"cityscapes/train{name}.txt", rows.encode()
        yield f"cityscapes/test{name}.txt", rows.encode()
    pairs = "".join(f"A/{number}.jpg\tB/{number}.jpg\n" for number in range(4))
    yield "cityscapes/pix2pix_train_list", pairs.encode()
    yield "cityscapes/pix2pix_test_list", pairs.encode()
    attributes = (
        "Bald Bangs Black_Hair Blond_Hair Brown_Hair Bushy_Eyebrows Eyeglasses Male Mouth_Slightly_Open Mustache"
    )
    names = f"{attributes} No_Beard Pale_Skin Young"
    rows = "".join(f"{n:06d}.jpg {' '.join(str(1 - 2 * ((n + k) % 2)) for k in range(13))}\n" for n in range(8))
    for number in range(8):
        yield f"celeba/img_align_celeba/{number:06d}.jpg", picture(draw, 40, 40)
    yield "celeba/list_attr_celeba.txt", f"8\n{names}\n{rows}".encode()


def objects() -> Iterator[tuple[str, bytes]]:
    """`ssd`: pictures with boxes and their kinds, as Pascal VOC has them."""
    draw = random.Random(0)
    yield "label_list", "\n".join(f"kind{n}" for n in range(21)).encode()
    for number in range(8):
        boxes = "".join(
            f"<object><name>kind{1 + (number + k) % 20}</name><difficult>0</difficult><bndbox><xmin>{10 + 20 * k}</xmin>"
            f"<ymin>{8 + 5 * k}</ymin><xmax>{60 + 10 * k}</xmax><ymax>{70 + 6 * k}</ymax></bndbox></object>"
            for k in range(2)
        )
        yield f"made/{number}.jpg", picture(draw, 120, 100)
        yield (
            f"made/{number}.xml",
            f"<annotation><size><width>120</width><height>100</height></size>{boxes}</annotation>".encode(),
        )
    rows = "".join(f"made/{n}.jpg made/{n}.xml\n" for n in range(8)).encode()
    yield "trainval.txt", rows
    yield "test.txt", rows


MADE = {
    "PaddleCV/PaddleGAN/data": styles,
    "PaddleCV/PaddleGAN/data/mnist": digits,
    "PaddleCV/gan/data": styles,
    "PaddleCV/gan/data/mnist": digits,
    "PaddleCV/image_classification/data/ILSVRC2012": pictures,
    "PaddleCV/metric_learning/data/Stanford_Online_Products": products,
    "PaddleCV/ocr_recognition/data": lines_of_text,
    "PaddleCV/ssd/data/pascalvoc": objects,
    "PaddleNLP/PaddleMT/transformer/wmt16_ende_data_bpe": paired,
    "PaddleNLP/PaddleTextGEN/seq2seq/data/en-vi": translations,
    "PaddleNLP/PaddleTextGEN/variational_seq2seq/data": plain_text,
    "PaddleNLP/emotion_detection": labeled,
    "PaddleNLP/language_model/data": plain_text,
    "PaddleNLP/lexical_analysis/data": tagged,
    "PaddleNLP/machine_translation/transformer/wmt16_ende_data_bpe": paired,
    "PaddleNLP/sentiment_classification": labeled,
    "PaddleNLP/seq2seq/seq2seq/data/en-vi": translations,
    "PaddleNLP/seq2seq/variational_seq2seq/data": plain_text,
    "PaddleNLP/similarity_net/data": matches,
    "PaddleRec/ctr": advertisements,
    "PaddleRec/ctr/din/data": interest_network,
    "PaddleRec/ctr/wide_deep": incomes,
    "PaddleRec/gnn/data/diginetica": sessions,
    "PaddleRec/multi_task/esmm": visits,
    "PaddleRec/multi_task/mmoe": censuses,
    "PaddleRec/multi_task/share_bottom": censuses,
    "PaddleRec/ncf/Data": ratings,
    "PaddleRec/word2vec/data": corpus,
}

if __name__ == "__main__":
    for folder, make in [*MADE.items(), *LANGUAGE.items()]:
        for name, data in make():
            path = Path(sys.argv[1]) / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
