"""A program of the user's own as an agent: the prompt on stdin, the answer on stdout.

With `output = "text"` stdout is the answer, with `"json"` it is one object `{text, session, usage: {input_tokens,
output_tokens, cost_usd}, error}`, of which only `text` or `error` must be there. Guarantee: any other exit than 0
is a failure. What else the engine asks for stands in variables: `INTERLOCK_MODEL`, `INTERLOCK_SESSION` (to go on
in), `INTERLOCK_BASE_URL` and `INTERLOCK_API_KEY`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from interlock.dispatch.agents.base import Answer, Ask, Card, Launch, Reply
from interlock.dispatch.agents.table import Row, TableAdapter

_ENV: Final = {
    "INTERLOCK_MODEL": "{model}",
    "INTERLOCK_SESSION": "{session}",
    "INTERLOCK_BASE_URL": "{base_url}",
    "INTERLOCK_API_KEY": "{api_key}",
}
_TEXT: Final = TableAdapter(Row(program="command", env=_ENV))
_JSON: Final = TableAdapter(
    Row(
        program="command",
        env=_ENV,
        output="json",
        text="text",
        session="session",
        model="model",
        error="error",
        input_tokens=("usage.input_tokens",),
        output_tokens=("usage.output_tokens",),
        cost_usd=("usage.cost_usd",),
    )
)


class CommandAdapter:
    """Chooses by what the engine says of its output."""

    card: Final = Card(
        program="command",
        version=(),
        cannot=frozenset({"temperature", "max_tokens", "extra_params"}),
        caveats=('Only what it prints is known of it: without `output = "json"` neither session nor usage.',),
    )

    def launch(self, ask: Ask) -> Launch:
        """Say how to start it: `command`, then `args`."""
        launch = _of(ask).launch(ask)
        return msgspec.structs.replace(launch, continues_session=ask.session is not None and ask.output == "json")

    def read(self, reply: Reply) -> Answer:
        """Say what came of it."""
        return _of(reply.ask).read(reply)

    def is_terminal(self, line: bytes) -> bool:  # noqa: ARG002 - the answer is whatever stands there at the exit
        """No line is the last one."""
        return False


def _of(ask: Ask) -> TableAdapter:
    return _JSON if ask.output == "json" else _TEXT


COMMAND: Final = CommandAdapter()
