"""Speaks to one `opencode serve` on loopback. Every call is short: what takes long is asked for again and again.

Guarantees: no call waits longer than CALL_S; nothing is sent anywhere but to 127.0.0.1, and no proxy is asked.
"""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any, Final
from urllib.parse import quote

from interlock.dispatch.agents.jsonl import parse
from interlock.dispatch.env.redact_base import UNREDACTED_CHARS

CALL_S: Final = 10.0
_OK: Final = range(200, 300)


class CallError(Exception):
    """The server did not answer, or not well. `status` is None when it did not."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Server:
    """One server's address and password; each call has a connection of its own, so any thread may make it."""

    def __init__(self, port: int, password: str, cwd: str) -> None:
        self._port = port
        self._query = f"directory={quote(cwd, safe='')}"
        self._headers = {
            "Authorization": "Basic " + base64.b64encode(f"opencode:{password}".encode()).decode(),
            "Content-Type": "application/json",
        }

    def get(self, path: str, *, seconds: float = CALL_S, query: str = "") -> Any:  # noqa: ANN401 - any JSON value
        """Return what stands there. Raises CallError."""
        return self._call("GET", path, None, seconds, query)

    def post(self, path: str, body: object = None) -> Any:  # noqa: ANN401 - any JSON value
        """Send and return the answer. Raises CallError."""
        return self._call("POST", path, json.dumps(body).encode() if body is not None else None, CALL_S, "")

    def _call(self, method: str, path: str, body: bytes | None, seconds: float, query: str) -> Any:  # noqa: ANN401 - any JSON value
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
        try:
            target = f"{path}?{self._query}" + (f"&{query}" if query else "")
            connection.request(method, target, body, self._headers)
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise CallError(f"{method} {path}: {str(error) or type(error).__name__}") from error
        finally:
            connection.close()
        if response.status not in _OK:
            text = data.decode("utf-8", "replace")[:UNREDACTED_CHARS]
            raise CallError(f"{method} {path}: HTTP {response.status}: {text}", response.status)
        return parse(data)
