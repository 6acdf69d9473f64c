"""What the CLIs really printed, as replies, and prompts to ask them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interlock.dispatch.agents.base import Ask, Reply

RECORDED = Path(__file__).with_name("recorded")
NOW_MS = 1_796_006_400_000
"""2026-11-30 02:40:00 UTC."""


def ask(**changes: Any) -> Ask:
    defaults: dict[str, Any] = {
        "engine": "coder",
        "prompt": "Do it.",
        "cwd": "/project",
        "folder": "/private",
        "state": "/state",
        "new_session": "3b7a043d-ab4b-514e-bb23-043e320aff7e",
    }
    return Ask(**(defaults | changes))


def recorded(name: str, exit_code: int | None = 0, err: str = "", **changes: Any) -> Reply:
    out = (RECORDED / f"{name}.jsonl").read_bytes()
    return Reply(ask=ask(**changes), out=out, err=err.encode(), exit_code=exit_code, now_ms=NOW_MS)


def said(out: str, exit_code: int | None = 0, err: str = "", **changes: Any) -> Reply:
    return Reply(ask=ask(**changes), out=out.encode(), err=err.encode(), exit_code=exit_code, now_ms=NOW_MS)
