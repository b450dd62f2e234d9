"""`paddle.utils.plotcurve`: a picture of the scores in a log of training (Paddle 1.8.5 utils/plotcurve.py).

`python -m paddle.utils.plotcurve -i LOG -o FILE KEY...` reads lines such as "Pass=0 Batch=7 AvgCost=0.62 Eval: error=0.26".
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

__all__ = ["main", "plot_paddle_curve"]


def plot_paddle_curve(
    keys: Sequence[str], inputfile: Iterable[str], outputfile: Any, format: str = "png", show_fig: bool = False
) -> None:
    """Draw a curve for each score, by the number of the pass, and one for tests where there are lines of tests.

    keys: names in the order in which a line has them (AvgCost). inputfile: the lines. outputfile: an open file or a path.
    """
    keys, lines = list(keys) or ["AvgCost"], list(inputfile)
    trained, tested = (_scores(lines, start, keys) for start in ("Pass=([0-9]*)", "Test samples=([0-9]*)"))
    if not len(trained):
        sys.stderr.write("No data to plot. Exiting!\n")
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    for index, key in enumerate(keys):
        shade = index / (2 * (len(keys) + 1))
        pyplot.plot(trained[:, 0], trained[:, index + 1], color=pyplot.cm.jet(shade), label=key)
        if len(tested):
            passes = trained[: len(tested), 0]
            scores = tested[: len(trained), index + 1]
            pyplot.plot(passes, scores, color=pyplot.cm.jet(1.0 - shade), label=f"Test {key}")
    pyplot.xlabel("number of epoch")
    pyplot.legend(loc="best")
    if show_fig:
        pyplot.show()
    pyplot.savefig(outputfile, bbox_inches="tight", format=format.lstrip("."))
    pyplot.clf()


def _scores(lines: Iterable[str], start: str, keys: Sequence[str]) -> Any:
    pattern = re.compile("".join([start, *(rf".*?{re.escape(key)}=([0-9e\-\.]*)" for key in keys)]))
    found = [match.groups() for match in map(pattern.search, lines) if match]
    return np.array([[float(number) for number in row] for row in found])


def main(argv: Sequence[str]) -> None:
    """The command."""
    parser = argparse.ArgumentParser("Plot training and testing curves from paddle log file.")
    parser.add_argument("key", nargs="*", help="keys of scores to plot, the default is AvgCost")
    parser.add_argument("-i", "--input", help="input filename of paddle log, default will be standard input")
    parser.add_argument("-o", "--output", help="output filename of figure, default will be standard output")
    parser.add_argument("--format", help="figure format(png|pdf|ps|eps|svg)")
    args = parser.parse_args(argv)
    with ExitStack() as files:
        source = files.enter_context(open(args.input, encoding="utf-8")) if args.input else sys.stdin
        target = files.enter_context(open(args.output, "wb")) if args.output else sys.stdout.buffer
        ending = os.path.splitext(args.output or "")[1]
        plot_paddle_curve(args.key, source, target, args.format or ending or "png")
