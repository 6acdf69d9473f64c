"""What a person can type next: from a run's state and reasons to commands that exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from interlock.model.states import RunState, StepState, UnitState
from interlock.store.base import RunRow, StepRow

_PLAIN: Final[dict[RunState, str]] = {
    RunState.ACTIVE: "interlock run {}",
    RunState.WAITING: "interlock run {} --wait",
    RunState.ABANDONED: "interlock resume {}",
}
_REOPENING: Final[dict[str, str]] = {
    "gate_rejected": "",
    "module_changed": " --accept-changes",
    "directory_changed": " --accept-changes",
}


def next_commands(
    run: RunRow, steps: Sequence[StepRow], unknown: Iterable[str] = (), *, live: bool = False
) -> list[str]:
    """Commands that move the run on, best first; none when there is nothing to do.

    `unknown` are ids of units whose effect a person must answer for, `live` says that a driver is at work.
    """
    if live:
        return [f"interlock events {run.id} --follow"]
    state = RunState(run.state)
    if state is RunState.BLOCKED:
        return _blocked(run, steps, unknown)
    if state is RunState.FAILED:
        return [_failed(run, steps), f"interlock units {run.id} --state failed"]
    if state is RunState.COMPLETED:
        return [f"interlock units {run.id} --state failed"] if run.outcome == "degraded" else []
    return [_PLAIN[state].format(run.id)]


def _blocked(run: RunRow, steps: Sequence[StepRow], unknown: Iterable[str]) -> list[str]:
    answers = [f"interlock resolve {run.id} {unit} --done|--rerun" for unit in unknown]
    if answers:
        return answers
    reasons = [run.reason, *(step.reason for step in steps if step.state == StepState.BLOCKED)]
    for reason in reasons:
        if reason in _REOPENING:
            return [f"interlock resume {run.id}{_REOPENING[reason]}"]
    return [f"interlock run {run.id}"]


def _failed(run: RunRow, steps: Sequence[StepRow]) -> str:
    reasons = {run.reason, *(step.reason for step in steps if step.state == StepState.FAILED)}
    if "budget_exceeded" in reasons:
        ceiling = next((name for name in _CEILINGS if any(name in step.detail for step in steps)), "max_units")
        return f"interlock resume {run.id} --raise {ceiling}=N"
    return f"interlock resume {run.id}"


_CEILINGS: Final = ("max_units", "max_tokens", "max_cost_usd", "max_duration")


def needs_answer(steps: Sequence[StepRow]) -> list[int]:
    """Indices of steps that are blocked, where units in the state `unknown` may be waiting."""
    return [step.step for step in steps if step.state == StepState.BLOCKED]


UNKNOWN: Final = UnitState.UNKNOWN.value
