"""External effects through every crash window: each takes place exactly once, or its unit is asked about.

Three kinds of steps touch the outside, which is one file that only grows: one with a probe, one that only a person can
answer for, and a map with a probe. The person of these tests looks at that file and answers truthfully, so a repeated
effect can only be interlock's own doing.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest

from interlock.app import App
from interlock.driver.configuration import require_config
from interlock.driver.project import project_at
from interlock.testing.drivers import HUNG, KILLED, WORKFLOW, Hook, Killer, drive, fork, last_words, wait

FLOW = """---
defaults: {{ timeout: {timeout} }}
steps:
  - id: mail
    effects: external
    run: sh act.sh mail
    probe: touch outside; grep -qx "mail $INTERLOCK_IDEMPOTENCY_KEY" outside && echo did mail
    retry: {{ max: 1 }}
  - id: pay
    effects: external
    run: sh act.sh pay
  - id: post
    map: {{ over: params.places, concurrency: 2 }}
    effects: external
    run: sh act.sh post
    probe: touch outside; grep -qx "post $INTERLOCK_IDEMPOTENCY_KEY" outside && echo did post
    retry: {{ max: 1 }}
params: {{ places: {{ type: array, default: [here, there] }} }}
---
# Flow
"""
ACT = """halt() {
  # once, and for one process only: what renames the order has it
  if mv "halt-$1-$2" "halted.$$" 2>/dev/null; then
    mv "halted.$$" halted
    while :; do sleep 0.05; done
  fi
}
halt "$1" before
printf '%s %s\\n' "$1" "$INTERLOCK_IDEMPOTENCY_KEY" >> outside
halt "$1" after
echo "did $1"
"""
STEPS = ("mail", "pay", "post")
POINTS = ("before", "after")
EFFECTS = {"mail": 1, "pay": 1, "post": 2}
BLOCKED = 4
INTERRUPTED = 130
MOST_DRIVES = 12
PATIENCE_S = 30.0


def project(folder: Path, timeout: str = "1m") -> Path:
    folder.mkdir()
    (folder / ".interlock").mkdir(mode=0o700)
    (folder / WORKFLOW).write_text(FLOW.format(timeout=timeout), encoding="utf-8")
    (folder / "act.sh").write_text(ACT, encoding="utf-8")
    return folder


def begun(folder: Path, word: str = "") -> list[str]:
    """What took place outside, with keys; of one step or all."""
    path = folder / "outside"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line for line in lines if line.startswith(word)]


def opened(folder: Path) -> App:
    paths = project_at(folder)
    return App(paths, require_config(paths))


def answer(hook: Hook | None = None) -> int:
    """Be the person: say of each unknown unit what the file outside says. For children: stands in the project."""
    paths = project_at(Path.cwd())
    with App(paths, require_config(paths), on_commit=hook) as app:
        app._open()  # noqa: SLF001 - a reader would not be seen by the hook
        (run,) = app.store.runs()
        for unit in [unit for unit in app.store.units(run.id) if unit.state == "unknown"]:
            word = unit.id.partition(":")[0]
            assert word == "pay", "a probe was not asked"
            done = bool(begun(Path.cwd(), word))
            app.resolve(run.id, unit.id, done=done, result_json=json.dumps(f"did {word}") if done else None)
    return 0


def states(folder: Path) -> set[str]:
    """Return the states of units that a killed driver left."""
    with opened(folder) as app:
        return {unit.state for run in app.store.runs() for unit in app.store.units(run.id)} or {"no run"}


def finish(folder: Path, hooks: Sequence[Hook] = ()) -> set[str]:
    """Drive and answer until the run is completed; the first processes get a hook each. Return what the killed left."""
    left, met = list(hooks), set[str]()

    def run(work: Callable[[Hook | None], int]) -> int | str:
        code = wait(fork(folder, partial(work, left.pop(0) if left else None)))
        if code == KILLED:
            met.update(states(folder))
        return code

    for _ in range(MOST_DRIVES):
        code = run(drive)
        if code == 0:
            return met
        assert code in (BLOCKED, KILLED), f"ended with {code}: {last_words(folder)}"
        if code == BLOCKED:
            answered = run(answer)
            assert answered in (0, KILLED), last_words(folder)
    raise AssertionError(f"not over after {MOST_DRIVES} drives: {last_words(folder)}")


def hold(folder: Path, what: str) -> None:
    """Assert that every effect took place exactly once and that all results are what they say they are."""
    found = Counter(begun(folder))
    assert {line: n for line, n in found.items() if n > 1} == {}, f"{what}: done twice"
    assert Counter(line.partition(" ")[0] for line in found) == EFFECTS, what
    with opened(folder) as app:
        (run,) = app.store.runs()
        assert (run.state, run.outcome) == ("completed", "ok"), what
        artifacts = {
            row.id: msgspec.json.decode(app.store.artifact(run.id, row.step) or b"") for row in app.store.steps(run.id)
        }
    assert artifacts == {"mail": "did mail", "pay": "did pay", "post": ["did post", "did post"]}, what


def halted(folder: Path, step: str, point: str) -> int:
    """Start a driver whose command of that step stops at that point, and wait until it has; return the driver."""
    (folder / f"halt-{step}-{point}").touch()
    pid = fork(folder, drive)
    give_up = time.monotonic() + PATIENCE_S
    while not (folder / "halted").exists():
        assert time.monotonic() < give_up, f"the command never came to its {point}: {last_words(folder)}"
        time.sleep(0.005)
    return pid


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_driver_killed_around_any_commit_repeats_no_effect(tmp_path: Path) -> None:
    met, commit, alive = set[str](), 0, False
    while not alive:
        commit += 1
        assert commit < 80, "the run never ended by itself"
        for moment in POINTS:
            folder = project(tmp_path / f"{moment}-{commit}")
            code = wait(fork(folder, partial(drive, Killer(moment, commit))))
            assert code in (0, KILLED), last_words(folder)
            alive = code == 0
            if not alive:
                met |= states(folder)
                finish(folder)
            hold(folder, f"killed {moment} commit {commit}")
    # how many commits there are depends on which units end together; these windows there are always
    assert met >= {"no run", "running", "completed"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("step", STEPS)
def test_a_driver_killed_while_the_command_runs_repeats_no_effect(tmp_path: Path, step: str, point: str) -> None:
    folder = project(tmp_path / "flow")
    pid = halted(folder, step, point)
    os.kill(pid, signal.SIGKILL)
    assert wait(pid) == KILLED
    finish(folder)
    hold(folder, f"killed {point} the effect of {step}")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("step", "point"), [("mail", "after"), ("mail", "before"), ("pay", "after"), ("pay", "before")]
)
def test_a_driver_killed_again_around_any_commit_of_the_recovery_repeats_no_effect(
    tmp_path: Path, step: str, point: str
) -> None:
    """The probe, its answer, the person's answer and the attempt that follows are windows of their own."""
    commit, met, last = 0, set[str](), {"not begun"}
    while last:
        commit += 1
        assert commit < 80, "the recovery never ended by itself"
        last = set()
        for moment in POINTS:
            folder = project(tmp_path / f"{moment}-{commit}")
            pid = halted(folder, step, point)
            os.kill(pid, signal.SIGKILL)
            assert wait(pid) == KILLED
            # a drive, an answer and a drive, or three drives
            last |= finish(folder, [Killer(moment, commit) for _ in range(3)])
            hold(folder, f"killed {moment} commit {commit} after a kill {point} the effect of {step}")
        met |= last
    assert met >= {"unknown", "running", "completed"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_effect_is_asked_about_and_not_repeated(tmp_path: Path, step: str, point: str) -> None:
    folder = project(tmp_path / "flow")
    pid = halted(folder, step, point)
    os.kill(pid, signal.SIGINT)
    assert wait(pid) == INTERRUPTED, last_words(folder)
    with opened(folder) as app:
        (run,) = app.store.runs()
        assert {unit.state for unit in app.store.units(run.id) if unit.reason == "aborted"} == {"unknown"}
    finish(folder)
    hold(folder, f"interrupted {point} the effect of {step}")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("step", STEPS)
def test_an_effect_that_timed_out_is_asked_about_and_not_repeated(tmp_path: Path, step: str, point: str) -> None:
    folder = project(tmp_path / "flow", timeout="2s")
    pid = halted(folder, step, point)
    # a probe answers within the same drive; what only a person knows blocks the run
    assert wait(pid) == (BLOCKED if step == "pay" else 0), last_words(folder)
    if step == "pay":
        assert wait(fork(folder, drive)) == BLOCKED, "a run that waits for a person went on by itself"
        finish(folder)
    hold(folder, f"timed out {point} the effect of {step}")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("step", ["mail", "pay"])
def test_a_command_that_something_killed_is_asked_about(tmp_path: Path, step: str, name: signal.Signals) -> None:
    folder = project(tmp_path / "flow")
    (folder / "act.sh").write_text(
        ACT.replace('halt "$1" after', f'test "$1" = {step} && mkdir shot 2>/dev/null && kill -{int(name)} $$'),
        encoding="utf-8",
    )
    code = wait(fork(folder, drive))
    assert code == (BLOCKED if step == "pay" else 0), last_words(folder)
    if step == "pay":
        finish(folder)
    hold(folder, f"{step} killed by {name.name}")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_these_tests_can_fail(tmp_path: Path) -> None:
    """Without `effects: external` the same kill repeats the effect."""
    folder = project(tmp_path / "flow")
    text = (folder / WORKFLOW).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines(keepends=True) if "effects:" not in line and "probe:" not in line]
    (folder / WORKFLOW).write_text("".join(lines), encoding="utf-8")
    pid = halted(folder, "pay", "after")
    os.kill(pid, signal.SIGKILL)
    assert wait(pid) == KILLED
    assert wait(fork(folder, drive)) not in (HUNG, KILLED)
    assert max(Counter(begun(folder)).values()) == 2
