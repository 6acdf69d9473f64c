"""Run ids: they sort by time and can be read."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime


def new_run_id(wall_ms: int) -> str:
    """Return an id such as `20261130-131702-3f9a2c41`: UTC date and time, then milliseconds and chance in hex."""
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{wall_ms % 1000:03x}{secrets.token_hex(3)[:5]}"
