"""Networks built by our layers are the programs that real Paddle 1.8.5 builds (packed in tests/golden/networks/).

Repack a module of tests/networks with real Paddle's interpreter:
    PYTHON tests/networks/dump.py paddle.fluid tests/golden/networks MODULE
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import fluidtool.fluid as fluid
from fluidtool.ir import Program
from tests.networks.dump import build, modules, networks
from tests.support.program_diff import differences

ARCHIVES = Path(__file__).parent.parent / "golden" / "networks"
NETWORKS = [(module, name) for module in modules() for name in sorted(networks(module))]
# "module.network": why we differ on purpose (docs/differences.md). An entry that no longer differs fails.
MEANT: dict[str, str] = {
    "optimizers.append_backward_with_checkpoints": "the scratch blocks of recompute are not left in the program",
    "averaging.recompute": "two scratch blocks are not left in the program",
    "recurrent.lstm_in_both_directions": "its output is twice as wide as the hidden size, which Paddle does not declare",
    "detection.detection_output": "the index is int32, and is declared so",
    "detection.matrix_suppression": "the index is int32, and is declared so",
    "detection.multi_box_head": "how many priors there are is known: we declare it",
    "detection.multi_box_head_with_sizes": "how many priors there are is known: we declare it",
    "detection.proposals": "the numbers of regions are int64 [n], and are declared so",
    "detection.ssd_loss": "an unknown number of rows is -1, not the product -10 that Paddle takes for known",
    "detection.ssd_loss_with_everything": "an unknown number of rows is -1, not the product -10 that Paddle takes for known",
    "detection.yolo": "the mask of objectness is float32, and is declared so",
    "sampled_loss.hsigmoid": "the shape of PreOut is known: we declare it",
    "sampled_loss.hsigmoid_of_a_tree": "the shape of PreOut is known: we declare it",
    "sampled_loss.hsigmoid_without_bias": "the shape of PreOut is known: we declare it",
    "structured.filter_by_instag": "IndexMap has three columns, not the two that Paddle declares",
    "arithmetic.topk_of_a_tensor": "how many rows a tensor asks for is known when running: -1, not the attribute's 1",
    "shapes.expand_as": "the shape of the target, where Paddle declares zeros",
    "shapes.padding_by_a_tensor": "the size is known only when running: -1",
    "images.poolings_with_places": "places are int32, and are declared so",
    "images.regions": "roi_pool's places are int64, and are declared so",
    "contrib.boxes": "the index is int32, and is declared so",
    "contrib.elementwise": "the order is as long as the batch, the seed is one number: both are declared",
    "contrib.embeddings": "the places of what is dropped are int32 [n, 1] with LoD, and are declared so",
    "contrib.sequences": "the places of the largest are int32, and are declared so",
    "arithmetic.has_inf": "isinf and isnan give bool, and are declared so",
}


@pytest.mark.parametrize(("module", "name"), NETWORKS, ids=[f"{m}.{n}" for m, n in NETWORKS])
def test_the_programs_are_those_of_real_paddle(module: str, name: str) -> None:
    with zipfile.ZipFile(ARCHIVES / f"{module}.zip") as archive:
        if f"{name}.error" in archive.namelist():
            pytest.fail(f"real Paddle could not build it: {archive.read(name + '.error').decode()[:500]}")
        theirs = [Program.parse_from_string(archive.read(f"{name}.{which}.pb")) for which in ("main", "startup")]
    ours = [Program.parse_from_string(data) for data in build(fluid, networks(module)[name])]
    found = [
        f"{which} program, {text}"
        for which, mine, other in zip(("main", "startup"), ours, theirs, strict=True)
        for text in differences(mine, other)
    ]
    if f"{module}.{name}" in MEANT:
        assert found != [], "no longer differs: take it out of MEANT"
    else:
        assert found == [], "\n" + "\n".join(found[:12])
