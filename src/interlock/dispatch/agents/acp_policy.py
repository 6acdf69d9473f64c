"""Who answers when an ACP agent asks for permission: a policy, never a person.

`args = ["permissions=edits"]` (the default) lets it read, search, think, and change files below the working
directory; `permissions=all` lets it do everything it asks for, `permissions=read` change nothing. Guarantee: a kind
of tool that is not known, or a path that cannot be told to lie below, is refused.
"""

from __future__ import annotations

import posixpath
from typing import Any, Final

import msgspec

from interlock.dispatch.agents.base import CannotAskError
from interlock.dispatch.agents.jsonl import dig, text_at
from interlock.model.states import Reason

_WORD: Final = "permissions="
_READS: Final = frozenset({"read", "search", "think"})
_EDITS: Final = frozenset({"edit", "move", "delete"})
_LEVELS: Final = ("all", "edits", "read")


class Policy(msgspec.Struct, frozen=True):
    """One of the levels."""

    level: str

    def allows(self, call: Any, cwd: str) -> bool:  # noqa: ANN401 - any JSON value
        """Tell whether a tool call may be made."""
        kind = text_at(call, "kind")
        if self.level == "all" or kind in _READS:
            return True
        return self.level == "edits" and kind in _EDITS and _below(call, cwd)

    def option(self, options: Any, *, allow: bool) -> str | None:  # noqa: ANN401 - any JSON value
        """Return the option that says so; None if the agent offers none."""
        kinds = ("allow_once", "allow_always") if allow else ("reject_once", "reject_always")
        given = options if isinstance(options, list) else []
        for kind in kinds:
            for option in given:
                if dig(option, "kind") == kind and text_at(option, "optionId"):
                    return text_at(option, "optionId")
        return None


def policy_of(args: tuple[str, ...]) -> tuple[Policy, tuple[str, ...]]:
    """Take the policy out of an engine's `args`. Raises CannotAskError for a level that does not exist."""
    levels = [arg.removeprefix(_WORD) for arg in args if arg.startswith(_WORD)]
    rest = tuple(arg for arg in args if not arg.startswith(_WORD))
    level = levels[-1] if levels else "edits"
    if level not in _LEVELS:
        message = f"`permissions={level}` in the engine's `args` is no policy; write permissions=all, edits or read"
        raise CannotAskError(Reason.DISPATCH_ERROR, message)
    return Policy(level), rest


def _below(call: Any, cwd: str) -> bool:  # noqa: ANN401 - any JSON value
    locations = dig(call, "locations")
    paths = [text_at(place, "path") for place in locations] if isinstance(locations, list) else []
    paths += [text_at(part, "path") for part in dig(call, "content") or [] if text_at(part, "path")]
    full = [posixpath.normpath(posixpath.join(cwd, path)) for path in paths if path]
    return bool(full) and all(path == cwd or path.startswith(cwd.rstrip("/") + "/") for path in full)
