"""Write the data of the samples, taken from an installed scikit-learn: digits.npz and topics.npz.

Usage: python prepare_data.py OUT_FOLDER

digits.npz: the 1,797 hand-written digits of 8x8 pixels (pixels 0..1), split into train and test.
topics.npz: paragraphs of scikit-learn's own docstrings as word ids; the label is the sub-package a paragraph documents.
Whole docstrings go to either train or test, so no near copy of a test paragraph is trained on.
"""

import ast
import re
import sys
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import sklearn
from sklearn.datasets import load_digits

TOPICS = ["cluster", "datasets", "linear_model", "metrics"]
VOCABULARY_SIZE = 1200
UNKNOWN = "<unknown>"


def digits():
    """Arrays of the digits data set: images [N, 1, 8, 8] float32 and labels [N, 1] int64."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(images))
    images = (images[order] / 16).astype("float32").reshape(-1, 1, 8, 8)
    labels = labels[order].astype("int64").reshape(-1, 1)
    train = len(images) * 4 // 5
    return {
        "train_images": images[:train],
        "train_labels": labels[:train],
        "test_images": images[train:],
        "test_labels": labels[train:],
    }


def docstrings(package):
    """(qualified name, docstring) of everything documented in one sub-package of scikit-learn."""
    for path in sorted((Path(sklearn.__file__).parent / package).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
                yield f"{package}.{path.stem}.{getattr(node, 'name', '')}", ast.get_docstring(node)


def paragraphs(text):
    """The paragraphs of a docstring as tuples of lower-case words."""
    text = re.sub(r">>>.*|^-+$|\.\. .*", " ", text, flags=re.MULTILINE)
    for part in re.split(r"\n\s*\n", text):
        words = tuple(re.findall(r"[a-z]+", part.lower()))
        if 8 <= len(words) <= 60:
            yield words


def topics():
    """Arrays of the docstring paragraphs: word ids one after another, paragraph lengths, labels, and the vocabulary."""
    found, owners = {}, {}
    for label, package in enumerate(TOPICS):
        for name, text in docstrings(package):
            for words in paragraphs(text):
                owners.setdefault(words, set()).add(label)
                found.setdefault(words, (label, zlib.crc32(name.encode()) % 5 == 0))
    rows = [(words, *where) for words, where in found.items() if len(owners[words]) == 1]
    counts = Counter(word for words, _, is_test in rows if not is_test for word in words)
    vocabulary = [UNKNOWN] + [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    vocabulary = vocabulary[:VOCABULARY_SIZE]
    ids = {word: index for index, word in enumerate(vocabulary)}
    arrays = {"vocabulary": np.array(vocabulary), "topics": np.array(TOPICS)}
    for part, wanted in (("train", False), ("test", True)):
        chosen = [(words, label) for words, label, is_test in rows if is_test == wanted]
        words = [ids.get(word, 0) for words, _ in chosen for word in words]
        arrays[f"{part}_words"] = np.array(words, "int64").reshape(-1, 1)
        arrays[f"{part}_lengths"] = np.array([len(words) for words, _ in chosen], "int64")
        arrays[f"{part}_labels"] = np.array([label for _, label in chosen], "int64").reshape(-1, 1)
    return arrays


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out / "digits.npz", **digits())
    np.savez_compressed(out / "topics.npz", **topics())
