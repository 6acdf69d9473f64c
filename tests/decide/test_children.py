"""Child runs as units: what they are given, what they come to, and what they share with the runs above them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock.decide import children
from interlock.decide.budget import ceiling, exhausted
from interlock.decide.next import next_actions
from interlock.decide.now import Now
from interlock.decide.outcome import record
from interlock.decide.reuse import Done, index
from interlock.decide.schedule import run_room
from interlock.decide.values import UnresolvedError
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.actions import Dispatch
from interlock.model.plan import Binding, Budget, Child, Hole, Limits, Param, Plan, Reference
from interlock.model.run import RunInfo, Snapshot, Unit
from interlock.model.states import AttemptState, Reason, RunState, StepState, UnitState
from interlock.testing.build import plan, ref, solo, step

BELOW = "sha256:below"
NUMBER = Param(name="n", schema_json='{"type":"integer"}', required=True)
WORD = Param(name="word", schema_json='{"type":"string"}', default_json='"hi"')
ITEM = Reference(text="item.k[1]", root="item", name="", path=("k", 1))


def target(*bindings: Binding) -> Child:
    return Child(path="./below.md", plan=BELOW, bindings=bindings)


def above(given: Child, budget: Budget | None = None, limits: Limits | None = None, **params: Any) -> Snapshot:
    below = msgspec.structs.replace(plan(step("last")), params=(NUMBER, WORD))
    own = plan(step("s", target=given), budget=budget, limits=limits)
    return Snapshot(msgspec.structs.replace(own, children={BELOW: below}), RunInfo(id="R", params=params))


def below(parent: Snapshot, made: Plan | None = None) -> Snapshot:
    snap = Snapshot(made or plan(step("first"), step("last")), RunInfo(id="C", params={}), parent)
    parent.below.append(snap)
    return snap


def reserved(snap: Snapshot, number: int = 1, tokens: int = 0) -> None:
    """Begin the first step of the run and reserve its only unit."""
    if not snap.steps[0].units:
        unit = solo(0, f"{snap.steps[0].id}:solo")
        snap.apply(ev.StepStarted(at=1, step=0, round=1, loop=1, units=(unit,)))
    snap.apply(ev.AttemptReserved(at=1, step=0, unit=0, number=number, dispatch=f"d{number}", reserve_tokens=tokens))


def finished(snap: Snapshot, usage: ev.Usage | None = None) -> None:
    snap.apply(
        ev.AttemptFinished(
            at=2,
            step=0,
            unit=0,
            number=1,
            dispatch="d1",
            state=AttemptState.COMPLETED,
            unit_state=UnitState.COMPLETED,
            result=b"1",
            usage=usage,
        )
    )


def bound(name: str, value: object, **holes: Any) -> Binding:
    found = tuple(Hole(at=tuple(at), ref=reference) for at, reference in holes.get("at", ()))
    return Binding(name=name, value_json=canon.dumps(value).decode(), holes=found)


def test_params_are_what_is_given_over_the_defaults() -> None:
    snap = above(target(bound("n", None, at=[((), ref("params.p"))])), p=3)
    given = snap.plan.steps[0].target
    assert isinstance(given, Child)
    assert children.params_of(snap, given, None) == {"n": 3, "word": "hi"}


def test_a_reference_may_stand_deep_in_a_value_and_lead_into_the_item() -> None:
    snap = above(target(bound("n", 1), bound("word", None, at=[((), ITEM)])))
    given = snap.plan.steps[0].target
    assert isinstance(given, Child)
    assert children.params_of(snap, given, b'{"k":["a","b"]}') == {"n": 1, "word": "b"}
    with pytest.raises(UnresolvedError, match=r"item.k\[1\]: there is no \[1\] in a list of 1"):
        children.params_of(snap, given, b'{"k":["a"]}')


def test_what_does_not_fit_is_named_and_a_secret_is_not_said() -> None:
    snap = above(target(bound("n", "hush")))
    given = snap.plan.steps[0].target
    assert isinstance(given, Child)
    with pytest.raises(UnresolvedError) as caught:
        children.params_of(snap, given, None)
    assert str(caught.value) == 'param \'n\' of ./below.md: value: "hush" is not of type "integer"'
    secret = msgspec.structs.replace(snap.plan.children[BELOW], params=(msgspec.structs.replace(NUMBER, secret=True),))
    snap.plan.children[BELOW] = secret
    with pytest.raises(UnresolvedError) as caught:
        children.params_of(snap, given, None)
    assert str(caught.value) == "param 'n' of ./below.md: the value does not fit its schema"


@pytest.mark.parametrize(
    ("state", "stopped", "status", "reason"),
    [
        (RunState.FAILED, None, "failed", Reason.CHILD_FAILED),
        (RunState.FAILED, Reason.TIMEOUT, "failed", Reason.TIMEOUT),
        (RunState.ABANDONED, None, "aborted", None),
        (RunState.COMPLETED, None, "ok", None),
    ],
)
def test_what_a_child_came_to_is_an_outcome(
    state: RunState, stopped: Reason | None, status: str, reason: Reason | None
) -> None:
    snap = below(above(target()))
    snap.run.state, snap.run.detail = state, "why"
    outcome = children.ended(Unit(solo(), "work", 1, 1), snap, 9, stopped)
    assert (outcome.status, outcome.reason, outcome.ended_at) == (status, reason, 9)
    assert outcome.error == {"failed": "run C: why", "aborted": "run C was abandoned", "ok": ""}[status]


def test_what_a_degraded_child_is_short_of_is_said_of_its_unit_and_degrades_its_parent() -> None:
    root = above(target())
    reserved(root)
    own, unit = root.steps[0], root.steps[0].units[0]
    snap = below(root)
    snap.run.state, snap.run.outcome = RunState.COMPLETED, "degraded"
    snap.steps[0].counts |= {UnitState.FAILED: 1, UnitState.NOT_RUN: 2}
    outcome = children.ended(unit, snap, 9)
    assert (outcome.status, outcome.error) == ("ok", "run C is degraded: 1 failed, 2 not run")
    root.apply_all(record(root, own, unit, outcome, 9))
    assert (unit.state, unit.error, children.degraded(own)) == (UnitState.COMPLETED, outcome.error, [unit])
    root.apply_all([action for action in next_actions(root, Now(at=9)) if not isinstance(action, Dispatch)])
    assert next_actions(root, Now(at=9)) == [
        ev.RunMoved(at=9, state=RunState.COMPLETED, outcome="degraded", driven_ms=0)
    ]
    root.run.state, root.run.outcome = RunState.COMPLETED, "degraded"
    assert children.ended(unit, root, 9).error == "run R is degraded: 1 degraded below"


def test_a_degraded_child_is_not_taken_over_whole_but_where_it_was_taken_before() -> None:
    root = above(target())
    reserved(root)
    unit = root.steps[0].units[0]
    finished(root)
    for error, origin, whole in [
        ("", None, True),
        ("short", None, False),
        ("short", ev.Origin("O", "s:solo", 1), True),
    ]:
        unit.error, unit.origin = error, origin
        done = Done("s", unit, "h", origin or ev.Origin("R", unit.id, 1))
        assert (("s", "s:solo", "h") in index(root, [done]).work) is whole


def test_the_result_is_that_of_the_last_step_that_was_not_skipped() -> None:
    snap = below(above(target()))
    snap.run.state = RunState.COMPLETED
    for entry, state, artifact in zip(
        snap.steps, (StepState.COMPLETED, StepState.SKIPPED), (b'"made"', None), strict=True
    ):
        entry.state, entry.artifact = state, artifact
    assert children.ended(Unit(solo(), "work", 1, 1), snap, 9).output == b'"made"'
    snap.steps[0].artifact = b'"' + b"x" * snap.plan.limits.max_result_bytes + b'"'
    outcome = children.ended(Unit(solo(), "work", 1, 1), snap, 9)
    assert (outcome.status, outcome.reason) == ("failed", Reason.OUTPUT_TOO_LARGE)


def test_what_a_child_has_in_flight_and_uses_counts_in_every_run_above_it() -> None:
    root = above(target(), limits=Limits(max_concurrency=2))
    reserved(root)
    middle = below(root, msgspec.structs.replace(root.plan))
    reserved(middle)
    lowest = below(middle)
    reserved(lowest, tokens=100)
    levels = (root, middle, lowest)
    assert [(snap.busy, snap.dispatched, snap.reserved_tokens) for snap in levels] == [(1, 1, 100)] * 3
    assert [snap.running for snap in levels] == [1, 1, 1]
    assert run_room(lowest).attempts == 1, "the limit is that of the run above"
    finished(lowest, ev.Usage(input_tokens=5, output_tokens=2, cost_usd=0.5))
    assert [(snap.busy, snap.tokens, snap.cost_usd, snap.reserved_tokens) for snap in levels] == [(0, 7, 0.5, 0)] * 3


def test_a_ceiling_above_holds_below_and_a_raise_above_lifts_a_lower_one() -> None:
    root = above(target(), budget=Budget(max_units=1))
    snap = below(root, plan(step("first"), budget=Budget(max_units=5)))
    reserved(snap)
    now = Now(at=1, above_ms=(0,))
    said = exhausted(snap, snap.plan.steps[0], "work", now)
    assert said == "the budget's max_units of 1 is used up (1), in run R above"
    root.raised["max_units"] = 9
    assert (exhausted(snap, snap.plan.steps[0], "work", now), ceiling(snap, "max_units")) == (None, 9)
    assert ceiling(snap, "max_tokens") is None, "what has no ceiling gets none"


def test_a_step_is_blocked_by_children_that_cannot_move_and_waits_for_those_that_are_due() -> None:
    root = above(target())
    reserved(root)
    own, unit = root.steps[0], root.steps[0].units[0]
    snap = below(root)
    snap.run.state, snap.run.reason, snap.run.detail, snap.run.wait_until = RunState.WAITING, "llm_quota", "later", 50
    held = children.held(snap)
    assert held is not None
    root.hold(own, unit, held)
    assert (own.moving, root.held) == (False, 1)
    parked = children.park(own, Now(at=2))
    assert (parked.state, parked.reason, parked.detail) == (StepState.WAITING, "child_waiting", "run C: later")
    snap.run.state, snap.run.reason, snap.run.wait_until = RunState.BLOCKED, "approval_needed", None
    held = children.held(snap)
    assert held is not None
    root.hold(own, unit, held)
    assert root.held == 1
    blocked = children.park(own, Now(at=2))
    root.apply(blocked)
    assert (own.state, own.reason, children.blocker(own)) == (StepState.BLOCKED, "child_blocked", "approval_needed")
    root.release(own, unit)
    assert (own.moving, root.held) == (True, 0)
    moves = children.go_on(root, own, Now(at=3))
    assert [(type(move), move.state) for move in moves if isinstance(move, ev.StepMoved | ev.RunMoved)] == [
        (ev.StepMoved, StepState.RUNNING)
    ]
