"""Planted fault: steps complete without asking their gates, and the journal's own rule is off too."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from interlock.decide import next as decide
from interlock.driver import birth
from interlock.testing import kill_matrix

_true_promote: Any = decide._promote
_birth: Any = birth
_TrueStep: Any = _birth.NewStep


def _ungated(snap: Any, spec: Any, step: Any, now: Any) -> Any:
    return _true_promote(snap, msgspec.structs.replace(spec, gate=None), step, now)


decide._promote = _ungated
_birth.NewStep = lambda **fields: _TrueStep(**(fields | {"stages": ()}))
sys.exit(kill_matrix.main(sys.argv[1:]))
