"""What a region would compile to is found out without its parameters: nothing is packed, nothing is run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.preview import Preview, preview, short_sequences
from fluidtool.runtime.graph.ir import UnsupportedError
from fluidtool.runtime.partition import Region
from tests.runtime.native.checking import Net
from tests.support.checkout import child_environment

pytestmark = pytest.mark.usefixtures("native")
FEW_BYTES = 1 << 28
WEIGHTS = 1 << 30
SHOW = """
import resource, sys
from pathlib import Path
from fluidtool import fluid
from fluidtool.model import load
from fluidtool.cli.views.plan import PlanView
main = fluid.Program()
with fluid.program_guard(main, fluid.Program()):
    value = fluid.data("x", [-1, 8192], "float32")
    for _ in range(4):
        value = fluid.layers.fc(value, 8192, act="relu")
model = load(main.desc.serialize_to_string(), need_parameters=False)
view = PlanView(model, 1, {})
status = Path("/proc/self/status")  # ru_maxrss begins with what the process had that started this one
if status.exists():
    most = next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
else:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(view.regions[0].constant_bytes, most * 1024)
"""


def layers() -> tuple[Net, str]:
    """A convolution, a mean, and a product."""
    net = Net()
    image = net.conv(net.data(1, 16, 9, 9), net.parameter(32, 16, 3, 3), paddings=[1, 1])
    settled = {"pooling_type": "avg", "ksize": [1, 1], "global_pooling": True}
    rows = net.op("pool2d", "Out", {"X": image}, **settled)
    return net, net.op("mul", "Out", {"X": rows, "Y": net.parameter(32, 20)})


def previewed(net: Net, out: str) -> Preview:
    (region,) = Executor(engine="native").plan(net.program, [out]).block(0).work
    assert isinstance(region, Region)
    metas: dict[str, Any] = {name: TensorMeta(array.shape, VarType.FP32) for name, array in net.feeds.items()}
    return preview(region, net.program.global_block(), metas)


def test_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Library, steps: Any) -> None:
        raise AssertionError("a step ran")

    monkeypatch.setattr(Library, "run", refuse)
    assert [step.kernel for step in previewed(*layers()).kernel_calls]


def test_the_sizes_are_those_of_a_run() -> None:
    net, out = layers()
    seen = previewed(net, out)
    net.run("native", out)
    (region,) = net.plan.work
    (specialization,) = region.specializations.kept.values()  # type: ignore[union-attr]
    assert seen.arena_bytes == specialization.frames[0].arena.nbytes  # type: ignore[union-attr]
    assert seen.constant_bytes == sum({id(array): array.nbytes for array in specialization.keep}.values())  # type: ignore[union-attr]
    assert len(seen.kernel_calls) == len(specialization.kernel_calls)  # type: ignore[union-attr]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not say how much memory a process has used")
def test_a_gibibyte_of_parameters_takes_no_memory() -> None:
    command = [sys.executable, "-c", SHOW]
    done = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=True)
    constants, resident = map(int, done.stdout.split())
    assert constants >= WEIGHTS and resident < FEW_BYTES


def test_parameters_in_the_scope_stay_as_they_are() -> None:
    net, out = layers()
    before = {name: np.array(net.scope.var(name).value) for name in net.scope.local_var_names()}
    previewed(net, out)
    for name, array in before.items():
        np.testing.assert_array_equal(np.asarray(net.scope.var(name).value), array)


def test_sequences_of_a_single_number_are_known_by_a_run_alone() -> None:
    net = Net()
    x = net.data()
    net.program.global_block().vars[x].lod_level = 1
    with pytest.raises(UnsupportedError, match=f"{x} has sequences but no rows"):
        short_sequences(x, net.program.global_block(), np.zeros(()))
