"""Keeping the values of params that look like secrets out of what is shown of a run: items that were made of them.

A child run was given values of the runs above it, under names of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from interlock.model.secret import secret_texts

Hide = Callable[[bytes], bytes]
"""From an item's JSON to what may be shown of it, which is JSON too."""


def hide_of(levels: Iterable[tuple[Iterable[str], Mapping[str, Any]]]) -> Hide:
    """Return what hides the values of the named params, of a run and of those above it."""
    secrets = [text for names, params in levels for text in secret_texts(names, params)]
    if not secrets:
        return bytes
    from interlock.dispatch.env.redact import PatternRedactor  # noqa: PLC0415 - most runs have no such params

    return PatternRedactor(secrets).json
