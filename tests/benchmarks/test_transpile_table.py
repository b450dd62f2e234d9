"""Every pass over the packed models of real Paddle: outputs stay, a second run finds nothing, Paddle's numbers are met."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.transpile_table import SEQUENCES, Case, cases, main, row, text, verdict
from tests.support.golden import corpus, names_in

WITH_BATCH_NORM, WITH_SEQUENCES = "convbn_plain", "text_lstm"


def case(name: str) -> Case:
    (found,) = cases(corpus("models"), [name])
    return found


@pytest.mark.parametrize("name", names_in("models"))
@pytest.mark.parametrize("passes", ["all-inference", "all and memory"])
def test_a_model_is_kept(name: str, passes: str) -> None:
    found = row(case(name), passes, 0)
    assert found.good, (verdict(found), found)
    assert found.activations[1] <= found.activations[0]


@pytest.mark.parametrize("name", [WITH_BATCH_NORM, WITH_SEQUENCES])
@pytest.mark.parametrize("passes", SEQUENCES)
def test_each_pass_alone(name: str, passes: str) -> None:
    found = row(case(name), passes, 0)
    assert found.good, (verdict(found), found)


def test_batch_norm_is_folded_and_memory_shared() -> None:
    found = row(case(WITH_BATCH_NORM), "all and memory", 1)
    assert found.done > 0 and found.paddle == (True, True)
    assert found.activations[1] < found.activations[0]
    assert found.seconds is not None and min(found.seconds) > 0


def test_the_table_and_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(corpus("models")), "--models", WITH_BATCH_NORM, "--passes", "fuse-batch-norm", "--repeat", "1"]
    assert main(arguments) == 0
    written = capsys.readouterr()
    assert "fuse-batch-norm" in written.out and "within 1e-5" in written.out
    assert "1 models, 1 runs of passes, 0 not kept, 0 refused" in written.err
    assert main([*arguments, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["rows"]
    assert found["model"] == WITH_BATCH_NORM and found["operators"][1] <= found["operators"][0]


def test_what_is_not_kept_is_said() -> None:
    from dataclasses import replace

    good = row(case(WITH_BATCH_NORM), "drop-dead", 0)
    assert verdict(replace(good, kept=False)) == "OUTPUTS DIFFER"
    bad = replace(good, idempotent=False, paddle=(True, False))
    assert verdict(bad) == "NOT IDEMPOTENT, NO LONGER AS PADDLE" and not bad.good
    assert "NOT IDEMPOTENT" in text([bad]).rows[0][-1]


def test_a_folder_without_models_is_no_case(tmp_path: Path) -> None:
    assert list(cases(tmp_path)) == []
