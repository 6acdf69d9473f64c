"""What a run came to is told alike by exit code, JSON and text, wherever it stopped: all held against what was decided."""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cli.conftest import reading
from tests.decide.lives import Life, agent_plans
from tests.decide.runs import PARAMS, picker, plans, world
from tests.driver.desk import HOST, RUN, new_run
from tests.driver.test_loop_lives import Kept

from interlock.app import App
from interlock.cli import program
from interlock.cli.census_text import ending
from interlock.cli.summary import show_summary
from interlock.driver.lease import fresh
from interlock.driver.load import run_info
from interlock.driver.project import project_at
from interlock.driver.result import exit_code, result_of
from interlock.model.plan import Plan
from interlock.model.run import RunInfo, Snapshot
from interlock.model.states import RunState, StepState, UnitState
from interlock.plan.config import Config
from interlock.store.sqlite import SqliteStore
from interlock.testing.clock import FakeClock
from interlock.testing.simulate import simulate

WORDS = ("completed", "failed", "skipped", "not run")


def said(call: Callable[[], object]) -> str:
    """Return what it writes to standard output."""
    written = io.BytesIO()
    with io.TextIOWrapper(written, encoding="utf-8", write_through=True) as out, redirect_stdout(out):
        call()
        return written.getvalue().decode()


def told(root: Path, *arguments: str) -> str:
    """What a reading command says."""
    codes: list[int] = []
    text = said(lambda: codes.append(program.run([*arguments], reading(root))))
    assert codes == [0]
    return text


def counts(text: str) -> dict[str, int]:
    """Read a census in words."""
    found = {word: int(many.replace(",", "")) for many, word in re.findall(r"([\d,]+) ([a-z]+(?: [a-z]+)?)", text)}
    return {word: found.get(word, 0) for word in (*WORDS, "not ended")}


def reasons(text: str) -> dict[str, int]:
    """Read why units failed from a census in words."""
    inner = re.search(r"failed \((.*?)\)", text)
    return {} if inner is None else {why: int(many) for many, why in (e.split() for e in inner[1].split(", "))}


def decided(snap: Snapshot) -> dict[str, int]:
    """Count what there is by what was decided, without the journal."""
    ended = snap.run.state in {RunState.COMPLETED, RunState.FAILED}
    states = Counter(unit.state for step in snap.steps for unit in step.work)
    # a route has no work to count
    working = [step for step in snap.steps if snap.plan.steps[step.index].route is None]
    unborn = Counter(step.state for step in working if not step.work)
    never = unborn[StepState.PENDING] if ended else 0
    ends = UnitState.COMPLETED, UnitState.FAILED, UnitState.NOT_RUN
    completed, failed, not_run = (states[state] for state in ends)
    open_ones = sum(states.values()) - completed - failed - not_run
    return dict(
        zip(
            (*WORDS, "not ended"),
            (completed, failed, unborn[StepState.SKIPPED], not_run + never, open_ones),
            strict=True,
        )
    )


def agree(snap: Snapshot, root: Path) -> None:
    """Assert that all that is told of the run is the same, and what was decided."""
    with App(project_at(root), Config()) as app:
        result = result_of(run_info(app.store.run(RUN)))
        summary = said(lambda: show_summary(app, result)).splitlines()
    view: dict[str, Any] = json.loads(told(root, "status", RUN, "--json"))
    text = told(root, "status", RUN).splitlines()
    run, census = view["run"], view["census"]
    # the counts
    true = decided(snap)
    assert {word: census[word.replace(" ", "_")] for word in WORDS} == {word: true[word] for word in WORDS}
    assert census["units"] == sum(true.values())
    assert sum(census["by_reason"].values()) == true["failed"]
    for name in ("units", *(word.replace(" ", "_") for word in WORDS)):
        assert census[name] == sum(step["census"][name] for step in view["steps"])
    (line,) = [line for line in text if line.startswith("units ")]
    assert counts(line) == counts(summary[1].partition(":")[2]) == true
    assert reasons(line) == reasons(summary[1]) == census["by_reason"]
    # the steps
    shown = [line.split() for line in text if re.match(r". s\d ", line)]
    assert [(words[1], words[2]) for words in shown] == [(step["id"], step["state"]) for step in view["steps"]]
    assert [step["state"] for step in view["steps"]] == [step.state for step in snap.steps]
    # how it ended
    stated = ending(run["state"], run["outcome"], run["reason"])
    assert text[1] == f"state    {stated}"
    assert summary[0].startswith(f"run {RUN} {stated} after ")
    assert (run["state"], run["outcome"]) == (snap.run.state, snap.run.outcome)
    assert result.exit_code == meant(run["state"], failed=true["failed"], reason=run["reason"])


def meant(state: str, *, failed: int, reason: str | None) -> int:
    """The exit code that the guide's table gives."""
    gate = reason in {"gate_rejected", "check_unavailable", "judge_unavailable"}
    codes = {"completed": 6 if failed else 0, "failed": 1, "abandoned": 1, "waiting": 75, "active": 130}
    return {**codes, "blocked": 3 if gate else 4}[state]


@contextmanager
def journal() -> Iterator[tuple[Path, SqliteStore]]:
    """A project with an empty journal."""
    with tempfile.TemporaryDirectory() as folder:
        paths = project_at(Path(folder))
        paths.state_dir.mkdir()
        with SqliteStore.open(paths.journal) as store:
            yield paths.root, store


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(plans() | plans(kinds="solo route route continue"), st.integers(0, 2**32), st.sampled_from([25, 5, 0]))
def test_exit_code_json_and_text_agree_on_every_end(plan: Plan, seed: int, troubles: int) -> None:
    ended = simulate(plan, world(seed, plan, troubles=troubles), PARAMS, pick=picker(seed))
    with journal() as (root, store):
        lease = fresh(RUN, 1, HOST, FakeClock())
        store.create_run(new_run(plan, PARAMS), lease)
        store.commit(lease, ended.events)
        agree(ended.snap, root)


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(agent_plans(), st.integers(0, 2**32))
def test_exit_code_json_and_text_agree_wherever_a_run_stops(plan: Plan, seed: int) -> None:
    with journal() as (root, store):
        kept = Kept(plan, store)

        def watch(life: Life) -> None:
            kept.tell(life, 1_000)
            agree(life.simulation.snap, root)

        Life(plan, seed).live(watch)


@pytest.mark.parametrize("state", list(RunState))
@pytest.mark.parametrize("outcome", [None, "ok", "degraded"])
@pytest.mark.parametrize("reason", [None, "gate_rejected", "judge_unavailable", "check_unavailable", "approval_needed"])
def test_every_end_has_its_exit_code_and_words_of_its_own(
    state: RunState, outcome: str | None, reason: str | None
) -> None:
    run = RunInfo(id=RUN, state=state, outcome=outcome, reason=reason, params={})
    assert exit_code(run) == meant(state, failed=outcome == "degraded", reason=reason)
    stated = ending(state, outcome, reason)
    assert stated.startswith(state)
    assert ("degraded" in stated) == (outcome == "degraded")
