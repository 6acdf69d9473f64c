"""What asks the program to stop where nothing drives a run: it ends it, but not once only closing is left."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

_over: list[bool] = []
_ours: list[bool] = []
_handling = contextlib.ExitStack()


def take_over(handler: Any) -> None:  # noqa: ANN401 - as `signal` gives it
    """Handle signals until the process ends, which is this program's alone; `handler` was SIGINT's at its start."""
    _ours.append(True)
    signal.signal(signal.SIGINT, _interrupt if handler is signal.default_int_handler else handler)


def _interrupt(_number: int, _frame: Any) -> None:  # noqa: ANN401 - a frame is of no use here
    if not _over:
        raise KeyboardInterrupt


def nothing_left(handling: contextlib.ExitStack | None = None) -> None:
    """Say that the exit code stands and all was told; signals stay handled as `handling` has them."""
    _over.append(True)
    if handling is not None and _ours:
        _handling.push(handling.pop_all())
