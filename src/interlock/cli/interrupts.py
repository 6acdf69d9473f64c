"""Ctrl-C where nothing drives a run: it ends the program, but not once all is done and only closing is left."""

from __future__ import annotations

from typing import Any

_over: list[bool] = []


def interrupt(_number: int, _frame: Any) -> None:  # noqa: ANN401 - a frame is of no use here
    """Handle SIGINT. Raises KeyboardInterrupt, until `nothing_left` was called."""
    if not _over:
        raise KeyboardInterrupt


def nothing_left() -> None:
    """Say that the exit code stands and all was told."""
    _over.append(True)
