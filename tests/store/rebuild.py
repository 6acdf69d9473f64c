"""Rows from events: what a run's journal would hold if only its events were left. Content is not in events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from interlock.store.base import EventRow, Store

UNIT_ENDED = ("completed", "failed", "not_run")
STEP_ENDED = ("completed", "failed", "skipped")
RUN_ENDED = ("completed", "failed", "abandoned")
OF_THE_ATTEMPT = ("engine", "model", "tokens", "cost_usd")
STEP_BEGUN = ("running", "gating", "waiting", "blocked", "completed")
CONTENT = {
    "feedback",
    "note",
    "item",
    "result",
    "error",
    "detail",
    "artifact",
    "artifact_size",
    "params_json",
    "plan_json",
}
Fields = dict[str, Any]


class Rows:
    """The rows of one run, by key."""

    def __init__(self) -> None:
        self.run: Fields = {}
        self.steps: list[Fields] = []
        self.units: dict[tuple[int, int], Fields] = {}
        self.attempts: dict[tuple[int, int, int], Fields] = {}
        self.approvals: dict[tuple[int, int], Fields] = {}
        self.parked: dict[str, int | None] = {}
        self.granted: dict[int, int] = {}

    def apply(self, event: EventRow) -> None:
        """Carry out one event row."""
        data = msgspec.json.decode(event.data)
        handler = getattr(self, "_" + event.type, None)
        if handler is not None:
            handler(event, data)

    def _run_created(self, event: EventRow, data: Fields) -> None:
        steps = data.pop("steps")
        blank = dict.fromkeys(("reason", "outcome", "wait_until", "ended_at"))
        self.run = {**blank, **data, "id": event.run_id, "state": "active", "created_at": event.at, "driven_ms": 0}
        empty = dict.fromkeys(("reason", "artifact_hash", "started_at", "ended_at"))
        self.steps = [
            {
                **empty,
                "step": i,
                "id": id_,
                "stages": stages,
                "each": each,
                "child": child,
                "state": "pending",
                "route": [],
            }
            | {"round": 1, "loop": 1}
            for i, (id_, stages, each, child) in enumerate(steps)
        ]

    def _step_started(self, event: EventRow, data: Fields) -> None:
        step = self._step(event)
        step.update(state="running", reason=None, round=data["round"], loop=data["loop"], ended_at=None)
        step["started_at"] = step["started_at"] or event.at
        self._birth = ("work", data["round"], data["loop"])

    def _units_added(self, event: EventRow, data: Fields) -> None:
        step = self._step(event)
        step.update(state=data["state"], started_at=step["started_at"] or event.at)
        self._birth = (data["kind"], data["round"], data["loop"])

    def _units_listed(self, event: EventRow, data: Fields) -> None:
        blank = dict.fromkeys(
            ("not_before", "reason", "verdict", "dispatch", "started_at", "ended_at", *OF_THE_ATTEMPT)
        )
        kind, round_, loop = self._birth
        fresh = []
        for ordinal, id_, index, input_hash, subject, *more in data["units"]:
            session, base, worktree = (*more, None, None, None)[:3]
            born = {"step": event.step, "ordinal": ordinal, "id": id_, "index": index, "subject": subject}
            state = {"kind": kind, "round": round_, "loop": loop, "state": "pending", "attempt": 0}
            state.update(retries=0, asks=0, session=session, base=base, worktree=worktree, left=None, reused=None)
            if len(more) > 3:
                origin, ended, reason, verdict, _, left = more[3]
                state.update(state=ended, reused=origin, reason=reason, verdict=verdict, ended_at=event.at, left=left)
            fresh.append({**blank, **born, "input_hash": input_hash, **state})
        for unit in fresh:
            self.units[unit["step"], unit["ordinal"]] = unit

    def _attempt_reserved(self, event: EventRow, data: Fields) -> None:
        unit = self._unit(event)
        unit.update(state="running", attempt=data["number"], dispatch=data["dispatch"], not_before=None)
        unit["started_at"] = event.at
        engine = {name: data.get(name) for name in ("engine", "model")}
        unit.update(dict.fromkeys(OF_THE_ATTEMPT), **engine)
        unit["worktree"] = data.get("worktree") or unit["worktree"]
        blank = dict.fromkeys(("reason", "exit_code", "log", "started_at", "ended_at", "usage", "answered"))
        key = {"step": event.step, "unit": event.unit, "number": data["number"], "dispatch": data["dispatch"]}
        self.attempts[self._key(event, data)] = {
            **blank,
            **key,
            **engine,
            "reserve_tokens": data.get("reserve_tokens", 0),
            "state": "reserved",
            "process": data.get("process"),
            "reserved_at": event.at,
        }

    def _attempt_started(self, event: EventRow, data: Fields) -> None:
        self.attempts[self._key(event, data)].update(state="started", process=data["process"], started_at=event.at)

    def _attempt_finished(self, event: EventRow, data: Fields) -> None:
        attempt = self.attempts[self._key(event, data)]
        kept = {name: data.get(name) for name in ("reason", "exit_code", "log")}
        attempt.update(state=data["state"], ended_at=event.at, **kept)
        attempt["process"] = data.get("process") or attempt["process"]
        attempt["started_at"] = data.get("started_at") or attempt["started_at"]
        usage, answered = _known(data.get("usage")), _known(data.get("answered"))
        attempt.update(usage=usage, answered=answered)
        unit = self._unit(event)
        if unit["attempt"] != data["number"] or unit["state"] != "running":
            return
        state = data["unit_state"]
        unit.update(state=state, retries=data.get("retries", 0), reason=data.get("reason"), verdict=data.get("verdict"))
        unit.update(asks=data.get("asks", 0), **_told(unit, usage or {}, answered or {}))
        unit["not_before"] = data.get("not_before") if state == "waiting" else None
        if (tree := data.get("tree")) is not None:
            unit.update(base=unit["base"] or tree["base"], left=tree.get("commit") or tree["base"])
        unit["started_at"] = data.get("started_at") or unit["started_at"]
        unit["ended_at"] = event.at if state in UNIT_ENDED else None

    def _units_stopped(self, event: EventRow, data: Fields) -> None:
        step = self._step(event)
        effective = {id(unit) for unit in self.counted(step["step"])}
        for (at, _), unit in self.units.items():
            current = (unit["round"], unit["loop"]) == (step["round"], step["loop"])
            if at != event.step or not (id(unit) in effective or (unit["kind"] != "work" and current)):
                continue
            if unit["state"] == "waiting":
                unit.update(state="failed", not_before=None, ended_at=event.at)
            elif unit["state"] == "pending":
                unit.update(state="not_run", reason=data["reason"], ended_at=event.at)

    def _unit_moved(self, event: EventRow, data: Fields) -> None:
        ended = event.at if data["state"] in UNIT_ENDED else None
        unit = self._unit(event)
        unit.update(state=data["state"], reason=data.get("reason"), not_before=None, ended_at=ended)
        if unit["kind"] != "work":
            unit.update(asks=0, retries=0)

    def _approved(self, event: EventRow, data: Fields) -> None:
        assert event.step is not None
        assert event.unit is not None
        self._unit(event).update(state="completed", verdict=data["verdict"], reason=None, ended_at=event.at)
        said = {"made_by": data["by"], "verdict": data["verdict"], "subject": data["subject"]}
        place = {"step": event.step, "unit": event.unit, "at": event.at, "override": data.get("override", False)}
        self.approvals[event.step, event.unit] = {**place, **said}

    def _engine_parked(self, _event: EventRow, data: Fields) -> None:
        self.parked[data["engine"]] = data.get("until")

    def _loops_granted(self, event: EventRow, data: Fields) -> None:
        assert event.step is not None
        self.granted[event.step] = self.granted.get(event.step, 0) + data["more"]

    def _step_moved(self, event: EventRow, data: Fields) -> None:
        step, state = self._step(event), data["state"]
        step.update(state=state, reason=data.get("reason"), ended_at=event.at if state in STEP_ENDED else None)
        if state in STEP_BEGUN:
            step["started_at"] = step["started_at"] or event.at
        if state == "completed":
            step.update(artifact_hash=data.get("artifact_hash"), route=list(data.get("route", [])))

    def _run_moved(self, event: EventRow, data: Fields) -> None:
        kept = {name: data.get(name) for name in ("reason", "outcome", "wait_until")}
        ended = event.at if data["state"] in RUN_ENDED else None
        self.run.update(state=data["state"], driven_ms=data.get("driven_ms", 0), ended_at=ended, **kept)

    def counted(self, step: int) -> list[Fields]:
        """The work units of the last round and loop of each item."""
        last: dict[int | None, Fields] = {}
        for (at, _), unit in sorted(self.units.items(), key=lambda pair: pair[0]):
            if at == step and unit["kind"] == "work":
                last[unit["index"]] = unit
        return list(last.values())

    def _step(self, event: EventRow) -> Fields:
        assert event.step is not None
        return self.steps[event.step]

    def _unit(self, event: EventRow) -> Fields:
        assert event.step is not None
        assert event.unit is not None
        return self.units[event.step, event.unit]

    @staticmethod
    def _key(event: EventRow, data: Fields) -> tuple[int, int, int]:
        assert event.step is not None
        assert event.unit is not None
        return event.step, event.unit, data["number"]


def _known(values: Fields | None) -> Fields | None:
    """What an answer told, or None where it told nothing."""
    return values if values and any(value not in (None, False) for value in values.values()) else None


def _told(unit: Fields, usage: Fields, answered: Fields) -> Fields:
    """What a unit shows of its last attempt."""
    tokens = [usage[name] for name in ("input_tokens", "output_tokens") if usage.get(name) is not None]
    return {
        "session": answered.get("session") or unit["session"],
        "model": answered.get("model") or unit["model"],
        "tokens": sum(tokens) if tokens else None,
        "cost_usd": usage.get("cost_usd"),
    }


def rebuild(events: Iterable[EventRow]) -> Rows:
    """The rows that the events amount to."""
    rows = Rows()
    for event in events:
        rows.apply(event)
    return rows


def _plain(row: msgspec.Struct) -> Fields:
    fields: Fields = msgspec.json.decode(msgspec.json.encode(row))
    return {name: value for name, value in fields.items() if name not in CONTENT}


def compare(store: Store, run_id: str) -> None:
    """Assert that the rows of the store are those its events amount to, content aside."""
    built = rebuild(store.events(run_id))
    assert _plain(store.run(run_id)) == built.run
    assert [_plain(row) for row in store.steps(run_id)] == built.steps
    units = [_plain(row) for row in store.units(run_id)]
    assert units == [unit for _, unit in sorted(built.units.items(), key=lambda pair: pair[0])]
    attempts = [_plain(row) for unit in units for row in store.attempts(run_id, unit["step"], unit["ordinal"])]
    assert attempts == [attempt for _, attempt in sorted(built.attempts.items(), key=lambda pair: pair[0])]
    approvals = [_plain(row) for row in store.approvals(run_id)]
    assert approvals == [said for _, said in sorted(built.approvals.items(), key=lambda pair: pair[0])]
    loaded = store.load(run_id)
    assert (loaded.parked, loaded.granted) == (built.parked, built.granted)
    for census in store.census(run_id):
        states = [unit["state"] for unit in built.counted(census.step)]
        assert census.by_state == {state: states.count(state) for state in set(states)}
