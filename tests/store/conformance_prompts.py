"""What every store keeps of prompts: engines, models, sessions, usage, feedback, parked engines, granted loops."""

from __future__ import annotations

from typing import Any

import pytest
from tests.store import builders as b

from interlock.errors import StoreError
from interlock.model import events as ev
from interlock.model.states import AttemptState, Reason, StepState, UnitState
from interlock.store.attempt_rows import UsageSeen
from interlock.store.base import Store

USED = ev.Usage(input_tokens=70, output_tokens=30, cost_usd=0.5, cached_tokens=60, reasoning_tokens=10)
TOLD = ev.Answered(session="s-1", model="big-1-2030", request_id="q-1")


def prompted(unit: int, number: int = 1, engine: str = "coder", model: str | None = "big-1") -> ev.AttemptReserved:
    dispatch = b.dispatch(unit, number)
    return ev.AttemptReserved(at=30, step=0, unit=unit, number=number, dispatch=dispatch, engine=engine, model=model)


def seen(store: Store, unit: int = 0) -> tuple[Any, ...]:
    """What a unit shows of its last attempt."""
    row = list(store.units(b.RUN))[unit]
    return row.engine, row.model, row.tokens, row.cost_usd, row.session


class PromptsSuite:
    """Mixed into a test class whose `store` fixture gives an empty store."""

    def test_an_attempt_keeps_whom_it_asked_and_who_answered(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [prompted(0)])
        (open_,) = store.load(b.RUN).open
        assert (open_.engine, open_.model, open_.answered, open_.usage) == ("coder", "big-1", None, None)
        assert seen(store) == ("coder", "big-1", None, None, None)
        store.commit(mine, [b.finished(0, usage=USED, answered=TOLD)])
        (attempt,) = store.attempts(b.RUN, 0, 0)
        assert (attempt.engine, attempt.model, attempt.answered, attempt.usage) == ("coder", "big-1", TOLD, USED)
        assert seen(store) == ("coder", "big-1-2030", 100, 0.5, "s-1")

    def test_a_command_has_no_engine_and_no_usage(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [b.reserved(0), b.finished(0)])
        (attempt,) = store.attempts(b.RUN, 0, 0)
        assert (attempt.engine, attempt.model, attempt.answered, attempt.usage) == (None, None, None, None)
        assert seen(store) == (None, None, None, None, None)
        assert store.usage_history(9) == []

    @pytest.mark.parametrize(
        ("usage", "tokens"),
        [
            (ev.Usage(), None),
            (ev.Usage(input_tokens=3), 3),
            (ev.Usage(output_tokens=4), 4),
            (ev.Usage(input_tokens=0, output_tokens=0), 0),
        ],
    )
    def test_unknown_usage_is_none_and_not_zero(self, store: Store, usage: ev.Usage, tokens: int | None) -> None:
        mine = b.begin(store)
        store.commit(mine, [prompted(0), b.finished(0, usage=usage)])
        assert seen(store)[2:4] == (tokens, None)
        assert store.attempts(b.RUN, 0, 0)[0].usage == (None if tokens is None else usage)
        assert (store.spent(b.RUN).tokens, store.spent(b.RUN).unpriced) == (tokens or 0, 1)

    def test_tokens_charged_by_estimate_are_told_from_counted_ones(self, store: Store) -> None:
        mine = b.begin(store, 2)
        store.commit(mine, [prompted(0), prompted(1), b.finished(0, usage=USED)])
        store.commit(mine, [b.finished(1, usage=ev.Usage(input_tokens=20_000, estimated=True))])
        spent = store.spent(b.RUN)
        assert (spent.units, spent.tokens, spent.cost_usd, spent.estimated, spent.unpriced) == (
            2,
            20_100,
            0.5,
            20_000,
            1,
        )
        estimate = store.attempts(b.RUN, 0, 1)[0].usage
        assert estimate == ev.Usage(input_tokens=20_000, estimated=True)

    def test_a_failed_prompt_and_a_judge_cost_too(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [prompted(0), b.failed(0, reason=Reason.LLM_BAD_RESPONSE, usage=USED, answered=TOLD)])
        store.commit(
            mine, [b.asked("x", first=1, kind="judge"), prompted(1), b.finished(1, verdict="reject", usage=USED)]
        )
        spent = store.spent(b.RUN)
        assert (spent.units, spent.tokens, spent.cost_usd) == (1, 200, 1.0)

    def test_a_late_end_records_nothing_of_its_usage(self, store: Store) -> None:
        mine = b.begin(store)
        store.commit(mine, [prompted(0)])
        lost = b.failed(0, state=AttemptState.LOST, unit_state=UnitState.PENDING, reason=Reason.LOST)
        store.commit(mine, [lost, prompted(0, 2)])
        late = b.finished(0, usage=USED, answered=TOLD)
        assert store.commit(mine, [late]).refused == ("d0.0.1",)
        assert store.spent(b.RUN).tokens == 0
        assert store.attempts(b.RUN, 0, 0)[0].usage is None
        assert seen(store)[4] is None

    def test_feedback_and_session_come_with_a_units_birth(self, store: Store) -> None:
        mine = b.lease()
        store.create_run(b.new_run(), mine)
        fresh = ev.NewUnit(0, "s:solo~l2", None, None, "h", None, b'{"feedback":"Zebra","missing":[]}', "s-0")
        store.commit(mine, [ev.StepStarted(at=20, step=0, round=1, loop=2, units=(fresh,))])
        (unit,) = store.units(b.RUN)
        assert (unit.feedback, unit.session, unit.asks) == (b'{"feedback":"Zebra","missing":[]}', "s-0", 0)

    def test_a_session_stays_until_an_answer_names_another(self, store: Store) -> None:
        mine = b.begin(store)
        again = b.failed(0, unit_state=UnitState.PENDING, reason=Reason.PARSE_ERROR, answered=TOLD, asks=1)
        store.commit(mine, [prompted(0), again])
        (unit,) = store.units(b.RUN)
        assert (unit.state, unit.session, unit.asks) == ("pending", "s-1", 1)
        store.commit(mine, [prompted(0, 2), b.finished(0, 2, answered=ev.Answered(model="m"), asks=1)])
        assert seen(store) == ("coder", "m", None, None, "s-1")
        assert [a.answered for a in store.attempts(b.RUN, 0, 0)] == [TOLD, ev.Answered(model="m")]

    def test_what_a_session_consumed_is_known_while_all_of_it_is(self, store: Store) -> None:
        mine = b.begin(store, 5)
        cheap = ev.Usage(input_tokens=1, output_tokens=2, cached_tokens=0, reasoning_tokens=0)
        estimate = ev.Usage(output_tokens=9, estimated=True)
        ends = [("a", USED), ("a", cheap), ("b", USED), ("b", estimate), ("c", None)]
        for unit, (session, usage) in enumerate(ends):
            end = b.finished(unit, usage=usage, answered=ev.Answered(session=session))
            store.commit(mine, [prompted(unit), end])
        assert store.load(b.RUN).sessions == {
            "a": ev.Usage(input_tokens=71, output_tokens=32, cached_tokens=60, reasoning_tokens=10)
        }

    def test_a_parked_engine_is_loaded_with_its_latest_time(self, store: Store) -> None:
        mine = b.begin(store)
        for until in (100, 300, 200):
            store.commit(mine, [ev.EngineParked(at=50, engine="coder", until=until)])
        store.commit(mine, [ev.EngineParked(at=50, engine="fast")])
        assert store.load(b.RUN).parked == {"coder": 200, "fast": None}

    def test_granted_loops_add_up(self, store: Store) -> None:
        mine = b.lease()
        store.create_run(b.new_run(gates=((), ())), mine)
        store.commit(mine, [ev.LoopsGranted(at=50, step=step, more=more) for step, more in ((1, 2), (0, 1), (1, 3))])
        assert store.load(b.RUN).granted == {0: 1, 1: 5}
        for step, more, code in ((9, 1, "illegal-move"), (0, 0, "bad-row"), (0, -1, "bad-row")):
            with pytest.raises(StoreError) as caught:
                store.commit(mine, [ev.LoopsGranted(at=50, step=step, more=more)])
            assert caught.value.code == code
        assert store.load(b.RUN).granted == {0: 1, 1: 5}

    def test_the_history_of_usage_spans_runs_latest_first_and_holds_no_estimates(self, store: Store) -> None:
        for number, name in enumerate(("r1", "r2")):
            mine = b.lease(name)
            store.create_run(b.new_run(name), mine)
            store.commit(mine, [b.started(4), *(prompted(unit) for unit in range(3)), b.reserved(3)])
            ends = [
                ev.Usage(input_tokens=number, output_tokens=9),
                ev.Usage(input_tokens=99, output_tokens=99, estimated=True),
                ev.Usage(input_tokens=99, cost_usd=1.0, estimated=True),
                ev.Usage(input_tokens=8, output_tokens=8),
            ]
            for unit, usage in enumerate(ends):
                end = b.finished(unit, usage=usage)
                store.commit(mine, [ev.AttemptFinished(**{**_fields(end), "at": 90 + 10 * number + unit})])
        wanted = [
            UsageSeen(engine="coder", model="big-1", input_tokens=given, output_tokens=made, cost_usd=cost)
            for number in (1, 0)
            for given, made, cost in ((None, None, 1.0), (number, 9, None))
        ]
        assert store.usage_history(9) == wanted
        assert store.usage_history(1) == wanted[:1]
        assert store.load("r1").usage_seen == tuple(wanted)

    def test_a_deleted_run_leaves_nothing_of_its_prompts(self, store: Store) -> None:
        mine = b.begin(store, gate=("approval",))
        store.commit(mine, [prompted(0), b.finished(0, usage=USED), b.asked("x", first=1, kind="approval")])
        store.commit(mine, [b.approved(1, "x"), ev.LoopsGranted(at=5, step=0, more=1)])
        store.commit(mine, [ev.EngineParked(at=5, engine="coder")])
        b.finish_run(store, mine)
        store.delete_run(b.RUN, lambda _lease: False)
        store.create_run(b.new_run(), b.lease())
        loaded = store.load(b.RUN)
        assert (loaded.parked, loaded.granted, loaded.usage_seen) == ({}, {}, ())
        assert store.approvals(b.RUN) == []

    @pytest.mark.parametrize("kind", ["abandon", "resolve", "raise", "approve", "reject", "loops"])
    def test_a_request_of_a_known_kind_is_kept(self, store: Store, kind: Any) -> None:
        store.create_run(b.new_run(), b.lease())
        store.request(b.RUN, kind, b'{"step":"s0"}', "ann", 5)
        assert [row.kind for row in store.requests(b.RUN)] == [kind]

    def test_a_request_of_another_kind_or_without_json_is_refused(self, store: Store) -> None:
        store.create_run(b.new_run(), b.lease())
        unknown: Any = "vote"
        with pytest.raises(StoreError) as caught:
            store.request(b.RUN, unknown, b"{}", "ann", 5)
        assert caught.value.code == "bad-row"
        for payload in (b"", b"{", b"\xff", b"{} {}"):
            with pytest.raises(StoreError) as caught:
                store.request(b.RUN, "approve", payload, "ann", 5)
            assert str(caught.value) == "the payload of the request 'approve' is not JSON"
        assert store.requests(b.RUN) == []

    def test_event_rows_hold_no_notes_and_no_feedback(self, store: Store) -> None:
        mine = b.lease()
        store.create_run(b.new_run(gates=(("approval",),)), mine)
        fresh = ev.NewUnit(0, "s:solo~l2", None, b'"Zebra"', "h", None, b'{"feedback":"Zebra"}', "s-0")
        store.commit(mine, [ev.StepStarted(at=20, step=0, round=1, loop=2, units=(fresh,))])
        store.commit(mine, [prompted(0), b.finished(0, result=b'"Zebra"', usage=USED, answered=TOLD)])
        judge = ev.NewUnit(1, "s.gate", None, b'"Zebra"', "h", "x", b'{"feedback":"Zebra"}')
        place: dict[str, Any] = {"at": 50, "step": 0, "round": 1, "loop": 2, "state": StepState.GATING}
        added = ev.UnitsAdded(kind="approval", units=(judge,), **place)
        store.commit(mine, [added, b.approved(1, "x", note="Zebra")])
        events = store.events(b.RUN)
        assert all("Zebra" not in event.data.decode() for event in events)
        finished = next(event for event in events if event.type == "attempt_finished")
        assert b"big-1-2030" in finished.data


def _fields(event: ev.AttemptFinished) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}
