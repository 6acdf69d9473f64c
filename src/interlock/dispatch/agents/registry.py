"""Which adapter serves which agent: one line each, imported when first asked for; all others have a row in the table."""

from __future__ import annotations

import importlib
from typing import Final, cast

from interlock.dispatch.agents.base import Adapter
from interlock.dispatch.agents.table import table_adapter

ADAPTERS: Final = {
    "claude": "interlock.dispatch.agents.claude:CLAUDE",
    "codex": "interlock.dispatch.agents.codex:CODEX",
    "command": "interlock.dispatch.agents.command:COMMAND",
    "gemini": "interlock.dispatch.agents.gemini:GEMINI",
    "opencode": "interlock.dispatch.agents.opencode:OPENCODE",
    "qwen": "interlock.dispatch.agents.qwen:QWEN",
}
"""Agent to `module:object`."""


def adapter(agent: str) -> Adapter:
    """Return the adapter of that agent. Raises KeyError."""
    if agent not in ADAPTERS:
        return table_adapter(agent)
    module, _, name = ADAPTERS[agent].partition(":")
    return cast("Adapter", getattr(importlib.import_module(module), name))
