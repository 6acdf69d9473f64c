"""What the server answers next, and what it was asked: a queue of steps, a default, and a log.

A step is a mapping; the first that applies is taken: a queued one whose `match` fits, a directive in the newest user
text (`@@fake {step or list of steps} @@`; a list gives one per successive call with that text, the last repeats), the
default. The keys are those of `fakellm.py`. Safe to use from several threads.
"""

from __future__ import annotations

import json
import re
import threading
import time
from typing import Any

from tests.modelserver.calls import Call

Step = dict[str, Any]
Entry = dict[str, Any]
DIRECTIVE = re.compile(r"@@fake\s+(.*?)\s*@@", re.DOTALL)


class Script:
    """The queue, the default and the log of one server."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.started_s = time.monotonic()
        self.clear()

    def clear(self) -> None:
        """Forget what was queued, asked and counted."""
        self.entries: list[Entry] = []
        self.queue: list[Step] = []
        self.seen: dict[str, int] = {}
        self.default: Step = {"echo": True}

    def add(self, steps: list[Step], default: Step | None, *, replace: bool = False) -> None:
        with self.lock:
            self.queue = [] if replace else self.queue
            self.queue += [dict(step) for step in steps]
            self.default = self.default if default is None else default

    def note(self, entry: Entry) -> Entry:
        """Log one call and return its entry, to which more may be written."""
        with self.lock:
            entry["n"] = len(self.entries)
            entry["t"] = round(time.monotonic() - self.started_s, 3)
            self.entries.append(entry)
        return entry

    def log(self, *, bodies: bool) -> list[Entry]:
        with self.lock:
            return [{k: v for k, v in entry.items() if bodies or k != "body"} for entry in self.entries]

    def pick(self, call: Call) -> Step:
        """Take the step that answers `call`."""
        with self.lock:
            for step in self.queue:
                if not fits(step.get("match"), call):
                    continue
                step["times"] = step.get("times", 1) - 1
                if step["times"] <= 0:
                    self.queue.remove(step)
                return step
            found = DIRECTIVE.search(call.user)
            return self.directed(found.group(1)) if found else dict(self.default)

    def directed(self, raw: str) -> Step:
        try:
            told = parsed(raw)
        except ValueError:
            return {"status": 400, "text": "bad @@fake directive"}
        if isinstance(told, list):
            at = self.seen[raw] = self.seen.get(raw, -1) + 1
            told = told[min(at, len(told) - 1)]
        step: Step = told
        return step


def parsed(raw: str) -> Any:
    """Return the JSON of a directive; a client may have escaped its quotes."""
    try:
        return json.loads(raw)
    except ValueError:
        return json.loads(raw.replace('\\"', '"'))


def fits(match: str | None, call: Call) -> bool:
    if not match:
        return True
    for prefix, subject in (("model:", call.model), ("api:", call.api), ("any:", "\n".join(call.users))):
        if match.startswith(prefix):
            return re.search(match.removeprefix(prefix), subject or "", re.DOTALL) is not None
    return re.search(match, call.user, re.DOTALL) is not None
