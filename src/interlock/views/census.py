"""Counting what became of a run's units, honestly: what never came into being is counted too.

`units` is the sum of all the others and of what has not ended yet. A skipped step counts as one skipped unit
and a step that an ended run never reached as one that did not run, since nobody knows how many there would
have been.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interlock.model.states import RUN_ENDED, RunState, StepState, UnitState
from interlock.store.base import Census, StepRow
from interlock.views.facts import PlanFacts

_ENDED = (UnitState.COMPLETED.value, UnitState.FAILED.value, UnitState.NOT_RUN.value)


def step_census(step: StepRow, counted: Census | None, *, works: bool, run_ended: bool) -> dict[str, Any]:
    """Count one step."""
    states: Mapping[str, int] = counted.by_state if counted else {}
    reasons: Mapping[str, int] = counted.by_reason if counted else {}
    units = sum(states.values())
    unborn = 1 if works and units == 0 else 0
    skipped = unborn if step.state == StepState.SKIPPED else 0
    unreached = unborn if run_ended and step.state == StepState.PENDING else 0
    completed, failed, not_run = (states.get(state, 0) for state in _ENDED)
    return {
        "units": units + skipped + unreached,
        "completed": completed,
        "failed": failed,
        "skipped": skipped,
        "not_run": not_run + unreached,
        "reused": counted.reused if counted else 0,
        "by_reason": {name: reasons[name] for name in sorted(reasons)},
    }


def step_censuses(
    state: str, steps: Sequence[StepRow], counted: Iterable[Census], facts: PlanFacts
) -> list[dict[str, Any]]:
    """Count every step, in order."""
    by_step = {census.step: census for census in counted}
    ended = RunState(state) in RUN_ENDED
    return [step_census(step, by_step.get(step.step), works=facts.works(step.step), run_ended=ended) for step in steps]


def total(censuses: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up the steps' counts."""
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for census in censuses:
        counts.update({name: count for name, count in census.items() if name != "by_reason"})
        reasons.update(census["by_reason"])
    names = ("units", "completed", "failed", "skipped", "not_run", "reused")
    return {**{name: counts[name] for name in names}, "by_reason": {name: reasons[name] for name in sorted(reasons)}}
