"""`retry:` of a step, with the failure reasons of akm 0.9 mapped to ours.

Guarantee: every reason in the result can be retried; without `on`, all of them are meant.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import UNSET, UnsetType

from interlock.model.plan import Backoff, Retry
from interlock.model.states import NOT_RETRYABLE, Reason
from interlock.plan import fields as f
from interlock.plan.diagnose import Source, shown, suggest
from interlock.plan.durations import DurationError, parse_duration
from interlock.plan.yaml import Node, Scalar

KEYS: Final = ("max", "on", "backoff", "session")
BACKOFF_KEYS: Final = ("initial", "factor", "max")
AKM_REASONS: Final = {
    "llm_invalid_json": Reason.PARSE_ERROR,
    "content_policy_reject": Reason.LLM_CONTENT_FILTER,
    "cooldown": Reason.LLM_RATE_LIMIT,
}
AKM_REASONS_IGNORED: Final = ("no_change", "quality_rejected", "unsupported_type")
RETRYABLE: Final = tuple(reason for reason in Reason if reason not in NOT_RETRYABLE)
MAX_RETRIES: Final = 100
MAX_FACTOR: Final = 1_000
"""From one delay to the next: above it the second would be the longest anyway."""
DELAY_FORMS: Final = "write it as '500ms', '90s', '10m' or '2h'; 0 is no delay, a bare number is milliseconds"


def read_retry(source: Source, node: Node, what: str) -> Retry | UnsetType:
    """Read a `retry` mapping."""
    written = f.mapping(source, node, what)
    if written is UNSET:
        return UNSET
    fields = f.Fields(source, written, what, KEYS)
    fields.require("max")
    most = fields.read("max", f.integer(0, MAX_RETRIES))
    reasons = fields.read("on", _reasons)
    backoff = fields.read("backoff", _backoff)
    session = fields.read("session", f.choice(("new", "continue")))
    if most is UNSET or ("on" in fields and reasons is UNSET):
        return UNSET
    return Retry(
        max=most,
        on=RETRYABLE if reasons is UNSET else reasons,
        backoff=Backoff() if backoff is UNSET else backoff,
        session="continue" if session == "continue" else "new",
    )


def _reasons(source: Source, node: Node, what: str) -> tuple[Reason, ...] | UnsetType:
    written = f.sequence(source, node, what)
    if written is UNSET:
        return UNSET
    if not written.items:
        return f.wrong(source, node, what, "a list of failure reasons", "leave 'on' out to retry after any of them")
    found: dict[Reason, None] = {}
    for item in written.items:
        reason = _reason(source, item)
        if reason is not None:
            found[reason] = None
    return tuple(found)


def _reason(source: Source, node: Node) -> Reason | None:
    word = node.text if isinstance(node, Scalar) else ""
    if word in AKM_REASONS_IGNORED:
        source.note(node.place, f"the failure reason '{word}' never occurs here; retrying on it is ignored")
        return None
    if word in AKM_REASONS:
        return AKM_REASONS[word]
    if word not in set(Reason):
        hint = suggest(word, RETRYABLE) or "see the list of failure reasons in the guide"
        source.error(node.place, "unknown-reason", f"'{shown(word)}' is no failure reason", hint)
        return None
    reason = Reason(word)
    if reason in NOT_RETRYABLE:
        source.error(node.place, "not-retryable", f"'{word}' can't be retried", "remove it")
        return None
    return reason


def _backoff(source: Source, node: Node, what: str) -> Backoff | UnsetType:
    written = f.mapping(source, node, what)
    if written is UNSET:
        return UNSET
    fields = f.Fields(source, written, what, BACKOFF_KEYS)
    initial = fields.read("initial", _delay)
    factor = fields.read("factor", f.number(1, MAX_FACTOR))
    most = fields.read("max", _delay)
    if initial is not UNSET and most is not UNSET and initial > most:
        hint = "shorten 'initial', or lengthen 'max'"
        source.error(fields.place_of("initial"), "bad-backoff", "'initial' is longer than 'max'", hint)
    default = Backoff()
    # a default gives way to what is written beside it
    first = min(default.initial_ms, default.initial_ms if most is UNSET else most) if initial is UNSET else initial
    return Backoff(
        initial_ms=first,
        factor=default.factor if factor is UNSET else factor,
        max_ms=max(first, default.max_ms if most is UNSET else most),
    )


def _delay(source: Source, node: Node, what: str) -> int | UnsetType:
    if not isinstance(node, Scalar) or not node.text or node.text == "none":
        return f.wrong(source, node, what, "a delay", DELAY_FORMS)
    if re.fullmatch(r"0{1,16}(ms|s|m|h)?", node.text):
        return 0
    try:
        return parse_duration(node.text) or 0
    except DurationError as error:
        source.error(node.place, "bad-duration", f"{what}: '{shown(node.text)}' {error}", DELAY_FORMS)
        return UNSET
