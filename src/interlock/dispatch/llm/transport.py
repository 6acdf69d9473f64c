"""What goes wrong between us and an endpoint, below the SDKs: they let some of their transport's errors through.

Told by the module that an error's class comes from, so that none of the transports has to be imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from interlock.dispatch.llm.base import Trouble

CONNECT_S: Final = 10.0
"""How long a connection may take to come about; a call that waits for one can be ended no sooner."""
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


def nothing_came(error: BaseException) -> bool:
    """Tell whether it was the wait for the next byte that took too long."""
    return any(type(cause).__name__ == "ReadTimeout" for cause in _causes(error))


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
