"""What a person can type next: from a run's state and reasons to commands that exist, each with what it does.

Guarantee: whatever blocks a run, there is at least one command that moves it on, and none that is offered is
refused for the state it was offered in.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from interlock.model.states import RUN_ENDED, RunState, StepState
from interlock.store.base import RunRow, StepRow
from interlock.views.facts import PlanFacts


class Next(msgspec.Struct, frozen=True):
    """A command, and what it does where that is not plain from the command."""

    command: str
    why: str = ""


class Gate(msgspec.Struct, frozen=True):
    """A gate unit that waits for a person: its id and, where each item is approved alone, the item."""

    unit: str
    item: str | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for a person's answer, by step index; `more` counts what is not listed."""

    unknown: dict[int, tuple[str, ...]] = {}
    """Ids of units whose effect may or may not have happened."""
    approvals: dict[int, tuple[Gate, ...]] = {}
    more: dict[int, int] = {}


NOBODY: Final = Asked()
_HELD: Final = frozenset({StepState.BLOCKED.value, StepState.WAITING.value})
"""A step that waits for a quota holds up a blocked run too, when nobody knows how long."""
NOTE: Final = '--note "..."'


def next_commands(
    run: RunRow,
    steps: Sequence[StepRow],
    facts: PlanFacts,
    asked: Asked = NOBODY,
    *,
    live: bool = False,
    failed: bool = True,
) -> list[Next]:
    """Commands that move the run on, best first; none when there is nothing to do.

    `live` says that a driver is at work: it takes answers, but no second driver. `failed`: some units did.
    """
    found = _own_commands(run, steps, facts, asked, live=live)
    if failed and (run.state == RunState.FAILED or run.outcome == "degraded") and found != [_mended(run)]:
        found.append(Next(f"interlock units {run.id} --state failed"))
    return [_of_family(run, entry) for entry in found]


def in_another_folder(run: RunRow, found: Sequence[Next], there: str, first: str | None) -> list[Next]:
    """Return what of the commands can be done where the project was moved to; work goes on in `there` only.

    A fork does its work here, from the step `first` on.
    """
    kept = [one for one in found if one.command.split()[1] not in _WORKS]
    if len(kept) == len(found):
        return kept
    fork = f"interlock fork {run.family}" + (f" --from {first}" if first and run.root is None else "")
    return [*kept, Next(fork, f"do here what is left; the run itself goes on in {there} only: put the project back")]


def of_the_original(run: RunRow, there: str) -> list[Next]:
    """Where a run goes on whose project this one is a copy of, or shares the journal with."""
    return [
        Next(f"interlock --project {shlex.quote(there)} status {run.id}", "it belongs to that folder, not this one")
    ]


def _of_family(run: RunRow, found: Next) -> Next:
    """A child goes on with the run above it: what drives it drives that."""
    verb, _, rest = found.command.removeprefix("interlock ").partition(" ")
    if run.root is None or verb not in _DRIVES:
        return found
    return msgspec.structs.replace(found, command=f"interlock {verb} {run.root}{rest.removeprefix(run.id)}")


def with_the_whole(ended: RunRow) -> Next:
    """What moves on a run below one that has ended."""
    if ended.root is None:
        return Next(f"interlock resume {ended.id}")
    was = "was " if ended.state == RunState.ABANDONED else ""
    return Next(f"interlock status {ended.root}", f"it goes on with run {ended.id}, which {was}{ended.state}")


def _own_commands(run: RunRow, steps: Sequence[StepRow], facts: PlanFacts, asked: Asked, *, live: bool) -> list[Next]:
    blocked = [step for step in steps if step.state in _HELD]
    state = RunState(run.state)
    # a driver that has ended its run may hold it for a moment more
    live = live and state not in RUN_ENDED
    if live or state is RunState.ACTIVE:
        answers = [found for step in blocked for found in _of_step(run, step, facts, asked) if _is_answer(found)]
        return [*answers, Next(f"interlock events {run.id} --follow" if live else f"interlock run {run.id}")]
    if state is RunState.BLOCKED:
        by_child = any(step.reason == "child_blocked" for step in blocked)
        found = [found for step in blocked for found in _of_step(run, step, facts, asked)]
        if by_child and not found:
            return []
        return list(dict.fromkeys(found)) or [Next(f"interlock run {run.id}")]
    if state is RunState.FAILED:
        answers = [found for step in steps for found in _resolve(run.id, step, facts, asked)]
        # no fork is made while nobody knows whether it would repeat an effect
        return [*answers, *_failed(run, steps, forks=not answers)]
    return _OPEN[state](run.id)


_OPEN: Final[dict[RunState, Callable[[str], list[Next]]]] = {
    RunState.WAITING: lambda run: [Next(f"interlock run {run} --wait", "sleep until it is due, then go on")],
    RunState.COMPLETED: lambda _run: [],
    RunState.ABANDONED: lambda run: [Next(f"interlock resume {run}")],
}


def _is_answer(found: Next) -> bool:
    return found.command.split()[1] in {"approve", "reject", "resolve", "status"}


def _of_step(run: RunRow, step: StepRow, facts: PlanFacts, asked: Asked) -> list[Next]:
    """What moves one blocked step on."""
    act = _BLOCKED.get(step.reason or "")
    if act is None:
        return [*_resolve(run.id, step, facts, asked)] or [Next(f"interlock run {run.id}")]
    return act(run.id, step, facts, asked)


def _resolve(run: str, step: StepRow, facts: PlanFacts, asked: Asked) -> list[Next]:
    unknown = asked.unknown.get(step.step, ())
    done = ("--done", "if it took place")
    if unknown and facts.needs_result(step.step):
        done = ("--done --result JSON", "if it took place, with the result that the step's schema asks for")
    return [
        Next(f"interlock resolve {run} {unit} {answer}", why)
        for unit in unknown
        for answer, why in (done, ("--rerun", "if it did not"))
    ]


def _probe(run: str, step: StepRow, facts: PlanFacts, asked: Asked) -> list[Next]:
    return [*_resolve(run, step, facts, asked), Next(f"interlock run {run}", "ask the probe again")]


def _rejected(run: str, step: StepRow, facts: PlanFacts, _asked: Asked) -> list[Next]:
    override = _override(run, step)
    if not facts.loops(step.step):
        return [Next(f"interlock resume {run}", "ask the gate again, once what it looks at has changed"), override]
    return [
        Next(f"interlock resume {run} --loops +1", "let it try once more with this feedback"),
        Next(f"interlock reject {run} {step.id} {NOTE}", "let it try once more with your note"),
        override,
    ]


def _approval(run: str, step: StepRow, facts: PlanFacts, asked: Asked) -> list[Next]:
    gates = asked.approvals.get(step.step, ())
    each = [gate for gate in gates if gate.item is not None]
    after = "let it try once more with your note" if facts.loops(step.step) else "fail the step"
    read = Next(f"interlock status {run} --artifact {step.id}", "read what it made")
    if not each:
        return [
            read,
            Next(f"interlock approve {run} {step.id}", "let it pass"),
            Next(f"interlock reject {run} {step.id} {NOTE}", after),
        ]
    more = asked.more.get(step.step, 0)
    rest = (
        [Next(f"interlock units {run} --step {step.id} --all --state pending", f"{more:,} more wait")] if more else []
    )
    return [
        read,
        Next(f"interlock approve {run} {step.id}", "let every item that waits pass"),
        *(Next(f"interlock approve {run} {gate.unit}", f"let item {gate.item} pass") for gate in each),
        Next(f"interlock reject {run} {each[0].unit} {NOTE}", after),
        *rest,
    ]


def _judge(run: str, step: StepRow, _facts: PlanFacts, _asked: Asked) -> list[Next]:
    return [
        Next(f"interlock run {run}", "ask the judge again; no work is repeated"),
        Next("interlock doctor", "see whether the judge's engine and its key are there"),
        _override(run, step),
    ]


def _check(run: str, step: StepRow, _facts: PlanFacts, _asked: Asked) -> list[Next]:
    return [Next(f"interlock run {run}", "ask the check again; no work is repeated"), _override(run, step)]


def _override(run: str, step: StepRow) -> Next:
    return Next(f"interlock approve {run} {step.id} --override {NOTE}", "let it pass on your own verdict")


def _quota(run: str, _step: StepRow, _facts: PlanFacts, _asked: Asked) -> list[Next]:
    return [Next(f"interlock run {run}", "go on, once the engine takes work again")]


def _changed(run: str, step: StepRow, _facts: PlanFacts, _asked: Asked) -> list[Next]:
    if "cannot be read" in step.detail:
        # of what is not there nothing can be accepted
        return [Next(f"interlock run {run}", "once it is there again")]
    return [
        Next(f"interlock resume {run} --accept-changes", "go on with what is there now"),
        Next(f"interlock run {run}", "once it is back as it was"),
    ]


def _by_child(_run: str, _step: StepRow, _facts: PlanFacts, _asked: Asked) -> list[Next]:
    """What the child run is blocked by is moved on there."""
    return []


_WORKS: Final = frozenset({"run", "resume"})
_DRIVES: Final = frozenset({"run", "resume", "events", "abandon"})
_BLOCKED: Final[dict[str, Callable[[str, StepRow, PlanFacts, Asked], list[Next]]]] = {
    "approval_needed": _approval,
    "check_unavailable": _check,
    "child_blocked": _by_child,
    "child_waiting": _by_child,
    "gate_rejected": _rejected,
    "judge_unavailable": _judge,
    "llm_quota": _quota,
    "module_changed": _changed,
    "probe_unavailable": _probe,
}

_FIGURE: Final = r"[\d.,]+(?:e[+-]?\d+)?"
_USED_UP: Final = re.compile(
    rf"the budget's (?P<name>max_\w+) of (?P<top>{_FIGURE})s? "
    rf"(?:is used up \((?P<used>{_FIGURE})s?\)|leaves too little \((?P<spent>{_FIGURE}) used\) for (?P<more>{_FIGURE}) more)"
)
"""A ceiling and what was used of it, as `decide/budget.py` tells them."""
_FAILS_AGAIN: Final = frozenset({"route_failed", "vote_failed"})
"""What comes of the results that there are, each time anew."""
_ENGINE_TROUBLE: Final = frozenset({"env_unresolved", "llm_auth", "spawn_failed"})


def _never_began(steps: Sequence[StepRow]) -> bool:
    """Tell whether what failed found no input: it finds none in what others have made, each time anew."""
    return all(step.started_at is None for step in steps if step.state == StepState.FAILED)


def _failed(run: RunRow, steps: Sequence[StepRow], *, forks: bool) -> list[Next]:
    reasons = {run.reason, *(step.reason for step in steps if step.state == StepState.FAILED)}
    doctor = [Next("interlock doctor", "see what is missing")] if reasons & _ENGINE_TROUBLE else []
    if reasons - {None} <= _FAILS_AGAIN | ({"dispatch_error"} if _never_began(steps) else set()):
        return [_mended(run)] if forks else []
    raised = _raised(steps, own="budget_exceeded" in reasons)
    again = Next(f"interlock resume {run.id}{raised}")
    return [*doctor, again, *([_mended(run)] if forks and not raised else [])]


def _mended(run: RunRow) -> Next:
    return Next(f"interlock fork {run.id}", "once the workflow is mended: what was done is kept")


def _raised(steps: Sequence[StepRow], *, own: bool) -> str:
    """Return the option that raises the ceiling which a step ran into; of a child run's the detail tells, not the reason."""
    found = [match for step in steps for match in _USED_UP.finditer(step.detail)]
    if not found:
        return " --raise max_units=N" if own else ""
    name = found[0]["name"]
    # one of each of several child runs: the highest is enough for all
    twice = 2 * max(_needed(match) for match in found if match["name"] == name)
    if name == "max_cost_usd":
        return f" --raise {name}={math.ceil(twice * 100) / 100:.15g}"
    return f" --raise {name}={math.ceil(twice)}{'s' if name == 'max_duration' else ''}"


def _needed(match: re.Match[str]) -> float:
    """Return what would just have been enough."""
    top, used, spent, more = (
        float((match[which] or "0").replace(",", "")) for which in ("top", "used", "spent", "more")
    )
    return max(top, used, spent + more)
