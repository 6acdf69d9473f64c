from __future__ import annotations

from typing import Any

from tests.decide.runs import by_unit

from interlock.decide.preview import StepPlan, preview
from interlock.model import events as ev
from interlock.model.plan import Plan
from interlock.model.states import Reason, StepState
from interlock.testing.build import check, failed, judged, ok, over, plan, route, step
from interlock.testing.simulate import Simulation, simulate, snapshot


def fresh(specs: Plan, params: dict[str, Any] | None = None) -> list[tuple[str, str, str, int | None]]:
    return [short(entry) for entry in preview(snapshot(specs, params))]


def short(entry: StepPlan) -> tuple[str, str, str, int | None]:
    return entry.id, entry.action, entry.why, None if entry.units is None else len(entry.units)


def test_a_new_run_shows_what_is_known_before_it_begins() -> None:
    specs = plan(
        step("a", needs=[]),
        step("m", map=over("params.items")),
        step("n", map=over("steps.a.output"), needs=["a"]),
        step("bad", map=over("params.none"), needs=["a", "n"]),
        step("r", route=route("params.pick", {"x": "t"})),
        step("t"),
    )
    assert fresh(specs, {"items": [1, 2], "pick": "x"}) == [
        ("a", "run", "needs nothing", 1),
        ("m", "run", "needs a", 2),
        ("n", "run", "needs a", None),
        ("bad", "run", "needs a, n", None),
        ("r", "decide", "by params.pick", 0),
        ("t", "run", "needs r; if chosen by r", 1),
    ]


def test_a_run_under_way_shows_what_is_reused_asked_and_run_again() -> None:
    specs = plan(
        step("a"),
        step("m", map=over("params.items", concurrency=1), retries=5),
        step("g", needs=["a"], gate=check()),
        step("e", needs=["a"], effects="external"),
        step("r", needs=[], route=route("params.pick", {"x": "t"}, "u")),
        step("t", needs=[]),
        step("u", needs=[]),
    )
    answers = {
        "g.gate:l1": [ok(exit_code=126)],
        "e:solo": [failed(Reason.TIMEOUT, answered=False)],
    }
    simulation = Simulation(
        snapshot(specs, {"items": [1, 2], "pick": "x"}),
        by_unit(answers, lambda s, _u: failed() if s.id == "m" else ok()),
    )
    while simulation.snap.by_id["m"].work == [] or simulation.snap.by_id["g"].state is not StepState.BLOCKED:
        simulation.turn()
    found = {entry.id: short(entry)[1:3] for entry in preview(simulation.snap)}
    assert found == {
        "a": ("reuse", "completed"),
        "m": ("run", "was running"),
        "g": ("ask", "check_unavailable: asked again"),
        "e": ("ask", "effect_unknown: a person must act"),
        "r": ("reuse", "completed"),
        "t": ("reuse", "completed"),
        "u": ("skip", "a route chose otherwise"),
    }
    units = {unit.id: (unit.action, unit.why) for entry in preview(simulation.snap) for unit in entry.units or ()}
    assert units["a:solo"] == ("reuse", "completed in attempt 1")
    assert units["e:solo"] == ("ask", "its effect may or may not have happened")
    assert {why for unit, (_, why) in units.items() if unit.startswith("m:")} <= {
        "never ran", "waiting after attempt 1 (non_zero_exit)", "running after attempt 1", "running after attempt 2 (non_zero_exit)",
    }  # fmt: skip


def test_a_step_whose_list_will_not_do_is_shown_without_units() -> None:
    assert fresh(plan(step("m", map=over("params.items"))), {"items": [1, 1]}) == [("m", "run", "needs nothing", None)]


def test_a_finished_run_would_do_nothing() -> None:
    done = simulate(plan(step("m", map=over("params.items"))), lambda _s, _u: ok(), {"items": []})
    assert preview(done.snap)[0].action == "reuse"
    assert isinstance(done.events[0], ev.StepStarted)


def test_an_item_that_failed_in_a_step_that_went_on_without_it_would_not_run_again() -> None:
    specs = plan(step("m", map=over("params.items"), on_error="continue"), step("n", gate=judged(approval=True)))
    done = simulate(specs, lambda s, u: failed() if (s.id, u.index) == ("m", 1) else ok("x"), {"items": ["a", "b"]})
    units = [(unit.action, unit.why) for unit in preview(done.snap)[0].units or ()]
    assert units == [("reuse", "completed in attempt 1"), ("skip", "failed after attempt 1 (non_zero_exit)")]


def test_a_failed_item_that_a_fork_took_over_is_not_said_to_have_never_run() -> None:
    specs = plan(step("m", map=over("params.items"), on_error="continue"))
    done = simulate(specs, lambda _s, _u: failed(), {"items": ["a"]})
    done.snap.steps[0].work[0].attempt = 0
    assert [unit.why for unit in preview(done.snap)[0].units or ()] == ["failed (non_zero_exit)"]
