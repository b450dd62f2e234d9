"""Draws `docs/screens/*.svg` from real runs of the commands: `python docs/draw_screens.py [--check]`. A test checks them.

The numbers of a run differ between machines in their last digits, so --check compares what is written without its numbers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from html import unescape
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).resolve().parent / "screens"
WIDTH = 100
SCREENS: dict[str, tuple[str, ...]] = {
    "first": (
        "fluidtool inspect samples/digits",
        "fluidtool run samples/digits --feed samples/digits/x.npy --expect samples/digits/expected.npz",
    ),
    "check": ("fluidtool check samples/digits samples/topics", "fluidtool check --security samples/digits"),
    "transpile": ("fluidtool transpile samples/digits --fuse-bn --verify -o folded",),
    "error": (
        "fluidtool run samples/digits --feed samples/digits/labels.npy",
        "fluidtool help FT210",
    ),
}
COLORS = [(224, 108, 117), (152, 195, 121), (229, 192, 123), (97, 175, 239), (198, 120, 221), (86, 182, 194)]
THEME = TerminalTheme(
    (30, 34, 42),
    (220, 223, 228),
    [(63, 68, 81), *COLORS, (220, 223, 228)],
    [(99, 109, 131), *COLORS, (255, 255, 255)],
)
# As rich's own, without the fonts that it loads from elsewhere.
FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""


def run(command: str, folder: Path) -> str:
    """What the command writes to a terminal, with its colors."""
    words = [sys.executable, "-m", "fluidtool", *command.split()[1:]]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "PYTHONPATH": path, "FLUIDTOOL_NATIVE": "0"}
    environment.pop("NO_COLOR", None)
    done = subprocess.run(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode not in (0, 1, 2) or "Traceback" in done.stdout:
        raise RuntimeError(f"$ {command}\n{done.stdout}")
    return done.stdout.rstrip()


def screen(name: str, commands: tuple[str, ...]) -> str:
    """The SVG of a terminal in which the commands were typed, one after the other."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(ROOT / "samples", Path(scratch) / "samples")
        for number, command in enumerate(commands):
            prompt = Text.assemble(("\n" if number else "", ""), ("$ ", "bold green"), (command, "bold"))
            console.print(prompt)
            console.print(Text.from_ansi(run(command, Path(scratch))))
    drawn = console.export_svg(title="fluidtool", theme=THEME, code_format=FORMAT, unique_id=f"screen-{name}")
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


def said(svg: str) -> list[str]:
    """The words of a screen in order, without numbers and blanks."""
    words = " ".join(unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg))
    shapes = re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?( [kMGTP]\b)?", "0", words.replace("\xa0", " "))
    return re.sub(r"0( 0)*…?", "0", shapes).split()  # how many values fit into a line depends on them


def main(arguments: list[str]) -> int:
    """Write the files, or with --check say whether they are current."""
    FOLDER.mkdir(exist_ok=True)
    stale = 0
    for name, commands in SCREENS.items():
        path, made = FOLDER / f"{name}.svg", screen(name, commands)
        if "--check" not in arguments:
            path.write_text(made, "utf-8")
        elif not path.exists() or said(path.read_text("utf-8")) != said(made):
            stale = 1
            sys.stderr.write(f"{path} is not current; python docs/draw_screens.py\n")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
