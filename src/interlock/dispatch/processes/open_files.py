"""How many files this process may hold open: raised for the program, given back to its children, shared out to work.

Guarantee: a limit that is too low makes work wait; it fails none that another order would let through.
"""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path
from typing import Final

OF_A_COMMAND: Final = 5
OF_A_PROMPT: Final = 8
"""Open files of one attempt under way, its thread's own included."""
_ENOUGH: Final = 4_096
_SPARE: Final = 64
"""For the journal, logs, workers that start, and whatever a library opens."""
_inherited: list[tuple[int, int]] = []


def raise_limit() -> None:
    """Let this process hold as many files as the widest map needs, where the host allows; to be called once."""
    if not hasattr(resource, "prlimit"):
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(_ENOUGH, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            _inherited.append((soft, hard))


def give_back(pid: int) -> None:
    """Set a child's limit to what the user gave us: a program that uses `select` counts on it."""
    if _inherited:
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _inherited[0])


class OpenFiles:
    """What one executor may hold beyond what is open when it begins."""

    def __init__(self) -> None:
        self._before = sum(1 for _ in Path("/proc/self/fd").iterdir())

    def places(self, wanted: int, each: int, *, held: int, idle: bool) -> int:
        """Return how many of `wanted` attempts that open `each` files may begin beside what is `held`.

        One at least when all is `idle`: nothing would end that others could wait for.
        """
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft == resource.RLIM_INFINITY:
            return wanted
        fit = (soft - self._before - _SPARE - held) // each
        return min(wanted, max(fit, 1 if idle else 0))
