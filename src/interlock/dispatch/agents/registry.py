"""Which adapter serves which agent: one line each, imported when first asked for."""

from __future__ import annotations

import importlib
from typing import Final, cast

from interlock.dispatch.agents.base import Adapter

ADAPTERS: Final = {
    "claude": "interlock.dispatch.agents.claude:CLAUDE",
    "codex": "interlock.dispatch.agents.codex:CODEX",
    "gemini": "interlock.dispatch.agents.gemini:GEMINI",
    "qwen": "interlock.dispatch.agents.qwen:QWEN",
}
"""Agent to `module:object`."""


def adapter(agent: str) -> Adapter:
    """Return the adapter of that agent. Raises KeyError."""
    module, _, name = ADAPTERS[agent].partition(":")
    return cast("Adapter", getattr(importlib.import_module(module), name))
