"""The supervisor with toy roles: what it starts, passes on, starts again, stops, and leaves with."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fluidtool.distribute.launch.progress import Report, Reporter
from fluidtool.distribute.launch.recovery import Recovery
from fluidtool.distribute.launch.status import Outcome
from fluidtool.distribute.launch.supervisor import EXIT_HUNG, SAME_SIGNAL, Patience
from tests.distribute.launch.support import Remembered, is_alive, run, toy
from tests.support.checkout import child_environment

SLEEPS = "time.sleep(60)"
TRAINS = "report(1); report(2, loss=0.5, sent=10, received=20)"
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes through /proc")


# ---------------------------------------------------------------- a job that goes well
def test_a_job_is_done_when_all_trainers_are(tmp_path: Path) -> None:
    outcome, view = run([toy("trainer_0", TRAINS), toy("trainer_1", TRAINS)], tmp_path)
    assert (outcome.exit_code, outcome.reason, outcome.restarts) == (0, "", 0)
    assert [role.state for role in outcome.roles] == ["done", "done"]
    assert view.texts[0] == "started trainer_0, trainer_1"


def test_what_a_role_reports_is_its_status(tmp_path: Path) -> None:
    outcome, _ = run([toy("trainer_0", TRAINS)], tmp_path)
    fields = outcome.roles[0].fields()
    found = {name: fields[name] for name in ("step", "loss", "bytes_sent", "bytes_received", "exit_code", "starts")}
    assert found == {"step": 2, "loss": 0.5, "bytes_sent": 10, "bytes_received": 20, "exit_code": 0, "starts": 1}


def test_a_server_that_never_ends_is_stopped_after_the_trainers(tmp_path: Path) -> None:
    begin = time.monotonic()
    outcome, _ = run([toy("pserver_0", SLEEPS), toy("trainer_0", TRAINS)], tmp_path, patience=Patience(grace=0.5))
    assert outcome.exit_code == 0 and time.monotonic() - begin < 20
    assert {role.name: role.state for role in outcome.roles} == {"pserver_0": "stopped", "trainer_0": "done"}


def test_a_server_that_ends_by_itself_is_waited_for(tmp_path: Path) -> None:
    outcome, view = run([toy("pserver_0", "time.sleep(0.5); print('bye')"), toy("trainer_0", TRAINS)], tmp_path)
    assert outcome.roles[0].state == "done" and view.written("pserver_0") == ["bye"]


def test_lines_are_passed_on_with_their_role_and_stream(tmp_path: Path) -> None:
    _, view = run([toy("trainer_0", "print('out'); print('err', file=sys.stderr)")], tmp_path)
    assert sorted(view.lines) == [("trainer_0", "err", True), ("trainer_0", "out", False)]


def test_a_last_line_without_an_end_and_bytes_that_are_no_text_are_passed_on(tmp_path: Path) -> None:
    _, view = run([toy("trainer_0", "sys.stdout.buffer.write(b'a\\nb\\xff'); sys.stdout.flush()")], tmp_path)
    assert view.written("trainer_0") == ["a", "b\ufffd"]


def test_much_output_is_passed_on_whole(tmp_path: Path) -> None:
    _, view = run([toy("trainer_0", "for i in range(20000): print('line', i)")], tmp_path)
    assert view.written("trainer_0") == [f"line {i}" for i in range(20000)]


def test_the_resumed_step_stands_in_the_environment(tmp_path: Path) -> None:
    code = "print(os.environ.get('FLUIDTOOL_RESUME_STEP'))"
    _, view = run([toy("trainer_0", code)], tmp_path, recovery=Recovery(saved=Saved(40)), resume=True)
    assert view.written("trainer_0") == ["40"]
    assert run([toy("trainer_0", code)], tmp_path)[1].written("trainer_0") == ["None"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
def test_a_full_disk_ends_no_role_that_reports() -> None:
    reporter = Reporter(Path("/dev/full"))
    for step in range(3):
        reporter.report(Report(step))
    reporter.close()
    assert reporter.last == Report(2)


def test_reports_that_are_none_are_left_out(tmp_path: Path) -> None:
    code = "open(os.environ['FLUIDTOOL_PROGRESS'], 'w').write('no json\\n[1]\\n{\"step\": -1}\\n'); report(7)"
    assert run([toy("trainer_0", code)], tmp_path)[0].roles[0].step == 7


# ---------------------------------------------------------------- failures
def test_the_exit_code_is_that_of_the_role_that_failed(tmp_path: Path) -> None:
    outcome, view = run([toy("pserver_0", SLEEPS), toy("trainer_0", "sys.exit(5)")], tmp_path)
    assert outcome.exit_code == 5
    assert outcome.reason == "trainer_0 failed with exit code 5; no restarts are allowed (--restarts N)"
    assert [role.state for role in outcome.roles] == ["stopped", "failed"] and outcome.reason in view.texts


def test_a_role_killed_by_a_signal_gives_128_and_its_number(tmp_path: Path) -> None:
    outcome, _ = run([toy("trainer_0", "os.kill(os.getpid(), signal.SIGKILL)"), toy("trainer_1", SLEEPS)], tmp_path)
    assert outcome.exit_code == 128 + signal.SIGKILL and "trainer_0 was killed by SIGKILL" in outcome.reason


def test_a_server_that_fails_ends_the_job_although_it_is_no_trainer(tmp_path: Path) -> None:
    outcome, _ = run([toy("pserver_0", "sys.exit(3)"), toy("trainer_0", SLEEPS)], tmp_path)
    assert outcome.exit_code == 3 and outcome.reason.startswith("pserver_0 failed with exit code 3")


AFTER_TRAINERS = """
while os.environ["FLUIDTOOL_STARTS"] == "1" and not os.path.exists({path!r}):
    time.sleep(0.02)
time.sleep(1.0)
os.environ["FLUIDTOOL_STARTS"] == "1" and {end}
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(3)"])
def test_a_server_that_is_lost_when_all_trainers_are_done_is_not_needed(end: str, tmp_path: Path) -> None:
    path = str(tmp_path / "done")
    roles = [
        toy("pserver_0", AFTER_TRAINERS.format(path=path, end=end)),
        toy("trainer_0", f"report(1); open({path!r}, 'w')"),
    ]
    outcome, view = run(roles, tmp_path, recovery=Recovery(2))
    assert (outcome.exit_code, outcome.restarts) == (0, 0)
    assert [each["event"] for each in view.events][-1] == "without"
    assert view.texts[-1].endswith("; all trainers are done, and the job ends without it")


def lost_after_trainers(tmp_path: Path, recovery: Recovery, says: str = "") -> tuple[Outcome, Remembered]:
    """A server with checkpoints fails when all trainers are done; before, it `says` something to the launcher."""
    path = str(tmp_path / "done")
    end = f"(open(os.environ['FLUIDTOOL_PROGRESS'], 'a').write({says!r}), sys.exit(3))"
    roles = [
        toy("pserver_0", AFTER_TRAINERS.format(path=path, end=end)),
        toy("trainer_0", f"report(1); open({path!r}, 'w')"),
    ]
    return run(roles, tmp_path, recovery=recovery)


SAVED_ALL = json.dumps({"event": "saved", "text": "it has", "trainer": 0, "round": 4, "role": "pserver_0"}) + "\n"


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_synchronous_job_with_checkpoints_ends_without_a_server_that_is_lost_then(
    restarts: int, tmp_path: Path
) -> None:
    outcome, view = lost_after_trainers(tmp_path, Recovery(restarts, True, Saved(4)))
    assert (outcome.exit_code, outcome.restarts) == (0, 0)
    assert view.texts[-1].endswith("; all trainers are done, and the job ends without it")


def test_an_asynchronous_server_that_is_lost_before_its_last_checkpoint_starts_again_with_all(tmp_path: Path) -> None:
    outcome, _ = lost_after_trainers(tmp_path, Recovery(2, False, Saved(4)))
    assert (outcome.exit_code, outcome.restarts) == (0, 1)


def test_an_asynchronous_server_that_is_lost_before_its_last_checkpoint_fails_the_job_without_restarts(
    tmp_path: Path,
) -> None:
    outcome, _ = lost_after_trainers(tmp_path, Recovery(0, False, Saved(4)))
    assert (outcome.exit_code, outcome.restarts) == (3, 0)


def test_an_asynchronous_job_ends_without_a_server_that_has_saved_for_the_last_time(tmp_path: Path) -> None:
    outcome, _ = lost_after_trainers(tmp_path, Recovery(2, False, Saved(4)), SAVED_ALL)
    assert (outcome.exit_code, outcome.restarts) == (0, 0)


def test_what_another_server_has_saved_does_not_count(tmp_path: Path) -> None:
    outcome, _ = lost_after_trainers(
        tmp_path, Recovery(2, False, Saved(4)), SAVED_ALL.replace("pserver_0", "pserver_1")
    )
    assert (outcome.exit_code, outcome.restarts) == (0, 1)


def test_a_job_without_a_sign_of_life_hangs(tmp_path: Path) -> None:
    view = Remembered()
    outcome, _ = run(
        [toy("trainer_0", SLEEPS)], tmp_path, view=view, patience=Patience(grace=1.0, hang_after=1.0, starting=0)
    )
    assert outcome.exit_code == EXIT_HUNG and "the job hangs: no trainer has reported" in outcome.reason


def test_a_role_may_take_longer_to_start(tmp_path: Path) -> None:
    outcome, _ = run(
        [toy("trainer_0", "time.sleep(2); report(1)")], tmp_path, patience=Patience(hang_after=0.5, starting=30)
    )
    assert outcome.exit_code == 0


def test_reports_and_output_are_signs_of_life(tmp_path: Path) -> None:
    quiet = "for i in range(8): report(i); time.sleep(0.25)"
    loud = "for i in range(8): print(i); time.sleep(0.25)"
    for number, code in enumerate((quiet, loud)):
        outcome, _ = run([toy("trainer_0", code)], tmp_path / str(number), patience=Patience(hang_after=1.5))
        assert outcome.exit_code == 0


def test_a_halted_role_hangs_the_job_and_is_removed(tmp_path: Path) -> None:
    code = "print(os.getpid()); os.kill(os.getpid(), signal.SIGSTOP)"
    outcome, view = run([toy("trainer_0", code)], tmp_path, patience=Patience(grace=2.0, hang_after=1.0))
    assert outcome.exit_code == EXIT_HUNG
    assert not is_alive(int(view.written("trainer_0")[0]))


def test_a_role_that_does_not_end_when_asked_is_killed(tmp_path: Path) -> None:
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid()); time.sleep(60)"
    code = "while not os.path.exists('go'): time.sleep(0.05)"
    view = Remembered(then=lambda *_: (tmp_path / "go").touch())
    roles = [toy("pserver_0", stubborn), toy("trainer_0", code.replace("go", str(tmp_path / "go")))]
    outcome, _ = run(roles, tmp_path, view=view, patience=Patience(grace=0.5))
    assert outcome.exit_code == 0 and "pserver_0 did not end in time and is killed" in view.texts
    assert not is_alive(int(view.written("pserver_0")[0]))


def test_what_a_role_has_started_ends_with_it(tmp_path: Path) -> None:
    code = "import subprocess; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid)"
    _, view = run([toy("trainer_0", code)], tmp_path)
    time.sleep(0.2)
    assert not is_alive(int(view.written("trainer_0")[0]))


# ---------------------------------------------------------------- restarts
FAILS_ONCE = """
resumed = os.environ.get("FLUIDTOOL_RESUME_STEP")
print("from", resumed)
report(int(resumed or 0) + 1)
if resumed is None:
    time.sleep(0.5)
    sys.exit(9)
"""
GOES_ON = """
resumed = os.environ.get("FLUIDTOOL_RESUME_STEP")
print("from", resumed)
if resumed is None:
    time.sleep(60)
"""


@dataclass
class Saved:
    """Checkpoints that are complete up to a step; who asked for them is remembered."""

    step: int | None
    asked: list[list[str]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def newest(self, roles: Sequence[str]) -> int | None:
        self.asked.append(list(roles))
        return self.step

    def forget(self, roles: Sequence[str]) -> None:
        self.forgotten += roles


def test_a_synchronous_job_goes_on_from_the_newest_step_of_all(tmp_path: Path) -> None:
    saved = Saved(20)
    roles = [toy("pserver_0", GOES_ON), toy("trainer_0", FAILS_ONCE), toy("trainer_1", GOES_ON)]
    outcome, view = run(roles, tmp_path, recovery=Recovery(2, True, saved))
    assert (outcome.exit_code, outcome.restarts) == (0, 1)
    assert saved.forgotten == [] and saved.asked == [["pserver_0", "trainer_0", "trainer_1"]]
    assert [view.written(role.name) for role in roles] == [["from None", "from 20"]] * 3
    assert "trainer_0 failed with exit code 9; restart 1 of 2" in view.texts
    assert "started pserver_0, trainer_0, trainer_1 from step 20" in view.texts
    assert [role.starts for role in outcome.roles] == [2, 2, 2]


def test_trainers_that_were_done_start_again_with_the_others(tmp_path: Path) -> None:
    early = "print('from', os.environ.get('FLUIDTOOL_RESUME_STEP'))"
    recovery = Recovery(1, True, Saved(8))
    outcome, view = run([toy("trainer_0", early), toy("trainer_1", FAILS_ONCE)], tmp_path, recovery=recovery)
    assert outcome.exit_code == 0 and view.written("trainer_0") == ["from None", "from 8"]


def test_an_asynchronous_job_starts_the_role_that_died_alone(tmp_path: Path) -> None:
    recovery = Recovery(1, False, Saved(4))
    goes_on = "time.sleep(1.5)"
    outcome, view = run([toy("trainer_0", FAILS_ONCE), toy("trainer_1", goes_on)], tmp_path, recovery=recovery)
    assert outcome.exit_code == 0 and [role.starts for role in outcome.roles] == [2, 1]
    assert view.written("trainer_0") == ["from None", "from 4"]


ONCE_MORE = """
resumed, starts = os.environ.get("FLUIDTOOL_RESUME_STEP"), os.environ["FLUIDTOOL_STARTS"]
print("from", resumed)
if starts == "1":
    time.sleep({seconds})
    sys.exit(9)
"""
DIES, WAITS = ONCE_MORE.format(seconds=0.5), ONCE_MORE.format(seconds=60)


@dataclass
class SavedBy:
    """What each role has saved."""

    steps: dict[str, int]

    def newest(self, roles: Sequence[str]) -> int | None:
        return self.steps.get(roles[0])

    def forget(self, roles: Sequence[str]) -> None:
        assert not {*roles} & self.steps.keys()


def test_with_an_asynchronous_server_all_roles_start_again_each_from_its_own_step(tmp_path: Path) -> None:
    roles = [toy("pserver_0", DIES), toy("pserver_1", WAITS), toy("trainer_0", WAITS)]
    recovery = Recovery(1, False, SavedBy({"pserver_1": 8, "trainer_0": 4}))
    outcome, view = run(roles, tmp_path, recovery=recovery)
    assert outcome.exit_code == 0
    assert [view.written(role.name)[1] for role in roles] == ["from None", "from 8", "from 4"]
    assert "started pserver_0, pserver_1 from step 8, trainer_0 from step 4" in view.texts


@pytest.mark.parametrize(("saved", "starts"), [({"pserver_0": 4}, [2, 1]), ({}, [2, 2])])
def test_with_trainers_that_number_no_steps_a_server_starts_alone_from_its_checkpoint(
    saved: dict[str, int], starts: list[int], tmp_path: Path
) -> None:
    roles = [toy("pserver_0", DIES), toy("trainer_0", WAITS.replace("60", "4").replace("sys.exit(9)", "pass"))]
    outcome, _ = run(roles, tmp_path, recovery=Recovery(1, False, SavedBy(saved), numbered=False))
    assert outcome.exit_code == 0 and [role.starts for role in outcome.roles] == starts


def test_an_asynchronous_trainer_that_finds_no_server_any_more_starts_again_with_all(tmp_path: Path) -> None:
    roles = [toy("pserver_0", "print('from', os.environ.get('FLUIDTOOL_RESUME_STEP'))"), toy("trainer_0", DIES)]
    outcome, view = run(roles, tmp_path, recovery=Recovery(1, False, SavedBy({"pserver_0": 4})))
    assert outcome.exit_code == 0 and view.written("pserver_0") == ["from None", "from 4"]


def test_an_asynchronous_trainer_that_fails_again_without_a_step_starts_again_with_all(tmp_path: Path) -> None:
    """A server that does not answer shows in its trainers."""
    stuck = (
        "print('from', os.environ.get('FLUIDTOOL_RESUME_STEP'))\nif os.environ['FLUIDTOOL_STARTS'] != '3': sys.exit(9)"
    )
    roles = [toy("pserver_0", WAITS), toy("trainer_0", stuck)]
    outcome, _ = run(roles, tmp_path, recovery=Recovery(3, False, SavedBy({})))
    assert outcome.exit_code == 0 and [role.starts for role in outcome.roles] == [2, 3]


def test_an_asynchronous_job_that_hangs_starts_again_with_all_roles(tmp_path: Path) -> None:
    roles = [toy("pserver_0", WAITS), toy("trainer_0", WAITS)]
    patience = Patience(grace=5.0, hang_after=2.0, starting=6.0)
    outcome, _ = run(roles, tmp_path, patience=patience, recovery=Recovery(1, False, SavedBy({})))
    assert outcome.exit_code == 0 and [role.starts for role in outcome.roles] == [2, 2]


def test_without_a_common_checkpoint_everything_starts_from_the_beginning(tmp_path: Path) -> None:
    saved = Saved(None)
    outcome, view = run([toy("trainer_0", "sys.exit(6)")], tmp_path, recovery=Recovery(1, True, saved))
    assert outcome.exit_code == 6 and saved.forgotten == ["trainer_0"] and "started trainer_0" in view.texts


def test_restarts_are_used_up(tmp_path: Path) -> None:
    outcome, view = run([toy("trainer_0", "print('again'); sys.exit(6)")], tmp_path, recovery=Recovery(2))
    assert (outcome.exit_code, outcome.restarts) == (6, 2) and view.written("trainer_0") == ["again"] * 3
    assert outcome.reason == "trainer_0 failed with exit code 6; all 2 restarts are used up"


# ---------------------------------------------------------------- signals
GRACE = 20.0
ENDS = "signal.signal(signal.SIGTERM, lambda *_: (print('ending'), sys.exit(0)))"
SUPERVISES = """
import sys
from pathlib import Path
from tests.distribute.launch.support import Patience, Remembered, run, toy
view = Remembered(then=lambda role, text: print(text, flush=True))
code = sys.argv[2] + "; print(os.getpid()); time.sleep(60)"
roles = [toy("pserver_0", code), toy("trainer_0", code)]
outcome, _ = run(roles, Path(sys.argv[1]), view=view, patience=Patience(grace=float(sys.argv[3])))
print(outcome.reason, flush=True)
sys.exit(outcome.exit_code)
"""


def supervising(folder: Path, role: str = ENDS) -> tuple[subprocess.Popen[str], list[int]]:
    """A process that supervises two roles which run this code, and the roles' processes."""
    command = [sys.executable, "-c", textwrap.dedent(SUPERVISES), str(folder), role, str(GRACE)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment())
    assert process.stdout is not None
    return process, [int(process.stdout.readline()) for _ in range(2)]


@pytest.mark.parametrize(("number", "code", "name"), [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM")])
def test_a_signal_ends_all_roles_in_order(number: signal.Signals, code: int, name: str, tmp_path: Path) -> None:
    process, roles = supervising(tmp_path)
    process.send_signal(number)
    written, _ = process.communicate(timeout=30)
    assert process.returncode == code
    assert written.splitlines() == ["ending", "ending", f"stopped by {name}"]
    assert not any(is_alive(role) for role in roles)


SLOW = "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), print('ended'), sys.exit(0)))"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_twice_at_once_leaves_roles_their_time(tmp_path: Path, second: signal.Signals) -> None:
    process, _ = supervising(tmp_path, SLOW)
    process.send_signal(signal.SIGTERM)
    process.send_signal(second)
    written, _ = process.communicate(timeout=30)
    assert written.splitlines()[:2] == ["ended", "ended"]


def test_a_second_signal_kills_roles_that_do_not_end(tmp_path: Path) -> None:
    process, roles = supervising(tmp_path, STUBBORN)
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    time.sleep(SAME_SIGNAL + 0.2)
    assert all(is_alive(role) for role in roles)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert time.monotonic() - begin < GRACE / 2 and process.returncode == 143
    assert not any(is_alive(role) for role in roles)


def test_roles_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    process, roles = supervising(tmp_path)
    process.kill()
    process.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while any(is_alive(role) for role in roles) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(role) for role in roles)


def test_handlers_of_signals_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run([toy("trainer_0", "")], tmp_path)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
