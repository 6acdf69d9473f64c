"""Runs that were abandoned, failed or cut short, and how they go on."""

from __future__ import annotations

from tests.decide.runs import by_unit, dispatches

from interlock.decide import requests
from interlock.decide.next import next_actions
from interlock.decide.reopen import close_lost, divergences, go_on, reopen
from interlock.model import events as ev
from interlock.model.plan import Budget, Command
from interlock.model.states import Reason, RunState, StepState, UnitState
from interlock.testing.build import check, failed, ok, over, plan, solo, step
from interlock.testing.simulate import Simulation, simulate, snapshot

PROBE = Command(text="ask")
EXTERNAL = plan(step("a", effects="external", probe=PROBE), step("b"))
LOST = failed(Reason.TIMEOUT, answered=False)


def states(simulation: Simulation) -> dict[str, str]:
    return {s.id: str(s.state) for s in simulation.snap.steps}


def run_of(simulation: Simulation) -> tuple[str, str | None, str]:
    run = simulation.snap.run
    return run.state, run.reason, run.detail


NO_PROBE = plan(step("a", effects="external", schema={"type": "integer"}), step("b"))


def blocked() -> Simulation:
    done = simulate(NO_PROBE, by_unit({"a:solo": [LOST]}, lambda _s, _u: ok("1")))
    assert run_of(done) == (
        "blocked", "effect_unknown", "step 'a': it is not known whether these took effect: a:solo",
    )  # fmt: skip
    return done


# abandon and reopen


def test_an_abandoned_run_counts_what_never_ran_and_resume_takes_up_only_that() -> None:
    specs = plan(step("m", map=over("params.items", concurrency=1)), step("n"))
    simulation = Simulation(snapshot(specs, {"items": [1, 2, 3]}), lambda _s, _u: ok("x"))
    simulation.turn()
    simulation.add(*requests.abandon(simulation.snap, simulation.now()))
    assert (simulation.snap.run.state, simulation.snap.run.outcome) == (RunState.ABANDONED, "abandoned")
    assert [str(u.state) for u in simulation.snap.steps[0].work] == ["completed", "not_run", "not_run"]
    assert simulation.snap.steps[1].state is StepState.PENDING
    simulation.add(*reopen(simulation.snap, simulation.now()))
    simulation.run()
    assert simulation.snap.run.outcome == "ok"
    assert [u.id[-3:] for u in simulation.snap.steps[0].work[1:]] == ["~r2", "~r2"]
    assert len(dispatches(simulation.events)) == 4


def test_a_run_abandoned_before_its_first_step_can_be_resumed() -> None:
    simulation = Simulation(snapshot(plan(step("a"))), lambda _s, _u: ok())
    simulation.add(*requests.abandon(simulation.snap, simulation.now()))
    simulation.add(*reopen(simulation.snap, simulation.now()))
    assert simulation.run().run.outcome == "ok"


def test_a_blocked_run_is_active_for_the_moment_in_which_its_steps_are_abandoned() -> None:
    done = blocked()
    events = requests.abandon(done.snap, done.now())
    assert isinstance(events[0], ev.RunMoved)
    assert events[0].state is RunState.ACTIVE
    done.add(*events)
    assert done.snap.steps[0].state is StepState.FAILED
    assert done.snap.steps[0].counts[UnitState.UNKNOWN] == 1


def test_a_failed_run_with_a_blocked_step_can_be_abandoned() -> None:
    specs = plan(step("a", gate=check()), step("bad", needs=[]))
    answers = {"a.gate:l1": [ok(exit_code=1)], "bad:solo": [failed()]}
    order = iter([0, 1, 0])
    done = simulate(specs, by_unit(answers), pick=lambda _count: next(order))
    assert states(done) == {"a": "blocked", "bad": "failed"}
    done.add(*requests.abandon(done.snap, done.now()))
    assert states(done) == {"a": "failed", "bad": "failed"}
    assert done.snap.run.state is RunState.ABANDONED


def test_a_reopened_step_keeps_its_completed_units_and_its_spent_retries_are_forgiven() -> None:
    specs = plan(step("m", map=over("params.items", concurrency=2), retries=1))
    bad = simulate(specs, lambda _s, u: failed() if u.index == 1 else ok("x"), {"items": [1, 2]})
    assert run_of(bad)[0] == "failed"
    assert go_on(bad.snap, bad.now()) == []
    again = Simulation(bad.snap, lambda _s, u: failed() if u.retries == 0 else ok("y"))
    again.add(*reopen(again.snap, again.now()))
    assert again.run().steps[0].artifact == b'["x","y"]'
    assert [u.id.partition("~")[2] for u in again.snap.steps[0].units] == ["", "", "r2"]
    assert again.snap.run.outcome == "ok"


def test_a_step_that_failed_before_it_had_units_begins_anew() -> None:
    specs = plan(step("a", inputs=["params.p"]))
    bad = simulate(specs, lambda _s, _u: ok())
    bad.add(*reopen(bad.snap, bad.now()))
    assert bad.snap.steps[0].state is StepState.PENDING
    bad.run()
    assert run_of(bad)[0] == "failed"


def test_a_changed_module_waits_for_consent_and_then_goes_on_where_it_was() -> None:
    simulation = Simulation(snapshot(plan(step("a"))), lambda _s, _u: ok("x"))
    simulation.add(*[e for e in next_actions(simulation.snap, simulation.now()) if isinstance(e, ev.StepStarted)])
    simulation.add(ev.StepMoved(at=1, step=0, state=StepState.BLOCKED, reason="module_changed", detail="it changed"))
    simulation.run()
    assert run_of(simulation) == ("blocked", "module_changed", "step 'a': it changed")
    simulation.add(*reopen(simulation.snap, simulation.now()), ev.ModulesAccepted(at=1, hashes={"f": "sha256:1"}))
    assert simulation.run().run.outcome == "ok"
    assert simulation.snap.accepted == {"f": "sha256:1"}


def test_a_module_is_looked_at_again_by_the_next_run_as_it_may_be_back() -> None:
    simulation = Simulation(snapshot(plan(step("a"))), lambda _s, _u: ok("x"))
    simulation.add(*[e for e in next_actions(simulation.snap, simulation.now()) if isinstance(e, ev.StepStarted)])
    simulation.add(ev.StepMoved(at=1, step=0, state=StepState.BLOCKED, reason="module_changed"))
    simulation.run()
    simulation.add(*go_on(simulation.snap, simulation.now()))
    assert simulation.snap.steps[0].state is StepState.RUNNING
    assert simulation.run().run.outcome == "ok"


def test_units_in_backoff_of_a_blocked_step_keep_no_run_open() -> None:
    simulation = Simulation(snapshot(plan(step("a", retries=1))), lambda _s, _u: failed())
    simulation.turn()
    assert simulation.snap.steps[0].backoff
    simulation.add(ev.StepMoved(at=1, step=0, state=StepState.BLOCKED, reason="module_changed"))
    simulation.run()
    assert simulation.snap.run.state is RunState.BLOCKED


def test_an_active_run_can_be_reopened_where_its_driver_died_while_it_stopped() -> None:
    specs = plan(step("bad"), step("m", needs=[], map=over("params.items", concurrency=1)))
    simulation = Simulation(snapshot(specs, {"items": [1, 2]}), by_unit({"bad:solo": [failed()]}))
    simulation.turn()
    for action in next_actions(simulation.snap, simulation.now()):
        simulation.act(action)
    assert simulation.snap.steps[0].state is StepState.FAILED
    again = Simulation(simulation.snap, lambda _s, _u: ok())
    again.take_over()
    again.add(*reopen(again.snap, again.now()))
    assert again.run().run.outcome == "ok"


def test_a_run_whose_failed_units_all_have_retries_left_goes_on_by_itself() -> None:
    specs = plan(step("a", retries=2), budget=Budget(max_units=1))
    done = simulate(specs, by_unit({"a:solo": [failed()]}))
    assert run_of(done) == ("failed", "budget_exceeded", "step 'a': the budget's max_units of 1 is used up (1)")
    done.add(ev.BudgetRaised(at=1, name="max_units", value=5), *go_on(done.snap, done.now()))
    assert done.run().run.outcome == "ok"


def test_a_step_whose_inputs_are_gone_is_reopened_all_the_same() -> None:
    specs = plan(step("a", inputs=["params.gone"]))
    simulation = Simulation(snapshot(specs), lambda _s, _u: ok())
    simulation.add(
        ev.StepStarted(at=1, step=0, round=1, loop=1, units=(solo(),)),
        ev.UnitsStopped(at=1, step=0, reason="stopped"),
        ev.StepMoved(at=1, step=0, state=StepState.FAILED),
        *reopen(simulation.snap, simulation.now()),
    )
    (started,) = [event for event in reopen(simulation.snap, simulation.now()) if isinstance(event, ev.StepStarted)]
    assert [(unit.id, unit.input_hash) for unit in started.units] == [("a:solo~r2", "")]


# going on after a crash


def test_what_a_dead_driver_left_open_is_lost_and_charges_no_retry() -> None:
    specs = plan(step("a", retries=1, gate=check()))
    simulation = Simulation(snapshot(specs), lambda _s, _u: failed())
    simulation.turn()
    while not simulation.snap.running:
        simulation.at += 10
        for action in next_actions(simulation.snap, simulation.now()):
            simulation.act(action)
    (closed,) = close_lost(simulation.snap, simulation.now())
    assert isinstance(closed, ev.AttemptFinished)
    assert (closed.state, closed.unit_state, closed.retries, closed.number) == ("lost", "pending", 1, 2)


def test_a_recorded_input_that_differs_is_a_divergence_of_completed_units_only() -> None:
    specs = plan(step("m", map=over("params.items", concurrency=1)))
    simulation = Simulation(snapshot(specs, {"items": [1, 2]}), lambda _s, _u: ok())
    assert divergences(simulation.snap, {}, simulation.now()) == []
    simulation.turn()
    started = next(e for e in simulation.events if isinstance(e, ev.StepStarted))
    true_hash = started.units[0].input_hash

    def found(recorded: str) -> list[ev.Event]:
        return divergences(simulation.snap, {(0, 0): recorded}, simulation.now())

    assert found(true_hash) == []
    assert found("sha256.v0:abc") == []
    other = ev.Divergence(at=simulation.at, step=0, unit=0, recorded="sha256.v2:abc", computed=true_hash)
    differs, told = found("sha256.v2:abc")
    unit = simulation.snap.steps[0].work[0].id
    assert (differs, told.at) == (other, simulation.at)
    assert isinstance(told, ev.Notice)
    assert (told.code, told.text) == (
        f"divergence:{unit}",
        f"what unit {unit} was given is not what the plan gives it now; its completed result stands",
    )
    simulation.add(told)
    assert found("sha256.v2:abc") == []


def test_notices_and_audits_change_no_decision() -> None:
    specs = plan(step("a"))
    simulation = Simulation(snapshot(specs), lambda _s, _u: ok())
    simulation.add(
        ev.Notice(at=1, code="n", text="t"),
        ev.EnvResolved(at=1, step=0, names=("X",)),
        ev.RequestApplied(at=1, request=1, outcome="applied"),
    )
    assert simulation.snap.noticed == {"n"}
    assert simulation.run().run.outcome == "ok"
