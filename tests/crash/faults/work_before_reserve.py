"""Planted fault: attempts are started first and reserved in the journal afterwards."""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

from interlock.driver.loop import Loop
from interlock.testing import kill_matrix

_true_commit: Any = vars(Loop)["_commit"]


def _start_first(self: Any, requests: Any) -> None:
    if requests and self.stop is None:
        self._inflight.update({request.dispatch: place for request, place in requests})
        self._executor.start([request for request, _ in requests])
    _true_commit(self, [])


# the fault is planted where the rule lives, for as long as the proof looks for it
with patch.object(Loop, "_commit", _start_first):
    sys.exit(kill_matrix.main(sys.argv[1:]))
