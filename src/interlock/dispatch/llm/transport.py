"""What goes wrong between us and an endpoint, below the SDKs: they let some of their transport's errors through.

Told by the module that an error's class comes from, so that none of the transports has to be imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from interlock.dispatch.llm.base import Trouble

CONNECT_S: Final = 20.0
"""How long a connection may take to come about; the answer's own time is the unit's timeout."""
MAX_CONNECTIONS: Final = 256
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
    """Return a client of the transport that all three SDKs share, made for many calls at a time and no timeout."""
    import httpx2  # noqa: PLC0415 - comes with the extra, and is slow to load

    limits = httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
    return httpx2.AsyncClient(
        limits=limits, timeout=httpx2.Timeout(None, connect=CONNECT_S), follow_redirects=True, http2=False
    )
