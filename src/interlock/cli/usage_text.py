"""Tokens and money in words: what is estimated is called so, and what nobody knows is never shown as nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from interlock.cli.text import count

_CENT: Final = 0.01


def money(usd: float) -> str:
    """Spell an amount in dollars: `$1,234.50`, `$0.42`, and below a cent `$0.0042`."""
    return f"${usd:,.4f}" if 0 < usd < _CENT else f"${usd:,.2f}"


def usage_text(tokens: int, cost_usd: float | None, *, estimated: int = 0, unpriced: int = 0) -> str:
    """Spell what was used; empty when no engine answered anything.

    `estimated` of the tokens were charged without being counted; of `unpriced` answers the cost is unknown.
    """
    if not (tokens or cost_usd or unpriced):
        return ""
    charged = f" ({estimated:,} of them estimated)" if estimated else ""
    return f"{count(tokens, 'token')}{charged}, {_cost(cost_usd or 0.0, unpriced)}"


def view_usage_text(usage: Mapping[str, Any]) -> str:
    """Spell the `usage` object of `status`."""
    used = usage_text(
        usage["tokens"], usage["cost_usd"], estimated=usage["tokens_estimated"], unpriced=usage["unpriced"]
    )
    corrected = f"{count(usage['corrected'], 'answer')} only when asked again" if usage["corrected"] else ""
    empty = f"{count(usage['placeholders'], 'answer')} of placeholders" if usage["placeholders"] else ""
    return "; ".join(filter(None, (used, corrected, empty)))


def _cost(usd: float, unpriced: int) -> str:
    if not unpriced:
        return money(usd)
    if not usd:
        return "cost unknown"
    return f"at least {money(usd)} (the cost of {count(unpriced, 'answer')} is unknown)"
