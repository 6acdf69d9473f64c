"""One connection to an endpoint, for one thread's calls, that any other thread can break off.

The SDKs' synchronous clients wait in a blocked read, which nothing but its socket can end: so the socket is noted as
it comes about, and `interrupt` shuts it. One connection for each thread is also what makes many calls at a time
cheap: a shared pool looks at every idle connection for every call. Guarantee: after `interrupt` a call under way
returns at once, or within `CONNECT_S` while its connection is still being made.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from typing import Any, Final

from interlock.dispatch.llm.transport import CONNECT_S

_KEPT_S: Final = 30.0
"""How long an idle connection is kept for the next call."""


class Line:
    """A client of the transport that all three SDKs share. `http` is used by one thread."""

    def __init__(self) -> None:
        import httpx2  # noqa: PLC0415 - comes with the extra, and is slow to load

        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._idle_s: float | None = None
        self.interrupted = False
        """For good: an interrupted line is closed and not used again."""
        self.http: Any = httpx2.Client(
            verify=trust(),
            limits=httpx2.Limits(max_connections=1, keepalive_expiry=_KEPT_S),
            follow_redirects=True,
            event_hooks={"request": [self._watched]},
        )

    def expect(self, idle_s: float | None) -> None:
        """Say how long nothing may come in the calls that follow: from byte to byte; None for no limit."""
        self._idle_s = idle_s

    def _watched(self, request: Any) -> None:  # noqa: ANN401 - a class of an extra that may be absent
        request.extensions["trace"] = self._trace
        # here and not through the SDKs: one of them would tell the server to give up after so long, too
        request.extensions["timeout"] = {"connect": CONNECT_S, "read": self._idle_s, "write": None, "pool": None}

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        # TLS puts a socket of its own in the place of the one that was connected
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
                if self.interrupted:
                    self._shut()

    def interrupt(self) -> None:
        """Break off the call under way. Safe from any thread."""
        with self._lock:
            self.interrupted = True
            self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # not the method of a TLS socket, which would also take the connection's state from under its reader
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. For the thread that uses it."""
        with self._lock:
            self._socket = None
        self.http.close()


@functools.cache
def trust() -> Any:  # noqa: ANN401 - as above
    """The certificates that are trusted; reading them takes longer than all else that a client is made of."""
    import httpx2  # noqa: PLC0415 - as above

    return httpx2.create_ssl_context()
