"""Real runs by the program as a process of its own: exit codes, output, signals, odd readers."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.waiting import until
from tests.store import builders as b

from interlock.store.sqlite import SqliteStore

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
PROGRAM = [sys.executable, "-c", "from interlock.cli.entry import main; main()"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the program and ends what is left of it."""
    started: list[subprocess.Popen[bytes]] = []

    def call(*arguments: str, **how: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*PROGRAM, *arguments], cwd=tmp_path, stdin=subprocess.DEVNULL, **how)
        started.append(process)
        return process

    yield call
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_a_run_shows_its_steps_its_count_and_its_last_artifact(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    done = interlock("run", str(flow()), "-p", "who=you", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].endswith(" of flow.md")
    assert lines[1] == "step greet started"
    assert lines[2].startswith("step greet completed after ")
    assert lines[-2:] == ["  1 unit: 1 completed", "  greet: hello you"]


@pytest.mark.parametrize(
    ("steps", "code", "said"),
    [
        ((), 0, "completed after"),
        (("id: bad, run: exit 7",), 1, "next: interlock resume"),
        (("id: gated, run: echo x, gate: { check: echo no; false }",), 3, "blocked (gate_rejected)"),
        (("id: once, run: sleep 30, timeout: 100ms, effects: external",), 4, "next: interlock resolve"),
        (("id: soft, run: exit 1, on_error: continue",), 6, "completed, degraded"),
    ],
)
def test_the_exit_code_tells_how_it_ended(
    steps: tuple[str, ...], code: int, said: str, flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    done = interlock("run", str(flow(*steps)), cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
    for line in done.stdout.splitlines():
        if "next: interlock resume" in line or "next: interlock run" in line:
            again = interlock(*shlex.split(line, comments=True)[2:], cwd=tmp_path)
            assert again.returncode == code, again.stderr


def test_ndjson_is_one_event_a_line_and_ends_with_the_status(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    done = interlock("run", str(flow("id: bad, run: exit 7")), "--json", cwd=tmp_path)
    *events, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == last["exit_code"] == 1
    assert (last["type"], last["did"]) == ("run_ended", "drove")
    assert last["census"]["by_reason"] == {"non_zero_exit": 1}
    assert {event["run"] for event in events} == {last["run"]["id"]}
    assert [event["type"] for event in events[-2:]] == ["step_moved", "run_moved"]
    status = json.loads(interlock("status", "last", "--json", cwd=tmp_path).stdout)
    assert {key: last[key] for key in status if key != "run"} == {key: status[key] for key in status if key != "run"}


def test_a_workflow_with_faults_is_told_place_by_place_and_exits_2(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    done = interlock("run", str(flow("id: bad, runn: exit 7")), cwd=tmp_path)
    assert done.returncode == 2
    assert "^" in done.stderr
    assert "did you mean 'run'?" in done.stderr
    assert done.stdout == ""
    found = json.loads(interlock("lint", "flow.md", "--json", cwd=tmp_path).stdout)
    assert list(found[0]) == ["file", "line", "column", "severity", "code", "message", "hint"]


def test_a_failed_run_is_resumed_with_only_what_failed(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    path = flow("id: door, run: test -e open")
    assert interlock("run", str(path), cwd=tmp_path).returncode == 1
    (tmp_path / "open").touch()
    done = interlock("resume", "last", cwd=tmp_path)
    assert done.returncode == 0
    assert "1 of 2 steps ended before" in done.stdout
    assert "step greet started" not in done.stdout


def test_a_ceiling_is_raised_and_neither_lowered_nor_invented(interlock: Interlock, tmp_path: Path) -> None:
    path = tmp_path / "tight.md"
    path.write_text(
        "---\ntype: workflow\nbudget: { max_units: 1, max_duration: 1h }\nsteps:\n"
        "  - { id: a, run: echo a }\n  - { id: b, run: echo b }\n---\n",
        encoding="utf-8",
    )
    assert interlock("run", str(path), cwd=tmp_path).returncode == 1
    for raised, told in (
        ("max_units=0", "max_units is 1 already; 0 would not raise it"),
        ("max_duration=1m", "max_duration is 3600s already; 60s would not raise it"),
        ("max_tokens=9", "the run has no max_tokens, so there is nothing to raise"),
    ):
        refused = interlock("resume", "last", "--raise", raised, cwd=tmp_path)
        assert (refused.returncode, refused.stderr.splitlines()[0]) == (2, f"error: {told}")
    assert interlock("resume", "last", "--raise", "max_units=2", cwd=tmp_path).returncode == 0


def test_an_unfinished_run_of_the_same_file_is_mentioned_however_many_came_after_it(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    path = flow("id: gated, run: echo x, gate: { check: 'false' }")
    interlock("run", str(path), cwd=tmp_path)
    run_id = json.loads(interlock("list", "--json", cwd=tmp_path).stdout)[0]["id"]
    with SqliteStore.open(tmp_path / ".interlock" / "journal.db") as store:
        for later in (f"later-{number}" for number in range(30)):
            store.create_run(b.new_run(later, workflow="flow.md"), b.lease(later))
            b.finish_run(store, b.lease(later))
    again = interlock("run", str(path), cwd=tmp_path)
    assert (
        again.stderr
        == f"note: run {run_id} of this file is blocked; see what it needs with `interlock status {run_id}`\n"
    )


def test_a_journal_that_a_driver_killed_at_once_left_empty_is_like_none(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    (tmp_path / ".interlock").mkdir(mode=0o700)
    (tmp_path / ".interlock" / "journal.db").touch()
    path = flow("id: a, run: echo x")
    assert interlock("list", cwd=tmp_path).returncode == 0
    assert "there are no runs" in interlock("status", cwd=tmp_path).stderr
    assert interlock("run", str(path), cwd=tmp_path).returncode == 0


def test_parameters_cannot_be_given_to_a_run_under_way(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    interlock("run", str(flow()), cwd=tmp_path)
    done = interlock("run", "last", "-p", "who=me", cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "error: -p goes with a workflow file; a run keeps what it was started with",
    )


def test_a_file_that_is_not_there_and_a_run_that_is_not_known_exit_2(interlock: Interlock, tmp_path: Path) -> None:
    for target in ("gone.md", "0123", "./x"):
        done = interlock("run", target, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert "hint: " in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["run"], ["lint"], ["lint", "--json"]])
def test_a_path_that_is_not_utf_8_is_refused_in_words(
    command: list[str], flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    path = tmp_path / os.fsdecode(b"w\xe9.md")
    path.write_text("---\ntype: workflow\nsteps:\n  - { id: a, run: echo x }\n---\n", encoding="utf-8")
    interlock("run", str(flow()), cwd=tmp_path)
    done = interlock(*command, str(path), cwd=tmp_path)
    assert done.returncode == 2
    assert f"the path {tmp_path}/w\N{REPLACEMENT CHARACTER}.md is not UTF-8" in done.stdout + done.stderr
    assert "internal error" not in done.stderr


def test_ctrl_c_leaves_a_run_that_can_be_continued(
    flow: Callable[..., Path], start: Callable[..., subprocess.Popen[bytes]], interlock: Interlock, tmp_path: Path
) -> None:
    path = flow("id: long, run: 'test -e open || { touch begun; sleep 60; }'")
    process = start("run", str(path), stdout=subprocess.PIPE, start_new_session=True)
    until((tmp_path / "begun").exists)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"interrupted" in out
    assert b"next: interlock run " in out
    (tmp_path / "open").touch()
    assert interlock("run", "last", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_sleeps_until_it_is_due_can_be_interrupted(
    start: Callable[..., subprocess.Popen[bytes]], interlock: Interlock, tmp_path: Path, number: signal.Signals
) -> None:
    said = json.dumps({"error": "usage limit reached; resets at 2100-01-01T00:00:00Z"})
    (tmp_path / "said").write_text(said)
    engine = 'kind = "agent"\nagent = "command"\ncommand = ["cat", "said"]\noutput = "json"\n'
    (tmp_path / "interlock.toml").write_text(f'[run]\nengine = "e"\n[engines.e]\n{engine}')
    (tmp_path / "flow.md").write_text("---\ntype: workflow\nsteps:\n  - id: a\n---\n# Flow\n## a\nDo it.\n")
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 75
    process = start("run", "last", "--wait", stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def drove() -> bool:
        lease = json.loads(interlock("status", "last", "--json", cwd=tmp_path).stdout)["run"]["lease"]
        return bool(lease["pid"] == process.pid and lease["released"])

    until(drove)
    process.send_signal(number)
    out, told = process.communicate(timeout=30)
    assert (process.returncode, told) == (130, b"")
    assert b"--wait  # sleep until it is due, then go on\n" in out


def test_a_reader_that_closed_its_end_does_not_change_how_the_run_ends(
    flow: Callable[..., Path], start: Callable[..., subprocess.Popen[bytes]], interlock: Interlock, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    process = start(
        "run", str(flow("id: slow, run: sleep 1", "id: bad, run: exit 1")), stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    os.close(reader)
    _, told = process.communicate(timeout=30)
    assert (process.returncode, told) == (1, b"")
    assert json.loads(interlock("list", "--json", cwd=tmp_path).stdout)[0]["state"] == "failed"


def test_a_stalled_reader_does_not_hold_the_run_up(
    flow: Callable[..., Path], start: Callable[..., subprocess.Popen[bytes]], interlock: Interlock, tmp_path: Path
) -> None:
    path = flow(
        """id: items, run: 'python3 -c "print(list(range(900)))"', output: { type: array }""",
        "id: many, run: 'true', map: { over: steps.items.output, concurrency: 4 }",
    )
    process = start("run", str(path), "--json", stdout=subprocess.PIPE)

    def ended() -> bool:
        listed = json.loads(interlock("list", "--json", cwd=tmp_path).stdout)
        return bool(listed) and listed[0]["state"] == "completed"

    until(ended, 90)
    out, _ = process.communicate(timeout=30)
    assert len(out) > 65_536
    assert json.loads(out.splitlines()[-1])["type"] == "run_ended"
    assert process.returncode == 0


def test_a_run_under_way_is_abandoned_from_outside(
    flow: Callable[..., Path], start: Callable[..., subprocess.Popen[bytes]], interlock: Interlock, tmp_path: Path
) -> None:
    process = start("run", str(flow("id: long, run: touch begun; sleep 60")), stdout=subprocess.PIPE)
    until((tmp_path / "begun").exists)
    held = interlock("run", "last", cwd=tmp_path)
    assert held.returncode == 5
    assert "driven by pid" in held.stderr
    assert "next: interlock events" in interlock("status", cwd=tmp_path).stdout
    skipped = interlock("run", "flow.md", "--if-running", "skip", cwd=tmp_path)
    assert (skipped.returncode, skipped.stdout.partition(":")[0]) == (0, "skipped")
    as_json = interlock("run", "flow.md", "--if-running", "skip", "--json", cwd=tmp_path)
    (last,) = [json.loads(line) for line in as_json.stdout.splitlines()]
    assert (last["type"], last["did"], last["exit_code"], last["run"]["state"]) == ("run_ended", "skipped", 0, "active")
    assert interlock("run", "flow.md", "--if-running", "fail", cwd=tmp_path).returncode == 5
    assert interlock("abandon", "last", cwd=tmp_path).returncode == 0
    process.communicate(timeout=30)
    assert process.returncode == 1
    assert json.loads(interlock("status", "--json", cwd=tmp_path).stdout)["run"]["state"] == "abandoned"


def test_the_budget_of_a_run_under_way_is_raised_from_outside_and_never_lowered(
    flow: Callable[..., Path], start: Callable[..., subprocess.Popen[bytes]], interlock: Interlock, tmp_path: Path
) -> None:
    path = flow("id: long, run: touch begun; until test -e go; do sleep 0.05; done", "id: more, run: 'true'")
    path.write_text(path.read_text().replace("steps:", "budget: { max_units: 2 }\nsteps:", 1))
    process = start("run", str(path), stdout=subprocess.PIPE)
    until((tmp_path / "begun").exists)
    refused = interlock("resume", "last", "--raise", "max_units=2", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, ""), refused.stderr
    assert refused.stderr.startswith("error: max_units is 2 already; 2 would not raise it\n")
    raised = interlock("resume", "last", "--raise", "max_units=3", cwd=tmp_path)
    assert (raised.returncode, raised.stderr) == (0, "")
    assert "is driven by another process, which took the change" in raised.stdout
    (tmp_path / "go").touch()
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_budget_that_is_used_up_is_raised_and_never_lowered(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    path = flow("id: one, run: 'true'", "id: two, run: 'true'")
    path.write_text(path.read_text().replace("steps:", "budget: { max_units: 2 }\nsteps:", 1))
    assert interlock("run", str(path), cwd=tmp_path).returncode == 1
    refused = interlock("resume", "last", "--raise", "max_units=0", cwd=tmp_path)
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        2,
        "error: max_units is 2 already; 0 would not raise it",
    )
    assert json.loads(interlock("status", "--json", cwd=tmp_path).stdout)["run"]["state"] == "failed"
    assert interlock("resume", "last", "--raise", "max_units=3", cwd=tmp_path).returncode == 0


def test_ids_of_later_rounds_are_shown_whole(flow: Callable[..., Path], interlock: Interlock, tmp_path: Path) -> None:
    assert interlock("run", str(flow("id: shut, run: test -e open")), cwd=tmp_path).returncode == 1
    (tmp_path / "open").touch()
    assert interlock("resume", "last", cwd=tmp_path).returncode == 0
    assert [line.split()[0] for line in interlock("units", "last", cwd=tmp_path).stdout.splitlines()[2:]] == [
        "shut:solo~r2"
    ]


def test_a_person_answers_for_an_effect_that_nobody_knows_of(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    interlock("run", str(flow("id: once, run: sleep 30, timeout: 100ms, effects: external")), cwd=tmp_path)
    done = interlock("resolve", "last", "once:solo", "--done", "--result", '"sent"', cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert interlock("run", "last", cwd=tmp_path).stdout.endswith("once: sent\n")


def test_a_key_gives_the_finished_outcome_instead_of_a_second_run(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    path = flow("id: mark, run: echo x >> marks")
    for _ in range(2):
        assert interlock("run", str(path), "--key", "k", cwd=tmp_path).returncode == 0
    assert (tmp_path / "marks").read_text() == "x\n"


def test_a_key_of_another_plan_or_of_other_params_starts_a_run_and_says_so(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    first = flow("id: mark, run: exit 1")
    interlock("run", str(first), "--key", "k", cwd=tmp_path)
    done = interlock("run", str(first), "--key", "k", "-p", "who=you", cwd=tmp_path)
    newer, older = json.loads(interlock("list", "--json", cwd=tmp_path).stdout)
    assert (newer["key"], older["key"]) == ("k", "k")
    assert f"run {older['id']} has the same key but other params; it is failed\n" in done.stdout
    path = flow("id: mark, run: exit 0")
    done = interlock("run", str(path), "--key", "k", cwd=tmp_path)
    told = f"run {newer['id']} has the same key but another plan: file, configuration or commit changed; it is failed"
    assert told in done.stdout
    assert "the same key" not in interlock("run", str(path), "--key", "new", cwd=tmp_path).stdout


def test_the_starter_workflow_lints_and_runs_and_is_never_overwritten(interlock: Interlock, tmp_path: Path) -> None:
    assert interlock("new", "deep/hello", cwd=tmp_path).returncode == 0
    assert interlock("lint", "deep", cwd=tmp_path).stderr == "no faults found\n"
    assert interlock("run", "deep/hello.md", cwd=tmp_path).stdout.endswith("celebrate: a fine crowd\n")
    again = interlock("new", "deep/hello", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (
        2,
        "error: deep/hello.md exists\nhint: give another name: interlock new FILE\n",
    )


def test_a_standard_stream_that_is_closed_from_the_start_harms_nothing(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    flow()
    for closed in (">&-", "2>&-", "<&-", ">&- 2>&- <&-"):
        script = f'exec "$@" {closed}'
        done = subprocess.run(["sh", "-c", script, "sh", *PROGRAM, "run", "flow.md"], cwd=tmp_path, check=False)
        assert done.returncode == 0
    runs = json.loads(interlock("list", "--json", cwd=tmp_path).stdout)
    assert [run["state"] for run in runs] == ["completed"] * 4


def test_wrong_configuration_exits_78(flow: Callable[..., Path], interlock: Interlock, tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_text("[run]\nmax_concurency = 3\n", encoding="utf-8")
    done = interlock("run", str(flow()), cwd=tmp_path)
    assert done.returncode == 78
    assert "did you mean 'max_concurrency'?" in done.stderr
