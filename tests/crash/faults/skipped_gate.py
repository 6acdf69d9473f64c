"""Planted fault: steps complete without asking their gates, and the journal's own rule is off too."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from interlock.decide import next as decide
from interlock.driver import birth
from interlock.testing import kill_matrix

_true_promote: Any = vars(decide)["promote"]
_TrueStep: Any = vars(birth)["NewStep"]


def _ungated(snap: Any, spec: Any, step: Any, now: Any) -> Any:
    return _true_promote(snap, msgspec.structs.replace(spec, gate=None), step, now)


vars(decide)["promote"] = _ungated
vars(birth)["NewStep"] = lambda **fields: _TrueStep(**(fields | {"stages": ()}))
sys.exit(kill_matrix.main(sys.argv[1:]))
