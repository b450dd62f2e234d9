"""What the samples share: their options, and the files with which the command line repeats a result."""

import argparse
import json
import os
import random

import numpy as np


def options(text, epochs, epochs_of_small, networks=()):
    """The options of a sample: epochs, small, out, and network where there are several to choose from."""
    parser = argparse.ArgumentParser(description=text.strip().split("\n")[0])
    parser.add_argument("--epochs", type=int, help=f"default: {epochs}, or {epochs_of_small} with --small")
    parser.add_argument("--small", action="store_true", help="a smaller network and less data, for a quick check")
    parser.add_argument("--out", default="saved_model", metavar="FOLDER", help="where the model is saved (%(default)s)")
    if networks:
        parser.add_argument("--network", choices=networks, default=networks[0], help="default: %(default)s")
    chosen = parser.parse_args()
    if chosen.epochs is None:
        chosen.epochs = epochs_of_small if chosen.small else epochs
    random.seed(1)  # what fluid.io.shuffle draws from
    return chosen


def save_example(folder, feed, names, outputs):
    """Write feed.npz, lod.json and expected.npz: what was fed, and what came out under these names."""
    tensors = {name: value for name, value in feed.items() if hasattr(value, "recursive_sequence_lengths")}
    lengths = {name: tensor.recursive_sequence_lengths() for name, tensor in tensors.items()}
    np.savez(os.path.join(folder, "feed.npz"), **{name: np.array(value) for name, value in feed.items()})
    np.savez(os.path.join(folder, "expected.npz"), **{n: np.array(o) for n, o in zip(names, outputs)})
    with open(os.path.join(folder, "lod.json"), "w") as stream:
        json.dump({name: lod for name, lod in lengths.items() if lod}, stream)
    print(
        f"run it again: fluidtool run {folder} --feed {folder}/feed.npz --lod {folder}/lod.json --expect {folder}/expected.npz"
    )


def report(what, value, wanted, at_most=False):
    """Print a metric of unseen data beside what is wanted; stop with exit code 1 where it falls short."""
    print(f"{what}: {value:.4f} (wanted: {'at most' if at_most else 'at least'} {wanted})")
    if not (value <= wanted if at_most else value >= wanted):
        raise SystemExit(f"the {what} is not good enough")
