"""What engines used, in status, units and progress: counted, estimated and unknown are told apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.conftest import Journal, attempt, reading, started

from interlock.cli import program
from interlock.cli.progress.feed import Change
from interlock.cli.progress.plain import PlainRenderer
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.plan import Engine, Gate, Judge, Plan, Project, Prompt, Step
from interlock.model.run import RunInfo, Snapshot
from interlock.model.states import RunState, StepState, UnitState

PLAN = Plan(
    format=1,
    name="flow",
    source="flow.md",
    source_sha256="sha256:0",
    steps=(
        Step(
            id="draft",
            target=Prompt(text="Write.", engine="coder", model="big-1"),
            gate=Gate(judge=Judge(rubric="ok", engine="fast"), approval=True, max_loops=3),
        ),
    ),
    engines=(
        Engine(name="coder", kind="agent", driver="claude"),
        Engine(name="fast", kind="llm", driver="openai"),
    ),
    project=Project(root="/p", device=1, inode=1, id="p"),
)
COUNTED = ev.Usage(input_tokens=1_000, output_tokens=234, cost_usd=0.42)
ESTIMATED = ev.Usage(input_tokens=20_000, output_tokens=0, estimated=True)
SUBJECT = canon.sha256(b'"text"')


def asked(kind: ev.UnitKind, ordinal: int, name: str) -> ev.UnitsAdded:
    unit = ev.NewUnit(ordinal, name, None, None, SUBJECT, SUBJECT)
    return ev.UnitsAdded(at=3, step=0, kind=kind, round=1, loop=1, state=StepState.GATING, units=(unit,))


def dispatched(found: list[ev.Event], engine: str, model: str | None) -> list[ev.Event]:
    return [
        msgspec.structs.replace(event, engine=engine, model=model) if isinstance(event, ev.AttemptReserved) else event
        for event in found
    ]


STORY: list[ev.Event] = [
    started(0, "draft:solo"),
    *dispatched(
        attempt(
            0,
            0,
            "h.1",
            UnitState.COMPLETED,
            result=b'"text"',
            usage=COUNTED,
            answered=ev.Answered(session="0199-aaaa", model="big-1-2026"),
        ),
        "coder",
        "big-1",
    ),
    asked("judge", 1, "draft.gate:l1.j1"),
    *dispatched(
        attempt(0, 1, "h.2", UnitState.COMPLETED, result=b'{"complete":true}', verdict="pass", usage=ESTIMATED),
        "fast",
        None,
    ),
    asked("approval", 2, "draft.gate:l1.approval"),
    ev.StepMoved(at=5, step=0, state=StepState.BLOCKED, reason="approval_needed", detail="a person must approve"),
    ev.RunMoved(at=6, state=RunState.BLOCKED, reason="approval_needed", detail="step 'draft': a person must approve"),
]


@pytest.fixture
def told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a reading command says of a run that asked two engines and waits for a person."""
    journal = Journal(tmp_path)
    lease = journal.run("01CCC", PLAN, b"{}")
    journal.store.commit(lease, STORY)
    journal.store.release(lease)
    journal.store.close()

    def call(*arguments: str) -> str:
        session = reading(tmp_path)
        assert program.run([*arguments], session) == 0
        return capfd.readouterr().out

    return call


def test_status_tells_what_is_counted_estimated_and_unknown(told: Callable[..., str]) -> None:
    shown = told("status")
    assert (
        "used     21,234 tokens (20,000 of them estimated), at least $0.42 (the cost of 1 answer is unknown)\n" in shown
    )
    usage = json.loads(told("status", "--json"))["usage"]
    assert usage == {
        "units": 1,
        "tokens": 21_234,
        "cost_usd": 0.42,
        "duration_ms": 0,
        "tokens_estimated": 20_000,
        "unpriced": 1,
        "corrected": 0,
        "placeholders": 0,
    }


def test_status_of_a_prompt_that_waits_for_approval_offers_a_loop(told: Callable[..., str]) -> None:
    assert told("status").partition("next: ")[2].splitlines() == [
        "interlock status 01CCC --artifact draft    # read what it made",
        "      interlock approve 01CCC draft              # let it pass",
        '      interlock reject 01CCC draft --note "..."  # let it try once more with your note',
    ]


def test_units_name_engine_model_tokens_cost_and_session(told: Callable[..., str]) -> None:
    (unit,) = json.loads(told("units", "last", "--json"))
    found = {key: unit[key] for key in ("engine", "model", "tokens", "cost_usd", "session")}
    assert found == {
        "engine": "coder",
        "model": "big-1-2026",
        "tokens": 1_234,
        "cost_usd": 0.42,
        "session": "0199-aaaa",
    }
    head, line, judge, _ = told("units", "last", "--all").splitlines()
    assert " ".join(head.split()) == "UNIT STATE TRY TOOK ENGINE MODEL TOKENS COST SESSION ITEM RESULT OR ERROR"
    assert line.split()[4:] == ["500", "ms", "coder", "big-1-2026", "1,234", "$0.42", "0199-aaaa", "-", '"text"']
    assert judge.split()[6:10] == ["fast", "-", "20,000", "-"]


def test_units_of_a_run_without_engines_have_no_columns_for_them(read: Callable[..., str]) -> None:
    assert "ENGINE" not in read("units", "01A")


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def show(lines: list[str]) -> Callable[..., None]:
    """Shows events to plain progress, which writes into `lines`; the clock stands."""
    snapshot = Snapshot(PLAN, RunInfo(id="01CCC", params={}))
    now = [0.0]
    renderer = PlainRenderer(lambda line, _tone: lines.append(line.rstrip("\n")), clock=lambda: now[0])

    def call(*events: ev.Event, later_s: float = 0) -> None:
        for event in events:
            snapshot.apply(event)
            renderer.show([Change([event], snapshot)], snapshot, 0)
        if later_s:
            now[0] += later_s
            renderer.show([], snapshot, 0)

    return call


def test_progress_tells_of_judges_and_persons_and_what_was_used(show: Callable[..., None], lines: list[str]) -> None:
    show(*STORY[:3], later_s=60)
    show(*STORY[3:-2])
    assert lines == [
        "step draft started",
        "still running after 1 min 0 s, 1,234 tokens, $0.42: draft",
        "step draft: asking the judge",
        "step draft: waits for a person to approve it",
    ]


def test_progress_tells_of_verdicts_loops_and_what_a_further_loop_is_told(
    show: Callable[..., None], lines: list[str]
) -> None:
    told = canon.dumps({"feedback": "name the\x1b version", "missing": ["2"]})
    unit = ev.NewUnit(2, "draft:solo~l2", None, None, "h", None, told)
    show(*STORY[:-2])
    show(
        ev.Approved(at=1, step=0, unit=2, by="ana", verdict="reject", subject=SUBJECT, note="no\nversion"),
        ev.LoopsGranted(at=1, step=0, more=2),
        ev.StepStarted(at=1, step=0, round=1, loop=2, units=(unit,)),
    )
    assert lines[-3:] == [
        "step draft: rejected by ana: no\\nversion",
        "step draft: 2 loops more granted",
        "step draft started (loop 2 of 5), told: name the\\x1b version",
    ]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"verdict": "pass"}, "approved by ana"),
        ({"verdict": "pass", "override": True, "note": "known"}, "overruled by ana: known"),
    ],
)
def test_progress_tells_who_let_it_pass(
    fields: dict[str, Any], said: str, show: Callable[..., None], lines: list[str]
) -> None:
    show(*STORY[:-2], ev.Approved(**{"at": 1, "step": 0, "unit": 2, "by": "ana", "subject": SUBJECT, **fields}))
    assert lines[-1] == f"step draft: {said}"


def test_progress_tells_of_a_quota_and_until_when(show: Callable[..., None], lines: list[str]) -> None:
    show(ev.EngineParked(at=1, engine="coder", until=None), ev.EngineParked(at=1, engine="fast", until=86_400_000))
    assert lines[0] == "engine coder has no quota and nobody knows until when; its units wait"
    assert lines[1].startswith("engine fast has no quota until 1970-01-0")


def test_progress_tells_a_corrective_question_from_a_retry(show: Callable[..., None], lines: list[str]) -> None:
    reserved, finished = attempt(0, 0, "h.1", UnitState.PENDING, error="no JSON", asks=1)
    show(STORY[0], reserved, finished)
    assert lines[-1] == "unit draft:solo is asked again for an answer that fits: no JSON"
