"""Rows that tell only a part of an attempt: its worktree, or what it used."""

from __future__ import annotations

import msgspec


class TreeRow(msgspec.Struct, frozen=True, kw_only=True):
    """The worktree of one attempt. `kept_ref` and `kept_commit` are None where it left nothing, or has not ended."""

    step: int
    unit: int
    unit_id: str
    number: int
    state: str
    worktree: str
    base: str
    kept_ref: str | None
    kept_commit: str | None


class UsageSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What one ended attempt used, of any run of the project, as far as its engine told; `model` is the one asked for."""

    engine: str
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
