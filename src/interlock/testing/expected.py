"""What the sample comes to, written down by hand.

Killed runs are compared with an undisturbed one; this is what the undisturbed one is compared with, so that a fault which
is in both is seen all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from interlock.model.states import UnitState
from interlock.testing.evidence import Ending

NAMES: Final = ("ada", "grace", "edsger")
FILES: Final = ("kept", "red", "plain")
_PARENT: Final = "below:solo"
_CHILDREN: Final = ("deep", "deeper")
_REJECTED: Final = "red"
_REJECTIONS: Final = ["again.gate:l1"]
_FAILED: Final = ["flaky:d4735e3a265e16ee"]
"""Its item is 2."""


def _artifacts(names: Sequence[str], files: Sequence[str]) -> dict[str, Any]:
    kept = [name for name in files if name != _REJECTED]
    return {
        "argv": [1, 2, 3],
        "script": "scripted",
        "function": [1, 4, 9],
        "fan": [f"hello {name}" for name in names],
        "pyfan": [0.75, 2.25, 4.75],
        "flaky": ["at last 1", None, "at last 3"],
        "pay": "receipt",
        "again": "LOUD",
        "files": list(files),
        "mend": (kept, [_REJECTED], []),
        "merged": " ".join(f"{name}.txt" for name in sorted(kept)),
        "below": "4",
        "vote": "yes",
        "gated": "1",
        "way": "taken",
        "taken": "taken",
        "untaken": None,
        "deep": ["deep 1", "deep 2", "deep 3"],
        "deeper": "4",
    }


def strange(ending: Ending, names: Sequence[str] = NAMES, files: Sequence[str] = FILES) -> str:
    """Say in which way a run came to something else than the sample is written to come to."""
    if (ending.state, ending.outcome) != ("completed", "degraded"):
        return f"the run is {ending.state}, {ending.outcome}"
    wanted = _artifacts(names, files)
    if _PARENT in ending.taken:
        # what a fork takes over has no child run
        wanted = {step: made for step, made in wanted.items() if step not in _CHILDREN}
    found = {step: _plain(step, made) for step, _, made in ending.steps}
    if odd := [step for step in {**wanted, **found} if found.get(step, ...) != wanted.get(step, ...)]:
        return f"made otherwise than written down: {', '.join(odd)}"
    left = [step for step, state, _ in ending.steps if state != ("skipped" if step == "untaken" else "completed")]
    rejections = [unit for unit, *_, verdict in ending.units if verdict == "reject"]
    failed = [unit for unit, state, *_ in ending.units if state != UnitState.COMPLETED]
    if left or rejections != _REJECTIONS or failed != _FAILED:
        return f"steps not completed: {left}; rejections: {rejections}; units not completed: {failed}"
    return ""


def _plain(step: str, made: bytes | None) -> object:
    """Return an artifact without the hash of a tree, which is git's to say."""
    value = None if made is None else msgspec.json.decode(made)
    if step == "mend" and isinstance(value, dict):
        return value["merged"], value["rejected"], value["conflicts"]
    return value.partition("\n")[2] if step == "merged" and isinstance(value, str) else value
