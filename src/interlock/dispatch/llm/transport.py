"""What goes wrong between us and an endpoint, below the SDKs: they let some of their transport's errors through.

Told by the module that an error's class comes from, so that none of the transports has to be imported.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

from interlock.dispatch.llm.base import Trouble

CONNECT_S: Final = 20.0
"""How long a connection may take to come about; the answer's own time is the unit's timeout."""
IN_FLIGHT: Final = 8
"""Calls at a time for one client: its pool looks at every idle connection for every call, which adds up."""
_TRANSPORTS: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "anyio", "h11", "ssl", "socket"})
_NOT_SENT: Final = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "ProxyError"})


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from; as many as anybody would nest."""
    at: BaseException | None = error
    for _ in range(8):
        if at is None:
            return
        yield at
        at = at.__cause__ or at.__context__


def of_transport(error: BaseException) -> Trouble | None:
    """Say what an error of the connection means; None when it is none."""
    for cause in _causes(error):
        kind = type(cause)
        if kind.__module__.partition(".")[0] in _TRANSPORTS or isinstance(cause, OSError):
            said = str(cause).strip()
            return Trouble(
                message=f"{kind.__name__}: {said}" if said else kind.__name__,
                sent=kind.__name__ not in _NOT_SENT,
            )
    return None


def http_client() -> Any:  # noqa: ANN401 - a class of an extra that may be absent
    """Return a client of the transport that all three SDKs share, without a timeout but for connecting."""
    import httpx2  # noqa: PLC0415 - comes with the extra, and is slow to load

    return httpx2.AsyncClient(
        verify=_trust(),
        timeout=httpx2.Timeout(None, connect=CONNECT_S),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=IN_FLIGHT),
        follow_redirects=True,
    )


def sync_client() -> Any:  # noqa: ANN401 - as above
    """Return a client for an SDK that wants one, though nobody calls through it."""
    import httpx2  # noqa: PLC0415 - as above

    return httpx2.Client(verify=_trust())


@functools.cache
def _trust() -> Any:  # noqa: ANN401 - as above
    """The certificates that are trusted; reading them takes longer than all else that a client is made of."""
    import httpx2  # noqa: PLC0415 - as above

    return httpx2.create_ssl_context()
