"""Rows that tell only a part of attempts: their worktrees, what they used, alone and in all."""

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


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What a run used so far: dispatches of work units, tokens and money as far as known.

    `estimated` of the tokens were charged at their reservation; of `unpriced` ended prompts the cost is unknown.
    """

    units: int
    tokens: int
    cost_usd: float
    estimated: int = 0
    unpriced: int = 0
    corrected: int = 0
    """Units whose answer fitted only when it was asked for again."""
    placeholders: int = 0
    """Answers of the right shape that said nothing."""
