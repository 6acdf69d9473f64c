"""From what a row's agent printed to an answer.

Guarantee: only a whole answer is one: an error, a finish that is not fine, a missing last event, an answer that was
begun and not finished, or an exit that says failure are failures, whatever text there is; session, model and usage
are told all the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from interlock.dispatch.agents.base import Answer, Reply
from interlock.dispatch.agents.faults import fault_of
from interlock.dispatch.agents.jsonl import events as events_of
from interlock.dispatch.agents.jsonl import parse as json_of
from interlock.dispatch.agents.rules import Rule
from interlock.model.events import Usage
from interlock.model.states import Reason


class Reading(msgspec.Struct, frozen=True):
    """The rules of a row, parsed."""

    output: Literal["text", "json", "jsonl"]
    text: Rule | None
    session: Rule | None
    named_session: bool
    model: Rule | None
    request_id: Rule | None
    error: Rule | None
    status: Rule | None
    finish: Rule | None
    finish_ok: frozenset[str]
    terminal: Rule | None
    cut: tuple[Rule, ...]
    denied: Rule | None
    tool_id: Rule | None
    tool_name: Rule | None
    counts: tuple[tuple[str, tuple[Rule, ...]], ...]
    cost_usd: tuple[Rule, ...]
    session_gone: re.Pattern[str] | None
    failed_text: re.Pattern[str] | None


def read(row: Reading, reply: Reply) -> Answer:
    """Say what came of it, whatever came."""
    out, err = reply.out.decode("utf-8", "replace"), reply.err.decode("utf-8", "replace")
    events = _events(row, reply.out)
    known = _known(row, reply, events)
    if reply.ask.session is not None and row.session_gone and row.session_gone.search(out[-4096:] + err):
        return _failed(known, _Fault("the session does not exist any more", ""), reply, gone=True)
    fault = _fault(row, reply, events, out, err)
    if fault is not None:
        return _failed(known, fault, reply)
    text = out if row.output == "text" else _text(row.text, events) or ""
    return msgspec.structs.replace(known, text=text.removesuffix("\n") if row.output == "text" else text)


class _Fault(msgspec.Struct, frozen=True):
    error: str
    said: str
    """What of it are the agent's own words: only these tell a reason."""
    status: int | None = None
    reason: Reason = Reason.LLM_BAD_RESPONSE
    """Unless the error's own words tell more."""


def _fault(row: Reading, reply: Reply, events: Sequence[Any], out: str, err: str) -> _Fault | None:  # noqa: PLR0911 - a list of ways to fail, the most telling first
    finish = _text(row.finish, events)
    if finish is None or finish not in row.finish_ok:
        error = _text(row.error, events)
        if error:
            return _Fault(error, error, _status(row, events))
    if row.failed_text and (found := row.failed_text.search(out)):
        return _Fault(found[0].strip(), found[0])
    if reply.exit_code is not None and reply.exit_code > 0:
        said = err.strip() or (out.strip()[-2_048:] if row.output == "text" else "")
        error = f"exit code {reply.exit_code}" + (f": {said}" if said else "")
        return _Fault(error, said, None, Reason.NON_ZERO_EXIT)
    if row.terminal is not None and not any(row.terminal.meets(event) for event in events):
        return _silent("it ended without its last event", err)
    if row.output == "json" and not events:
        return _silent("its output is not the one JSON object that was to come", err)
    if row.finish is not None and finish not in row.finish_ok:
        why = finish or "nothing that it names"
        return _Fault(f"the answer is not whole: the agent stopped because of `{why}`", "")
    if row.cut and _begun_only(row.cut, events):
        return _Fault("the answer was cut: the agent began a message that it did not finish", "")
    if row.output != "text" and _text(row.text, events) is None:
        return _silent("it gave no answer", err)
    return None


def _silent(what: str, err: str) -> _Fault:
    said = err.strip()
    return _Fault(f"{what}: {said}" if said else what, said)


def _failed(known: Answer, told: _Fault, reply: Reply, *, gone: bool = False) -> Answer:
    fault = fault_of(told.said, reply.now_ms, told.status)
    return msgspec.structs.replace(
        known,
        reason=told.reason if fault is None else fault.reason,
        error=told.error,
        retry_after_ms=None if fault is None else fault.retry_after_ms,
        quota_until=None if fault is None else fault.quota_until,
        session_gone=gone,
        session=None if gone else known.session,
        acted=not gone,
    )


def _known(row: Reading, reply: Reply, events: Sequence[Any]) -> Answer:
    named = (reply.ask.session or reply.ask.new_session) if row.named_session else None
    return Answer(
        session=named or _text(row.session, events),
        model=_text(row.model, events),
        request_id=_text(row.request_id, events),
        usage=_usage(row, events),
        denied=_denied(row, events),
    )


def _usage(row: Reading, events: Sequence[Any]) -> Usage | None:
    counts = {name: _total(rules, events) for name, rules in row.counts}
    cost = _total(row.cost_usd, events)
    if cost is None and all(count is None for count in counts.values()):
        return None
    whole = {name: None if count is None else int(count) for name, count in counts.items()}
    # a CLI that knows no price says 0, which would be counted as one
    return msgspec.convert({**whole, "cost_usd": cost or None}, Usage)


def _total(rules: tuple[Rule, ...], events: Sequence[Any]) -> float | None:
    known = [number for rule in rules if (number := rule.number(events)) is not None]
    return sum(known) if known else None


def _denied(row: Reading, events: Sequence[Any]) -> tuple[str, ...]:
    if row.denied is None:
        return ()
    names: dict[str, str] = {}
    if row.tool_id is not None and row.tool_name is not None:
        names = dict(zip(map(str, row.tool_id.values(events)), map(str, row.tool_name.values(events)), strict=False))
    return tuple(names.get(str(found), str(found)) for found in row.denied.values(events))


def _begun_only(pair: tuple[Rule, ...], events: Sequence[Any]) -> bool:
    begun, finished = ({str(value) for value in rule.values(events)} for rule in pair)
    return bool(begun - finished)


def _status(row: Reading, events: Sequence[Any]) -> int | None:
    found = row.status.number(events) if row.status else None
    return None if found is None else int(found)


def _text(rule: Rule | None, events: Sequence[Any]) -> str | None:
    return None if rule is None else rule.text(events)


def _events(row: Reading, out: bytes) -> Sequence[Any]:
    match row.output:
        case "text":
            return ()
        case "json":
            value = json_of(out)
            return [value] if isinstance(value, dict) else []
        case "jsonl":
            return list(events_of(out))
