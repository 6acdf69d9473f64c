"""Starts `opencode serve` and knows when it is well.

Guarantees: it listens on loopback alone, on a port of its own choice, behind a password that only this run knows;
what does not come up within a minute is ended and says why.
"""

from __future__ import annotations

import re
import secrets
import time
from typing import Final

from interlock.dispatch.agents.helpers import Helper
from interlock.dispatch.agents.jsonl import dig
from interlock.dispatch.agents.live import Talk
from interlock.dispatch.agents.opencode_http import CallError, Server
from interlock.dispatch.commands.program import SpawnError

SERVER: Final = "server"
USED: Final = "used"
"""Under these a helper's notes hold its `Server`, and the ids of the messages whose answers were used."""
_BOOT_S: Final = 60.0
_POLL_S: Final = 0.05
_HEALTH_S: Final = 1.0
_LISTENING: Final = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")


def start(argv: tuple[str, ...], env: dict[bytes, bytes], talk: Talk) -> Helper:
    """Start a server and wait until it is well. Raises SpawnError, EndedError."""
    password = secrets.token_urlsafe(24)
    helper = talk.helpers.start(argv, talk.ask.cwd, env | {b"OPENCODE_SERVER_PASSWORD": password.encode()}, pipes=False)
    until = time.monotonic() + _BOOT_S
    try:
        while time.monotonic() < until and helper.alive():
            talk.watch.progress()
            talk.watch.wait(_POLL_S)
            found = _LISTENING.search(helper.out.read_text("utf-8", "replace"))
            if found and _healthy(server := Server(int(found[1]), password, talk.ask.cwd)):
                helper.notes[SERVER], helper.notes[USED] = server, set()
                return helper
    except BaseException:
        talk.helpers.end(helper)
        raise
    said = helper.tail()
    talk.helpers.end(helper)
    raise SpawnError(f"`{argv[0]} serve` did not come up" + (f": {said}" if said else "; run it by hand to see why"))


def _healthy(server: Server) -> bool:
    # a call made while it boots may never be answered, so it is given up soon and made again
    try:
        return dig(server.get("/global/health", seconds=_HEALTH_S), "healthy") is True
    except CallError:
        return False


def ticks_below(helper: Helper) -> int:
    """Return the processor time of what the server started: its own says nothing of one prompt."""
    return sum(stat.cpu_ticks for stat in helper.tree.members() if stat.pid != helper.popen.pid)
