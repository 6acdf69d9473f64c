"""Planted fault: a merge takes every part in without its check."""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

from interlock.dispatch.commands.merging import Merger
from interlock.dispatch.git.base import CheckResult
from interlock.testing import kill_matrix


def _unasked(_self: Any, _folder: Any, _index: int) -> CheckResult:
    return CheckResult(passed=True)


# the fault is planted where the rule lives, for as long as the proof looks for it
with patch.object(Merger, "_check", _unasked):
    sys.exit(kill_matrix.main(sys.argv[1:]))
