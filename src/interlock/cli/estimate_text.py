"""What a run may cost, in words: a range where there is one, and what nobody can know said as such."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from interlock.cli.text import safe
from interlock.cli.usage_text import money
from interlock.decide.estimate import Estimate, Span, StepEstimate

_ALL: Final = "in all"


def estimate_lines(estimate: Estimate) -> Iterator[str]:
    """The estimate by step and in all; nothing for a plan that asks no engine."""
    if not estimate.steps:
        return
    yield "estimate:"
    width = max(len(_ALL), *(len(_name(part)) for part in estimate.steps))
    for part in estimate.steps:
        model = f" ({safe(part.model)})" if part.model else ""
        yield f"  {_name(part):<{width}}  {safe(part.engine)}{model}: {_calls(part)}, {_used(part.tokens, part.cost_usd)}"
    yield f"  {_ALL:<{width}}  {_used(estimate.tokens, estimate.cost_usd)}"
    for text in estimate.unknowns:
        yield f"  note: {safe(text)}"


def _name(part: StepEstimate) -> str:
    return part.id if part.part == "work" else f"{part.id} (judge)"


def _calls(part: StepEstimate) -> str:
    text = range_text(part.calls, lambda number: f"{number:,.0f}")
    return f"{text} call" if text == "1" else f"{text} calls"


def _used(tokens: Span, cost_usd: Span) -> str:
    return f"{range_text(tokens, _whole)} tokens, {range_text(cost_usd, money, 'cost unknown')}"


def _whole(number: float) -> str:
    return f"{number:,.0f}"


def range_text(span: Span, spell: Callable[[float], str], unknown: str = "unknown") -> str:
    """Spell bounds: `3`, `3 to 6`, `3 to 6, about 4`, `about 4 or more`, `3 or more`, or that they are unknown."""
    lower = spell(span.lower)
    if span.upper is None:
        if span.typical:
            return f"about {spell(span.typical)} or more"
        return f"{lower} or more" if span.lower else unknown
    upper = spell(span.upper)
    if lower == upper:
        return lower
    typical = "" if span.typical is None else spell(span.typical)
    return f"{lower} to {upper}" + (f", about {typical}" if typical not in ("", lower, upper) else "")
