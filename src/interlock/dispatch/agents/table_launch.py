"""From a row of the table and a prompt to argv, environment, files and stdin.

Guarantees: a part that names something unknown is left out whole, so no flag is left without its value; the prompt
is never where a leading `-` makes it a flag, and one that an argument cannot hold is refused before anything starts.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from interlock.dispatch.agents.base import Ask, CannotAskError, Card, Launch
from interlock.model.states import Reason

if TYPE_CHECKING:
    from interlock.dispatch.agents.table import Row

MAX_ARGUMENT_BYTES: Final = 131_071
"""What Linux lets one argument be, without the NUL that ends it."""
PROMPT_FILE: Final = "prompt.txt"
_PLACEHOLDER: Final = re.compile(r"\{(\w+)([?!]?)\}")

Values = dict[str, str | None]


NAMES: Final = frozenset(
    ["model", "session", "new_session", "cwd", "folder", "home", "base_url", "api_key", "prompt", "prompt_file"]
)
"""What may be put in."""


def known_values(ask: Ask) -> Values:
    """Return what the names stand for; None is unknown."""
    return {
        "model": ask.model,
        "session": ask.session,
        "new_session": ask.new_session if ask.session is None else None,
        "cwd": ask.cwd,
        "folder": ask.folder,
        "home": ask.env.get("HOME"),
        "base_url": ask.base_url,
        "api_key": ask.api_key,
        "prompt": ask.prompt,
        "prompt_file": f"{ask.folder}/{PROMPT_FILE}",
    }


def launch(row: Row, card: Card, ask: Ask) -> Launch:
    """Return how to start the row's agent. Raises CannotAskError."""
    values = known_values(ask)
    prompt = ask.prompt.encode("utf-8", "replace")
    files = _filled(row.files, values)
    if row.prompt == "argv":
        refuse_as_argument(prompt, card.program)
    elif row.prompt == "file":
        files[PROMPT_FILE] = prompt
    return Launch(
        argv=(*ask.program(card), *_argv(row, values, ask), *((ask.prompt,) if row.prompt == "argv" else ())),
        stdin=prompt if row.prompt == "stdin" else b"",
        env={name: text for name, template in row.env.items() if (text := fill(template, values)) is not None},
        files=files,
        notices=tuple(text for notice in row.notices if (text := fill(notice, values)) is not None),
        continues_session=ask.session is not None and any("{session}" in text for text in row.templates()),
    )


def refuse_as_argument(prompt: bytes, program: str) -> None:
    """Raise CannotAskError for a prompt that an argument cannot hold."""
    if b"\0" in prompt:
        message = f"`{program}` takes its prompt as an argument, which cannot hold a NUL; take it out of the prompt"
        raise CannotAskError(Reason.PROMPT_TOO_LARGE, message)
    if len(prompt) > MAX_ARGUMENT_BYTES:
        message = (
            f"the prompt has {len(prompt)} bytes, and `{program}` takes it as an argument, which holds at most "
            f"{MAX_ARGUMENT_BYTES}; shorten it or use another agent"
        )
        raise CannotAskError(Reason.PROMPT_TOO_LARGE, message)


def fill(template: str, values: Values, *, escape: bool = False) -> str | None:
    """Put values in; None where something that it needs is not known."""
    missing = False

    def put(found: re.Match[str]) -> str:
        nonlocal missing
        value, sign = values[found[1]], found[2]
        missing = missing or (value is None) is not (sign == "!")
        if sign or value is None:
            return ""
        return json.dumps(value)[1:-1] if escape else value

    text = _PLACEHOLDER.sub(put, template)
    return None if missing else text


def _argv(row: Row, values: Values, ask: Ask) -> list[str]:
    filled = [text for entry in row.argv for text in _group(entry, values)]
    defaults = [flag for flag, others in row.unless.items() for flag in ask.unless(others, (flag,))]
    return [*filled, *defaults, *ask.args, *row.last]


def _group(entry: str | tuple[str, ...], values: Values) -> list[str]:
    texts = [fill(text, values) for text in ([entry] if isinstance(entry, str) else entry)]
    known = [text for text in texts if text is not None]
    return known if len(known) == len(texts) else []


def _filled(files: dict[str, str], values: Values) -> dict[str, bytes]:
    texts = {name: fill(text, values, escape=name.endswith(".json")) for name, text in files.items()}
    return {name: text.encode() for name, text in texts.items() if text is not None}
