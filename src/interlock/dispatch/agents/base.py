"""What an agent's adapter is asked and what it gives: plain values, no process in sight.

An adapter says how to start its CLI for one prompt (`launch`) and what the CLI's output means (`read`); it runs
nothing, reads no file and knows no clock. The runner starts, watches and ends processes, and knows no CLI. Adding a
CLI is a module with an adapter and a line in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from interlock.model.events import Usage
from interlock.model.states import Reason

Feature = Literal["model", "base_url", "api_key", "temperature", "max_tokens", "extra_params", "session", "usage"]


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a CLI without starting it; for the runner's notices and for `doctor`."""

    program: str
    """The program's name on PATH; `command` of the engine replaces it."""
    version: tuple[str, ...] = ("--version",)
    """Arguments that make it print its version."""
    enforces_schema: bool = False
    """False: the runner appends the schema to the prompt before `launch` sees it."""
    cannot: frozenset[Feature] = frozenset()
    """Asked for nevertheless, each is reported as a notice."""
    caveats: tuple[str, ...] = ()
    """What else a user should know, a sentence each; `doctor` shows them."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt for one CLI, with everything that shapes how it is started."""

    engine: str
    prompt: str
    cwd: str
    """Absolute."""
    folder: str
    """Absolute; private to the attempt, removed after it. `Launch.files` are written there."""
    state: str = ""
    """Absolute; private to the engine in this project, kept from run to run. `Launch.state_files` are written there."""
    new_session: str
    """A UUID of this attempt alone, for CLIs that let the caller choose their session's id."""
    session: str | None = None
    """The session to go on in; None starts a new one."""
    session_usage: Usage | None = None
    """What that session had consumed before, for CLIs that report only totals; None when unknown."""
    model: str | None = None
    schema_json: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    extra_params_json: str = "{}"
    base_url: str | None = None
    api_key: str | None = None
    """The key itself. Only ever into `Launch.env`: arguments are seen by every user of the machine."""
    args: tuple[str, ...] = ()
    """The user's own arguments, for the adapter to put where its CLI takes options."""
    command: tuple[str, ...] = ()
    output: Literal["text", "json"] = "text"
    timeout_ms: int | None = None
    env: Mapping[str, str] = {}
    """The environment that the CLI starts from, `Launch.env` not yet applied."""

    def program(self, card: Card) -> tuple[str, ...]:
        """Return the start of the argv: the engine's `command`, else the CLI's own name."""
        return self.command or (card.program,)

    def unless(self, flags: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
        """Return `default`, or nothing where the engine's `args` hold one of `flags` (`-s`, `--flag`, `--flag=x`)."""
        given = any(arg.split("=", 1)[0] in flags for arg in self.args)
        return () if given else default


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How to start a CLI for one prompt."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    env: dict[str, str] = {}
    """Added to, or put in place of, what it inherits."""
    files: dict[str, bytes] = {}
    """Written into `Ask.folder` first, by name."""
    state_files: dict[str, bytes] = {}
    """Written into `Ask.state` first, by relative path, where they differ from what is there."""
    notices: tuple[str, ...] = ()
    continues_session: bool = False
    """It goes on in `Ask.session`; False with a session asked for means that it starts cold."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a CLI left behind. The output is redacted; of a very long one the middle is missing (whole lines kept)."""

    ask: Ask
    out: bytes
    err: bytes
    """The end of stderr."""
    exit_code: int | None
    """Minus the signal's number; None when it was ended before it could exit, or nobody knows."""
    now_ms: int
    """Wall clock, for reset times given as times of day."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the output means. With a `reason` it is a failure, else `text` (or `structured_json`) is the answer."""

    text: str = ""
    structured_json: str | None = None
    """JSON text that the CLI returned apart from its text, for the schema asked for."""
    reason: Reason | None = None
    error: str = ""
    acted: bool = True
    """With a `reason`: tools may have been used before it ended. False only when surely none were."""
    denied: tuple[str, ...] = ()
    """Tools that the agent asked for and was refused: the attempt fails and names them."""
    session: str | None = None
    session_gone: bool = False
    """The session asked for does not exist any more: the runner starts anew, once."""
    model: str | None = None
    request_id: str | None = None
    usage: Usage | None = None
    retry_after_ms: int | None = None
    quota_until: int | None = None
    """Epoch ms."""
    notices: tuple[str, ...] = ()


class Adapter(Protocol):
    """One CLI that is started for each prompt. Stateless: one object serves all threads."""

    @property
    def card(self) -> Card:
        """What is known of the CLI."""
        ...

    def launch(self, ask: Ask) -> Launch:
        """Say how to start it. Raises CannotAskError for a prompt that this CLI cannot be given."""
        ...

    def read(self, reply: Reply) -> Answer:
        """Say what came of it, whatever came: half a line, nothing at all, another program's output."""
        ...

    def is_terminal(self, line: bytes) -> bool:
        """Tell whether a line of stdout is the last event: nothing that matters comes after it."""
        ...


class CannotAskError(Exception):
    """The prompt cannot be given to this CLI; nothing was started."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
