"""Which adapter serves which agent: one line each, imported when first asked for; all others have a row in the table."""

from __future__ import annotations

import importlib
from typing import Final, cast

from interlock.dispatch.agents.base import Adapter, Card
from interlock.dispatch.agents.live import LiveAdapter
from interlock.dispatch.agents.table import rows, table_adapter

ADAPTERS: Final = {
    "claude": "interlock.dispatch.agents.claude:CLAUDE",
    "codex": "interlock.dispatch.agents.codex:CODEX",
    "command": "interlock.dispatch.agents.command:COMMAND",
    "gemini": "interlock.dispatch.agents.gemini:GEMINI",
    "opencode": "interlock.dispatch.agents.opencode:OPENCODE",
    "qwen": "interlock.dispatch.agents.qwen:QWEN",
}
"""Agent to `module:object`."""
LIVE: Final = {
    "acp": "interlock.dispatch.agents.acp:ACP",
    "opencode-serve": "interlock.dispatch.agents.opencode_serve:OPENCODE_SERVE",
}
"""Those that are spoken to while they run."""


def names() -> tuple[str, ...]:
    """Return all agents that there are, those of the table included."""
    return tuple(sorted({*ADAPTERS, *LIVE, *rows()}))


def adapter(agent: str) -> Adapter:
    """Return the adapter of an agent that is started for each prompt. Raises KeyError."""
    if agent not in ADAPTERS:
        return table_adapter(agent)
    return cast("Adapter", _load(ADAPTERS[agent]))


def live_adapter(agent: str) -> LiveAdapter | None:
    """Return the adapter of an agent that is spoken to while it runs; None if it is no such agent."""
    return cast("LiveAdapter", _load(LIVE[agent])) if agent in LIVE else None


def card(agent: str) -> Card:
    """Return what is known of any agent. Raises KeyError."""
    live = live_adapter(agent)
    return adapter(agent).card if live is None else live.card


def _load(place: str) -> object:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
