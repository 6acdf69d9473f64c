"""Approving, rejecting and granting loops, by the program as a process of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]

FLOW = """---
params: { items: { type: array, default: [a, b] } }
steps:
  - id: make
    run: echo '{"n":1}'
    output: { type: object }
    gate: { approval: true }
  - id: each
    needs: []
    map: { over: params.items }
    run: echo "$INTERLOCK_ITEM"
    gate: { approval: true, each: true }
  - id: strict
    needs: []
    run: echo x
    gate: { check: echo nope; exit 1 }
---
"""


@pytest.fixture
def waiting(tmp_path: Path, interlock: Interlock) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The program in a project whose last run waits at three gates."""
    (tmp_path / "flow.md").write_text(FLOW, encoding="utf-8")
    done = interlock("run", "flow.md", cwd=tmp_path)
    assert done.returncode == 4, done.stdout + done.stderr
    return lambda *arguments: interlock(*arguments, cwd=tmp_path)


def test_status_shows_what_waits_and_how_to_answer(waiting: Interlock) -> None:
    told = waiting("status").stdout
    run = told.split()[0]
    assert f"interlock status {run} --artifact make" in told
    assert f"interlock approve {run} make " in told
    assert f'interlock approve {run} strict --override --note "..."' in told
    assert told.count("# let item ") == 2


def test_what_waits_can_be_read_whole(waiting: Interlock) -> None:
    assert json.loads(waiting("status", "last", "--artifact", "make").stdout) == {"n": 1}
    assert json.loads(waiting("status", "last", "--artifact", "each").stdout) == ["a", "b"]
    assert waiting("status", "last", "--artifact", "strict").stdout == "x\n"
    assert waiting("status", "last", "--artifact", "strict", "--json").stdout == '"x"\n'
    unknown = waiting("status", "last", "--artifact", "maek")
    assert (unknown.returncode, unknown.stderr) == (
        2,
        "error: the run has no step 'maek'\nhint: did you mean 'make'?\n",
    )


def test_everything_approved_lets_the_run_complete(waiting: Interlock) -> None:
    several = waiting("approve", "last")
    assert (several.returncode, several.stderr.splitlines()[0]) == (
        2,
        "error: several steps wait: name one of make, each",
    )
    approved = waiting("approve", "last", "make", "--note", "read\x1b[31m it")
    assert approved.returncode == 0, approved.stderr
    assert approved.stdout.startswith("approved make; run ")
    assert "approve" in approved.stdout.partition("next:")[2], "others wait still"
    assert waiting("approve", "last", "each").returncode == 0
    refused = waiting("approve", "last", "strict")
    assert refused.returncode == 2
    assert "--override" in refused.stderr
    assert waiting("approve", "last", "strict", "--override", "-m", "known").returncode == 0
    done = waiting("run", "last")
    assert done.returncode == 0, done.stdout + done.stderr
    told = waiting("status").stdout
    assert "read\\x1b[31m it" in told
    assert "overruled by " in told
    assert waiting("status", "last", "--artifact", "make").stdout == '{\n  "n": 1\n}\n'


def test_one_item_alone_can_be_approved_by_its_gate_unit(waiting: Interlock) -> None:
    units = json.loads(waiting("units", "last", "--step", "each", "--all", "--json").stdout)
    first = next(unit["id"] for unit in units if ".gate" in unit["id"])
    assert waiting("approve", "last", first).returncode == 0
    assert waiting("run", "last").returncode == 4
    assert waiting("status").stdout.count("# let item ") == 1


def test_a_rejected_command_fails_its_step(waiting: Interlock) -> None:
    rejected = waiting("reject", "last", "make", "--note", "wrong number")
    assert rejected.returncode == 0, rejected.stderr
    assert rejected.stdout.startswith("rejected make; run ")
    assert waiting("run", "last").returncode == 1
    assert "wrong number" in waiting("status").stdout


@pytest.mark.parametrize("target", ["nowhere", "make.gate:l9", "make:solo"])
def test_a_gate_that_is_not_there_is_a_clear_error(waiting: Interlock, target: str) -> None:
    done = waiting("approve", "last", target)
    assert done.returncode == 2
    assert f"has no step or gate unit '{target}'" in done.stderr


def test_loops_are_granted_to_prompts_alone(waiting: Interlock) -> None:
    done = waiting("resume", "last", "--loops", "+1")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: step 'strict' is no prompt: doing it again with feedback would change nothing\n"
    )
    run = waiting("status").stdout.split()[0]
    assert f"hint: ask its gate again with `interlock resume {run}`, or pass it with " in done.stderr
    assert done.stderr.endswith(f" `interlock approve {run} strict --override`\n")
    for number in ("0", "+0", "-1", "many", "101"):
        wrong = waiting("resume", "last", f"--loops={number}")
        assert wrong.returncode == 2
        assert f"'{number}' is no number of loops; write +1, or up to +100" in wrong.stderr


def test_an_item_is_named_by_its_gate_or_by_the_gate_s_unit(waiting: Interlock) -> None:
    told = waiting("status").stdout.split()
    first, second = sorted({word for word in told if word.startswith("each.gate:")})
    assert waiting("approve", "last", first.removesuffix(".approval")).returncode == 0
    assert waiting("approve", "last", first).returncode == 2
    assert waiting("approve", "last", second).returncode == 0


@pytest.mark.parametrize(("code", "state"), [(0, "completed"), (1, "blocked")])
def test_a_check_that_prints_more_than_a_result_may_have_is_judged_by_its_exit(
    tmp_path: Path, interlock: Interlock, code: int, state: str
) -> None:
    check = f"seq 1 400000; echo why >&2; exit {code}"
    text = f"---\nsteps:\n  - id: a\n    run: echo x\n    gate: {{ check: '{check}' }}\n---\n"
    (tmp_path / "flow.md").write_text(text, encoding="utf-8")
    interlock("run", "flow.md", cwd=tmp_path)
    told = json.loads(interlock("status", "--json", cwd=tmp_path).stdout)
    (step,) = told["steps"]
    assert (told["run"]["state"], step["reason"]) == (state, None if code == 0 else "gate_rejected")
    if code:
        first, second = step["feedback"].splitlines()[:2]
        assert first == "[its beginning is left out]"
        assert second.isdigit()
        assert step["feedback"].endswith("\n399999\n400000\nwhy")
        assert len(step["feedback"]) == 4000
