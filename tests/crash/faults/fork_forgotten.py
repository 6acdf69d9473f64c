"""Planted fault: a driver that goes on with a fork does not know any more what it may take over."""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

from interlock.app import App
from interlock.driver import drive
from interlock.testing import kill_matrix

_true_run_id: Any = vars(App)["run_id"]
assert "taken_from" in vars(drive)


def _forgetful(self: Any, *arguments: Any, **named: Any) -> Any:
    vars(drive)["taken_from"] = lambda *_: []
    return _true_run_id(self, *arguments, **named)


# the fault is planted where the rule lives, for as long as the proof looks for it
with patch.object(App, "run_id", _forgetful):
    sys.exit(kill_matrix.main(sys.argv[1:]))
