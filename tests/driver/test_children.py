"""Child workflows as runs below their parent: driven, failed, answered and gone on with, with real commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.driver.family_world import ASK, FLAKY, MAP, ONE, SAY, World, mend

from interlock.app import App
from interlock.cli.progress.feed import Change
from interlock.cli.progress.plain import PlainRenderer
from interlock.cli.reading import facts_of, hide_in, read_status
from interlock.driver.clock import SystemClock
from interlock.driver.params import ParamsInput
from interlock.errors import UsageError
from interlock.model.canon import dumps


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_child_is_a_run_of_its_own_and_its_result_is_that_of_its_last_step(world: World) -> None:
    world.write(parent=ONE, child=SAY)
    result = world.run()
    assert (result.state, result.exit_code) == ("completed", 0)
    assert world.artifact(result.run_id, "below") == world.artifact(result.run_id, "last") == "hello!"
    (child,) = world.children(result.run_id)
    assert (child.state, child.outcome, child.workflow) == ("completed", "ok", "child.md")
    assert (child.parent, child.parent_unit, child.root) == (result.run_id, "below:solo", result.run_id)
    assert json.loads(child.params_json) == {"word": "hello", "mark": "!"}
    (attempt,) = world.app.store.attempts(result.run_id, 1, 0)
    assert (attempt.state, attempt.process) == ("completed", None)


def test_a_map_has_a_child_for_each_item(world: World) -> None:
    child = "params: { name: {} }\nsteps:\n  - { id: s, run: 'echo \"<$INTERLOCK_PARAM_NAME>\"' }"
    world.write(parent=MAP.replace("ON_ERROR", "fail"), child=child)
    result = world.run()
    assert world.artifact(result.run_id, "each") == ["<a>", "<b>", "<c>"]
    assert len(world.children(result.run_id)) == 3
    spent = world.app.store.spent(result.run_id)
    assert spent.units == 3, "a child is no dispatch itself, and what it dispatches counts once"


def test_children_may_have_children(world: World) -> None:
    middle = "steps:\n  - { id: m, uses: ./child.md, with: { word: deep } }"
    world.write(parent="steps:\n  - { id: top, uses: ./middle.md }", middle=middle, child=SAY)
    result = world.run()
    assert world.artifact(result.run_id, "top") == "deep!"
    (middle_run,) = world.children(result.run_id)
    (lowest,) = world.children(middle_run.id)
    assert (lowest.parent, lowest.root) == (middle_run.id, result.run_id)


def test_a_param_that_does_not_fit_fails_the_step_before_anything_starts(world: World) -> None:
    child = "params: { word: { type: integer, required: true } }\nsteps:\n  - { id: s, run: 'true' }"
    world.write(parent=ONE, child=child)
    result = world.run()
    assert (result.state, result.reason) == ("failed", "dispatch_error")
    assert 'param \'word\' of ./child.md: value: "hello" is not of type "integer"' in result.detail
    assert world.children(result.run_id) == []


def test_a_child_that_fails_fails_its_unit_and_the_others_go_on(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "continue"), child=FLAKY)
    mend(world, "a", "c")
    result = world.run()
    assert (result.state, result.outcome, result.exit_code) == ("completed", "degraded", 6)
    assert world.artifact(result.run_id, "each") == ["ok a", None, "ok c"]
    (failed,) = [unit for unit in world.app.store.units(result.run_id) if unit.state == "failed"]
    child = next(row for row in world.children(result.run_id) if row.state == "failed")
    assert (failed.reason, child.parent_unit) == ("child_failed", failed.id)
    assert failed.error == f"run {child.id}: step 'flaky': unit flaky:solo failed: non_zero_exit: exit code 1"


def test_resume_goes_on_with_the_child_that_failed_and_repeats_nothing_in_it(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "fail").replace("[a, b, c]", "[a]"), child=FLAKY)
    first = world.run()
    assert (first.state, first.reason) == ("failed", "child_failed")
    mend(world, "a")
    result = world.app.resume(first.run_id)
    assert result.state == "completed"
    assert world.artifact(first.run_id, "each") == ["ok a"]
    assert world.lines() == ["once a", "try a", "try a"]
    assert len(world.children(first.run_id)) == 1


def test_a_retry_reopens_the_failed_child(world: World) -> None:
    retry = "retry: { max: 2, on: [child_failed], backoff: { initial: 1ms } }"
    parent = f"steps:\n  - {{ id: below, uses: ./child.md, {retry} }}"
    child = "steps:\n  - { id: once, run: 'echo once >> said' }\n  - { id: f, run: 'echo try >> said; test $(grep -c try said) = 3' }"
    world.write(parent=parent, child=child)
    result = world.run()
    assert (result.state, result.detail) == ("completed", "")
    assert world.lines() == ["once", "try", "try", "try"]
    assert [attempt.state for attempt in world.app.store.attempts(result.run_id, 0, 0)] == [
        "failed",
        "failed",
        "completed",
    ]
    assert len(world.children(result.run_id)) == 1


def test_a_child_that_completed_stays_so_when_its_result_is_of_no_use(world: World) -> None:
    world.write(
        parent="steps:\n  - { id: below, uses: ./child.md, output: { type: integer } }",
        child="steps:\n  - { id: s, run: 'echo word | tee -a said' }",
    )
    first = world.run()
    assert (first.state, first.reason) == ("failed", "validation_error")
    second = world.app.resume(first.run_id)
    assert (second.state, second.detail, world.lines()) == ("failed", first.detail.replace("solo", "solo~r2"), ["word"])
    (child,) = world.children(first.run_id)
    assert child.state == "completed"


class HastyClock(SystemClock):
    """Each look at it costs two milliseconds: a backoff of one is over in the turn in which it began."""

    looks = 0

    def boot_ms(self) -> int:
        self.looks += 1
        return super().boot_ms() + 2 * self.looks


def test_work_that_a_retry_starts_at_once_is_not_ended_with_the_step_that_failed(world: World) -> None:
    retry = "retry: { max: 1, on: [child_failed], backoff: { initial: 1ms } }"
    child = "steps:\n  - { id: f, run: 'echo try >> said; sleep 0.3; test $(grep -c try said) = 2' }"
    world.write(parent=f"steps:\n  - {{ id: below, uses: ./child.md, {retry} }}", child=child)
    world.app = App(world.app.project, world.app.config, clock=HastyClock())
    result = world.run()
    assert (result.state, result.detail, world.lines()) == ("completed", "", ["try", "try"])


def test_a_child_that_waits_for_a_person_blocks_its_parent_until_it_is_answered_there(world: World) -> None:
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }\n  - { id: after, run: [echo, x] }", child=ASK)
    first = world.run()
    assert (first.state, first.reason, first.exit_code) == ("blocked", "approval_needed", 4)
    assert world.states(first.run_id) == {"below": "blocked", "after": "pending"}
    (child,) = world.children(first.run_id)
    assert first.detail == f"step 'below': run {child.id}: step 'ask': a person has to approve its artifact"
    still = world.app.run_id(first.run_id)
    assert (still.state, still.reason) == ("blocked", "approval_needed")
    world.app.approve(child.id, "ask")
    assert world.app.store.run(first.run_id).state == "active"
    result = world.app.run_id(first.run_id)
    assert (result.state, world.artifact(first.run_id, "below")) == ("completed", "asked")
    assert world.lines() == ["made me"]
    (attempt,) = world.app.store.attempts(first.run_id, 0, 0)
    assert (attempt.number, attempt.state) == (1, "completed")


def test_a_rejected_child_fails_its_parent(world: World) -> None:
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }", child=ASK)
    first = world.run()
    (child,) = world.children(first.run_id)
    world.app.reject(child.id, "ask", note="no")
    result = world.app.run_id(first.run_id)
    assert (result.state, result.reason) == ("failed", "child_failed")


def test_children_that_wait_take_no_place_from_others(world: World) -> None:
    world.write(parent=MAP.replace("ON_ERROR", "fail").replace("concurrency: 2", "concurrency: 1"), child=ASK)
    first = world.run()
    assert first.state == "blocked"
    assert sorted(world.lines()) == ["made a", "made b", "made c"]
    for child in world.children(first.run_id):
        world.app.approve(child.id)
    assert world.app.run_id(first.run_id).state == "completed"


@pytest.mark.parametrize(
    ("verb", "hint"),
    [
        ("run_id", "go on with the whole: interlock run"),
        ("resume", "reopen the whole: interlock resume"),
        ("abandon", "end the whole: interlock abandon"),
    ],
)
def test_a_child_is_not_driven_by_itself(world: World, verb: str, hint: str) -> None:
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }", child=ASK)
    first = world.run()
    (child,) = world.children(first.run_id)
    with pytest.raises(UsageError) as caught:
        getattr(world.app, verb)(child.id)
    assert str(caught.value) == f"run {child.id} is a unit of run {first.run_id} and goes on with it"
    assert caught.value.hint == f"{hint} {first.run_id}"


def test_a_secret_of_the_parent_is_hidden_in_its_child(world: World) -> None:
    parent = "params: { api_token: { type: string } }\nsteps:\n  - { id: below, uses: ./child.md, with: { value: params.api_token } }"
    child = (
        "params: { value: {} }\nsteps:\n  - { id: s, run: 'echo \"it is $INTERLOCK_PARAM_VALUE\" | tee /dev/stderr' }"
    )
    world.write(parent=parent, child=child)
    result = world.run(params=ParamsInput(values={"api_token": "hush-hush-hush"}))
    (row,) = world.children(result.run_id)
    assert world.artifact(row.id, "s") == world.artifact(result.run_id, "below") == "it is [redacted:api_token]"
    log = (world.app.project.logs / f"{result.run_id}.log").read_bytes()
    assert b"hush" not in log
    assert b"[redacted:api_token]" in log
    assert not (world.app.project.logs / f"{row.id}.log").exists()


def test_gc_removes_children_with_their_parent(world: World) -> None:
    world.write(parent=ONE, child=SAY)
    result = world.run()
    report = world.app.gc(older_than_ms=0)
    assert report.runs == (result.run_id,)
    assert world.app.store.runs(children=True) == []


def test_what_all_children_of_a_map_have_to_say_is_told_once_and_of_which_file(world: World) -> None:
    child = "params: { name: {} }\nsteps:\n  - { id: s, run: echo x, retry: { max: 1, on: [no_change] } }"
    world.write(parent=MAP.replace("ON_ERROR", "fail"), child=child)
    told: list[str] = []
    renderer = PlainRenderer(lambda text, _tone: told.append(text))
    world.run(on_event=lambda events, snap: renderer.show([Change(events, snap)], snap, 0))
    (notice,) = [line for line in told if line.startswith("notice: ")]
    assert notice.startswith("notice: child.md, line 4: ")


def test_a_child_that_a_silent_check_rejected_is_told_with_the_reason(world: World) -> None:
    child = "steps:\n  - { id: s, run: echo x, gate: { check: exit 1 } }"
    world.write(parent="steps:\n  - { id: below, uses: ./child.md }", child=child)
    result = world.run()
    (row,) = world.children(result.run_id)
    assert result.detail == f"step 'below': run {row.id}: step 's': gate_rejected"


def test_a_secret_that_a_child_was_given_under_another_name_is_not_shown(world: World) -> None:
    parent = "params: { api_token: { type: string } }\nsteps:\n  - { id: top, uses: ./middle.md, with: { given: [params.api_token] } }"
    middle = "params: { given: {} }\nsteps:\n  - { id: m, map: { over: params.given }, uses: ./child.md, with: { word: item } }"
    child = "params: { word: {} }\nsteps:\n  - { id: s, run: exit 3, on_error: continue }"
    world.write(parent=parent, middle=middle, child=child)
    told: list[str] = []
    renderer = PlainRenderer(lambda text, _tone: told.append(text))
    world.run(
        params=ParamsInput(values={"api_token": "hush-hush-hush"}),
        on_event=lambda events, snap: renderer.show([Change(events, snap)], snap, 0),
    )
    store = world.app.store
    for row in store.runs(children=True):
        shown = dumps({"status": read_status(store, row.id)})
        hide = hide_in(store, row, facts_of(store))
        units = [hide(unit.item) for unit in store.units(row.id) if unit.item is not None]
        assert b"hush" not in shown + b"".join(units) + "".join(told).encode()
        assert b"[redacted:api_token]" in shown


def test_a_secret_that_matches_no_route_of_a_child_is_not_told(world: World) -> None:
    parent = "params: { api_token: { type: string } }\nsteps:\n  - { id: top, uses: ./child.md, with: { n: params.api_token } }"
    child = "params: { n: {} }\nsteps:\n  - { id: r, route: { input: params.n, when: [{ match: a, step: t }] } }\n  - { id: t, run: echo x }"
    world.write(parent=parent, child=child)
    result = world.run(params=ParamsInput(values={"api_token": "hush-hush"}))
    (row,) = world.children(result.run_id)
    assert row.detail == (
        "step 'r': params.n is a string of 9 characters, which no `match` names, and there is no default"
    )


def test_a_secret_that_does_not_fit_the_childs_param_is_not_told(world: World) -> None:
    parent = "params: { api_token: { type: string } }\nsteps:\n  - { id: top, uses: ./child.md, with: { n: params.api_token } }"
    world.write(parent=parent, child="params: { n: { type: integer } }\nsteps:\n  - { id: s, run: echo x }")
    result = world.run(params=ParamsInput(values={"api_token": 'hush"hush'}))
    assert (result.state, result.detail) == (
        "failed",
        "step 'top': param 'n' of ./child.md: the value does not fit its schema",
    )
