"""Short builders of plans and outcomes for tests: what a test doesn't care about has a default."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from interlock.model import canon
from interlock.model.events import NewUnit
from interlock.model.outcome import Outcome
from interlock.model.plan import (
    Backoff,
    Budget,
    Command,
    Engine,
    Gate,
    Input,
    Judge,
    Limits,
    Map,
    Plan,
    Project,
    Prompt,
    Reference,
    Retry,
    Route,
    Shell,
    Step,
    Target,
    When,
)
from interlock.model.states import Reason

_REFERENCE: Final = re.compile(r"(?:params\.(\w+)|steps\.([\w-]+)\.output)((?:\.\w[\w-]*|\[-?\d+\])*)")
_PART: Final = re.compile(r"\.(\w[\w-]*)|\[(-?\d+)\]")
QUICK: Final = Backoff(initial_ms=10, factor=2.0, max_ms=1_000)


def ref(text: str) -> Reference:
    """Parse a reference as a workflow writes it."""
    found = _REFERENCE.fullmatch(text)
    if found is None:
        raise ValueError(f"not a reference: {text}")
    path = tuple(name or int(number) for name, number in _PART.findall(found[3]))
    root: Literal["params", "steps"] = "params" if found[1] else "steps"
    return Reference(text=text, root=root, name=found[1] or found[2], path=path)


def over(text: str, *, concurrency: int | None = None, vote: bool = False, item_schema: object = None) -> Map:
    """Build a map over the list at `text`."""
    return Map(
        over=ref(text),
        concurrency=concurrency,
        reducer="vote" if vote else "collect",
        item_schema_json=None if item_schema is None else canon.dumps(item_schema).decode(),
    )


def route(text: str, when: Mapping[str, str], default: str | None = None) -> Route:
    """Build a route from matched texts to step ids."""
    branches = tuple(When(match=match, step=step_id) for match, step_id in when.items())
    return Route(input=ref(text), when=branches, default=default)


def step(
    step_id: str,
    target: Target | str = "true",
    *,
    needs: Sequence[str] | None = None,
    inputs: Sequence[str] = (),
    schema: object = None,
    retries: int = 0,
    **settings: Any,  # noqa: ANN401 - fields of plan.Step, whose constructor checks their names
) -> Step:
    """Build a step; without `needs` it gets the step before it when `plan` puts it in its place."""
    routes = settings.get("route") is not None
    settings.setdefault("retry", Retry(max=retries, backoff=QUICK))
    return Step(
        id=step_id,
        needs=tuple(needs or ()),
        explicit_needs=needs is not None,
        target=None if routes else Command(text=target) if isinstance(target, str) else target,
        inputs=tuple(Input(name=text, ref=ref(text)) for text in inputs),
        output_schema_json=None if schema is None else canon.dumps(schema).decode(),
        **settings,
    )


def prompt(text: str = "Do it.", engine: str = "e") -> Prompt:
    """Build a prompt to an engine."""
    return Prompt(text=text, engine=engine)


def judged(*, loops: int = 1, asked: int = 1, each: bool = False, approval: bool = False) -> Gate:
    """Build a gate with a judge."""
    return Gate(judge=Judge(rubric="Good.", engine="j", asked=asked), max_loops=loops, each=each, approval=approval)


def check(text: str = "true", *, each: bool = False) -> Gate:
    """Build a gate with a check command."""
    return Gate(check=Command(text=text), each=each)


def plan(*steps: Step, budget: Budget | None = None, root: str = "/nowhere", limits: Limits | None = None) -> Plan:
    """Build a plan: implicit needs and routers are filled in as compile does."""
    placed = []
    for index, entry in enumerate(steps):
        before = (steps[index - 1].id,) if index else ()
        routers = tuple(other.id for other in steps if other.route and entry.id in _targets(other.route))
        needs = entry.needs if entry.explicit_needs else before
        placed.append(msgspec.structs.replace(entry, needs=needs, routers=routers))
    return Plan(
        format=1,
        name="sample",
        source="sample.md",
        source_sha256="sha256:0",
        steps=tuple(placed),
        budget=budget or Budget(),
        shell=Shell(name="sh", argv=("/bin/sh", "-eu", "-c")),
        project=Project(root=root, device=0, inode=0, id="p"),
        limits=limits or Limits(),
        engines=(Engine(name="e", kind="llm", driver="openai"), Engine(name="j", kind="llm", driver="openai")),
    )


def _targets(entry: Route) -> set[str]:
    return {branch.step for branch in entry.when} | ({entry.default} if entry.default else set())


def solo(ordinal: int = 0, unit_id: str = "a:solo") -> NewUnit:
    """Build the unit of a solo step."""
    return NewUnit(ordinal, unit_id, None, None, "sha256.v1:0")


def ok(output: bytes | str = b"", *, exit_code: int = 0, is_json: bool = False) -> Outcome:
    """Build the end of an attempt that went well (or of a check or probe, by its exit code)."""
    raw = output.encode() if isinstance(output, str) else output
    return Outcome(dispatch="", status="ok", output=raw, exit_code=exit_code, is_json=is_json)


def failed(
    reason: Reason = Reason.NON_ZERO_EXIT, error: str = "", *, answered: bool = True, after_ms: int | None = None
) -> Outcome:
    """Build the end of an attempt that failed."""
    return Outcome(
        dispatch="",
        status="failed",
        reason=reason,
        error=error,
        answered=answered,
        retry_after_ms=after_ms,
        exit_code=1,
    )


def aborted(*, answered: bool = False) -> Outcome:
    """Build the end of an attempt that was cancelled."""
    return Outcome(dispatch="", status="aborted", reason=Reason.ABORTED, answered=answered)
