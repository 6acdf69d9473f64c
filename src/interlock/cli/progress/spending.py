"""What a run under way has used, as far as its events tell."""

from __future__ import annotations

from interlock.cli.usage_text import usage_text
from interlock.model import events as ev
from interlock.model.run import Snapshot


class Spending:
    """Counts answers of unknown cost and tokens that nobody counted; the sums themselves are the snapshot's."""

    def __init__(self) -> None:
        self._unpriced = 0
        self._estimated = 0

    def see(self, event: ev.Event) -> None:
        """Take one event."""
        if not isinstance(event, ev.AttemptFinished) or event.usage is None:
            return
        if event.usage.cost_usd is None:
            self._unpriced += 1
        if event.usage.estimated:
            self._estimated += (event.usage.input_tokens or 0) + (event.usage.output_tokens or 0)

    def text(self, snapshot: Snapshot) -> str:
        """Spell it, after a comma; empty when no engine answered anything."""
        text = usage_text(snapshot.tokens, snapshot.cost_usd, estimated=self._estimated, unpriced=self._unpriced)
        return f", {text}" if text else ""
