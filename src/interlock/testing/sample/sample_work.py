"""Functions of the sample workflow; each notes that it ran."""

# ruff: noqa: INP001 - copied into a project of its own, no part of this package

from __future__ import annotations

from pathlib import Path
from typing import Any


def _note(context: dict[str, Any]) -> None:
    with Path("ran").open("a", encoding="utf-8") as ran:
        ran.write(f"{context['unit_id']} {context['attempt']}\n")


def square(context: dict[str, Any]) -> list[int]:
    """Square what came in."""
    _note(context)
    return [number * number for number in context["inputs"]["numbers"]]


def halve(context: dict[str, Any]) -> float:
    """Halve the item."""
    _note(context)
    return float(context["item"]) / 2 + 0.25
