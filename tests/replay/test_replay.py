"""Real runs are recorded, then replayed: the same end, no work done again, and faults where they were asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from interlock.app import App, open_project
from interlock.driver.params import ParamsInput
from interlock.driver.replay.replaying import Replay
from interlock.errors import UsageError
from interlock.model.states import Reason

_COUNT: Final = "echo x >> ran; "
_MAP: Final = """---
type: workflow
params: { word: { type: string, default: hi } }
steps:
  - id: list
    run: echo x >> ran; echo '["a","b",3]'
    output: { type: array }
  - id: each
    map: { over: steps.list.output, concurrency: 2 }
    run: 'echo x >> ran; printf "%s" "$INTERLOCK_ITEM"'
    retry: { max: 1, on: [timeout], backoff: { initial: 1h } }
  - id: vote
    map: { over: steps.list.output, reducer: vote }
    run: echo x >> ran; echo yes
  - id: way
    route: { input: steps.vote.output, when: [{ match: yes, step: last }], default: other }
  - id: last
    run: echo x >> ran; echo "$INTERLOCK_PARAM_WORD"
  - id: other
    run: echo x >> ran
---
"""


def _write(root: Path, text: str, name: str = "flow.md") -> Path:
    file = root / name
    file.write_text(text)
    return file


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "interlock.toml").write_text(
        """
[run]
engine = "bot"
judge = "bot"
[engines.bot]
kind = "agent"
agent = "command"
command = ["sh", "bot.sh"]
"""
    )
    return tmp_path


def _run(app: App, file: Path) -> str:
    app.run_file(file, ParamsInput())
    return app.store.runs(limit=1)[0].id


def _recorded(project: Path, text: str) -> tuple[App, str]:
    app = open_project(project)
    return app, _run(app, _write(project, text))


def _solo(command: str, more: str = "") -> str:
    return f"---\ntype: workflow\nsteps:\n  - id: one\n    run: {command}\n{more}---\n"


def _same(found: Replay) -> None:
    assert found.differences == ()
    assert found.not_recorded == {}
    assert found.exit_code == 0


def test_a_run_of_maps_votes_and_routes_is_replayed_without_doing_anything_again(project: Path) -> None:
    app, run = _recorded(project, _MAP)
    with app:
        before = (project / "ran").read_text()
        found = app.replay(run)
        _same(found)
        assert found.answered == 8
        assert (project / "ran").read_text() == before
        assert len(app.store.runs()) == 1


def test_failures_and_retries_are_replayed_with_their_reasons_and_without_waiting(project: Path) -> None:
    text = _solo(
        "test -f mark || { touch mark; exit 3; }; echo ok", "    retry: { max: 2, backoff: { initial: 5ms } }\n"
    )
    app, run = _recorded(project, text)
    with app:
        found = app.replay(run)
        _same(found)
        assert found.answered == 2
        assert found.units[0].attempt == 2


@pytest.mark.parametrize(
    "text",
    [
        _solo("exit 7"),
        _solo("'true'", "    gate: { check: 'echo no; exit 1' }\n"),
        _solo("'true'", "    gate: { check: 'echo fine' }\n"),
        _solo("'true'", "    gate: { approval: true }\n"),
        _solo("echo '[1,2,3]'", "    output: { type: array }\n  - id: m\n    map: { over: steps.one.output }\n"
              "    run: test $INTERLOCK_ITEM != 2\n    on_error: continue\n"),
        _solo("echo '[1,2,3]'", "    output: { type: array }\n  - id: m\n    map: { over: steps.one.output, concurrency: 1 }\n"
              "    run: test $INTERLOCK_ITEM != 2\n"),
        "---\ntype: workflow\nbudget: { max_units: 1 }\nsteps:\n  - id: a\n    run: echo 1\n  - id: b\n    run: echo 2\n---\n",
    ],
    ids=["failed", "rejected", "passed", "approval", "degraded", "halted", "budget"],
)  # fmt: skip
def test_every_end_of_a_run_is_replayed_as_it_was(project: Path, text: str) -> None:
    app, run = _recorded(project, text)
    with app:
        _same(app.replay(run))


_LOOP: Final = """---
type: workflow
steps:
  - id: say
    gate: { max_loops: 3, check: 'grep -q good "$INTERLOCK_CONTEXT"' }
---
## say
Say it.
"""


def test_a_gate_loop_is_replayed_with_its_feedback(project: Path) -> None:
    _write(project, "cat >/dev/null\nif test -f mark; then echo good; else touch mark; echo bad; fi\n", "bot.sh")
    app, run = _recorded(project, _LOOP)
    with app:
        (project / "bot.sh").unlink()
        found = app.replay(run)
        _same(found)
        assert [unit.id for unit in found.units if unit.kind == "work"] == ["say:solo", "say:solo~l2"]


def test_the_one_reask_of_a_prompt_is_replayed(project: Path) -> None:
    _write(project, 'cat >/dev/null\nif test -f mark; then echo "[1]"; else touch mark; echo bad; fi\n', "bot.sh")
    text = "---\ntype: workflow\nsteps:\n  - id: say\n    output: { type: array }\n---\n## say\nSay it.\n"
    app, run = _recorded(project, text)
    with app:
        found = app.replay(run)
        _same(found)
        assert found.units[0].asks == 1


def test_judges_and_their_re_ask_are_replayed(project: Path) -> None:
    verdict = '{"complete": true, "missing": [], "feedback": "good"}'
    # judges are asked side by side: only one of them can make the folder
    bot = f"case \"$(cat)\" in *Good*) mkdir odd 2>/dev/null && echo hm && exit ;; esac\necho '{verdict}'\n"
    _write(project, bot, "bot.sh")
    text = "---\ntype: workflow\nsteps:\n  - id: say\n    gate: { judges: 3 }\n---\n## say\nSay it.\n### gate\nGood?\n"
    app, run = _recorded(project, text)
    with app:
        found = app.replay(run)
        _same(found)
        assert (found.state, found.answered) == ("completed", 5)


@pytest.mark.parametrize("reason", ["parse_error", "llm_quota", "llm_rate_limit"])
def test_a_prompt_goes_on_after_a_fault_that_it_may_go_on_after(project: Path, reason: str) -> None:
    _write(project, "cat >/dev/null\necho fine\n", "bot.sh")
    app, run = _recorded(project, "---\ntype: workflow\nsteps:\n  - id: say\n---\n## say\nSay it.\n")
    with app:
        found = app.replay(run, faults=[f"{reason}@say"])
        assert (found.state, found.exit_code, found.units[0].attempt) == ("completed", 0, 2)


def test_a_run_that_a_killed_or_interrupted_driver_left_is_refused(project: Path) -> None:
    app = open_project(project)
    with app:
        app.run_file(_write(project, _solo("sleep 30")), ParamsInput(), timeout_s=0.2)
        with pytest.raises(UsageError, match="has not come to an end"):
            app.replay(app.find("last"))


def test_verdicts_of_people_are_replayed(project: Path) -> None:
    app, run = _recorded(project, _solo("echo hi", "    gate: { approval: true }\n"))
    with app:
        app.approve(run, note="fine")
        app.run_id(run)
        found = app.replay(run)
        _same(found)
        assert found.state == "completed"


def test_an_override_of_a_rejected_gate_is_replayed(project: Path) -> None:
    app, run = _recorded(project, _solo("echo hi", "    gate: { check: exit 1 }\n"))
    with app:
        app.approve(run, override=True)
        app.run_id(run)
        _same(app.replay(run))


def test_a_resumed_run_is_replayed_with_its_rounds_and_raised_budget(project: Path) -> None:
    text = "---\ntype: workflow\nbudget: { max_units: 1 }\nsteps:\n  - id: a\n    run: echo 1\n  - id: b\n    run: echo 2\n---\n"
    app, run = _recorded(project, text)
    with app:
        assert app.resume(run, raises={"max_units": 5}).state == "completed"
        _same(app.replay(run))


def test_a_changed_workflow_gets_the_recorded_answers_and_what_it_lacks_is_said(project: Path) -> None:
    app, run = _recorded(project, _solo("echo hi"))
    with app:
        changed = _write(project, _solo("echo other", "  - id: two\n    run: echo new\n"), "new.md")
        found = app.replay(run, workflow=changed)
        assert found.changed == ("one:solo",)
        assert found.steps[0].same
        assert found.not_recorded == {"two:solo": "the recorded run has no unit two:solo"}
        assert found.units[1].reason == "dispatch_error"
        assert found.exit_code == 1
        assert found.differences[0].startswith("step two: no such step, now failed")


def test_a_check_that_is_asked_about_another_artifact_gives_no_verdict(project: Path) -> None:
    app, run = _recorded(project, _solo("echo '1'", "    gate: { check: 'true' }\n"))
    with app:
        text = _solo("echo '1'", "    output: { type: integer }\n    gate: { check: 'true' }\n")
        found = app.replay(run, workflow=_write(project, text, "new.md"))
        assert "about another artifact" in found.not_recorded["one.gate:l1"]
        assert (found.state, found.reason) == ("blocked", "check_unavailable")


@pytest.mark.parametrize("reason", [str(reason) for reason in Reason])
def test_every_reason_can_be_added_as_a_fault(project: Path, reason: str) -> None:
    app, run = _recorded(project, _solo("echo hi"))
    with app:
        found = app.replay(run, faults=[f"{reason}@one"])
        assert found.faulted == {"one:solo": f"{reason}@one"}
        assert found.units[0].reason == reason
        assert found.exit_code == 1


@pytest.mark.parametrize("where", ["", ":2", ":b", ':"b"', ":3.0"])
def test_a_fault_strikes_once_and_the_retry_gets_the_recorded_answer(project: Path, where: str) -> None:
    app, run = _recorded(project, _MAP)
    with app:
        found = app.replay(run, faults=[f"timeout@each{where}"])
        assert [unit.attempt for unit in found.units if unit.id in found.faulted] == [2]
        assert found.differences == ()
        assert found.exit_code == 0


def test_a_fault_that_no_dispatch_meets_fails_the_replay(project: Path) -> None:
    app, run = _recorded(project, _MAP)
    with app:
        found = app.replay(run, faults=["timeout@each:9"])
        assert found.faults_unused == {"timeout@each:9": "'each' had 3 dispatches"}
        assert found.exit_code == 1


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("timeot@each", "did you mean 'timeout'?"),
        ("timeout@eac", "did you mean 'each'?"),
        ("timeout@way", "use 'list', 'each'"),
        ("timeout", "write REASON@STEP"),
        ("timeout@each:", "write REASON@STEP"),
        ("timeout@each:0", "write REASON@STEP"),
        ("timeout@each:" + "9" * 5_000, "write REASON@STEP"),
        ("timeout@each.judge", "use 'each'"),
        ("timeout@ech.check", "did you mean 'each'?"),
    ],
)
def test_a_fault_that_cannot_be_read_is_refused_with_a_hint(project: Path, text: str, hint: str) -> None:
    app, run = _recorded(project, _MAP)
    with app, pytest.raises(UsageError) as raised:
        app.replay(run, faults=[text])
    assert raised.value.hint.startswith(hint)


_AUDITED: Final = """
import sys
from interlock.app import open_project
from interlock.driver.project import project_at
begun = []
def hook(name, args):
    if name in ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "socket.connect"):
        begun.append(name)
sys.addaudithook(hook)
with open_project(sys.argv[1]) as app:
    found = app.replay(sys.argv[2])
print(found.exit_code, begun)
"""


def test_no_process_is_begun_and_nothing_is_connected(project: Path) -> None:
    app, run = _recorded(project, _MAP)
    app.close()
    said = subprocess.run(
        [sys.executable, "-c", _AUDITED, str(project), run], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout == "0 []\n"
