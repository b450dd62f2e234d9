"""The samples build the programs that real Paddle 1.8.5 builds when it runs them (packed in tests/golden/samples.zip).

Repack with real Paddle's interpreter: PYTHON tests/samples/pack.py paddle.fluid tests/golden/samples.zip
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import fluidtool.fluid as fluid
from fluidtool.ir import Program
from tests.samples.pack import SAMPLES, build
from tests.support.program_diff import differences

ARCHIVE = Path(__file__).parent.parent / "golden" / "samples.zip"
# How we differ on purpose (docs/differences.md). A line that no longer comes up fails.
UNKNOWN = "model program, block 0, variable save_infer_model/scale_{}.tmp_0: shape (), expected (0,)"
MEANT = {"machine_translation": [UNKNOWN.format(0), UNKNOWN.format(1)]}


@pytest.mark.parametrize(("sample", "network"), SAMPLES, ids=[".".join(filter(None, one)) for one in SAMPLES])
def test_the_programs_are_those_of_real_paddle(sample: str, network: str) -> None:
    with zipfile.ZipFile(ARCHIVE) as archive:
        theirs = {
            which: archive.read(f"{sample}.{network or 'only'}.{which}.pb") for which in ("main", "startup", "model")
        }
    ours = build(fluid, sample, network)
    found = [
        f"{which} program, {text}"
        for which in theirs
        for text in differences(Program.parse_from_string(ours[which]), Program.parse_from_string(theirs[which]))
    ]
    assert found == MEANT.get(sample, []), "\n" + "\n".join(found[:12])
