"""What a step does: `run:` and `uses:` as written, and which kind of target follows from their form.

Guarantee: the kind of a `uses` depends on its text alone, never on what lies on disk.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import UNSET, UnsetType

from interlock.model.workflow import PromptDecl, RunDecl, TargetDecl, UsesDecl
from interlock.plan import fields as f
from interlock.plan.diagnose import Source, shown
from interlock.plan.scalars import is_null
from interlock.plan.yaml import Node, Scalar
from interlock.plan.yaml import Sequence as ListNode

Kind = Literal["prompt", "command", "script", "python", "workflow", "library", "route"]
KIND_TEXT: Final[dict[Kind, str]] = {
    "prompt": "a prompt",
    "command": "a command",
    "script": "a script",
    "python": "a Python function",
    "workflow": "a child workflow",
    "library": "a library asset",
    "route": "a route",
}
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_PYTHON: Final = rf"python:{_NAME}(\.{_NAME})*:{_NAME}"
_LIBRARY: Final = r"([A-Za-z0-9][\w.-]*//)?[a-z]+(/[A-Za-z0-9_-]+)+"
_MOST_ARGUMENT_BYTES: Final = 131_071
"""What Linux passes to a program as one argument (MAX_ARG_STRLEN of `execve`, less the NUL)."""
_PATH_START: Final = ("./", "../", "/", "~")


def read_command(source: Source, node: Node, what: str) -> RunDecl | UnsetType:
    """Read a command: text for the shell, or a list as argv."""
    if isinstance(node, ListNode):
        argv = f.argv(source, node, what)
        fit = [_fits(source, item, what) for item in node.items]
        return UNSET if argv is UNSET or not all(fit) else RunDecl(place=node.place, argv=argv)
    if not isinstance(node, Scalar):
        return f.wrong(source, node, what, "text for the shell or a list of arguments")
    line = _shell_text(source, node, what)
    return UNSET if line is UNSET or not _fits(source, node, what) else RunDecl(place=node.place, text=line)


def _shell_text(source: Source, node: Scalar, what: str) -> str | UnsetType:
    if node.text and is_null(node):
        return f.wrong(
            source, node, what, "a command", "null runs nothing; quote it if a program of that name is meant"
        )
    line = f.text(source, node, what)
    if line is not UNSET and not line.strip():
        return f.wrong(source, node, what, "a command", "blanks alone run nothing")
    return line


def _fits(source: Source, node: Node, what: str) -> bool:
    """Tell whether a program can be given the text; if not, that is reported."""
    size = len(node.text.encode("utf-8", "replace")) if isinstance(node, Scalar) else 0
    if size > _MOST_ARGUMENT_BYTES:
        message = (
            f"{what} holds {size:,} bytes in one text, and the system passes no more than {_MOST_ARGUMENT_BYTES:,}"
        )
        source.error(node.place, "too-long", message, "put it in a script: 'uses: ./name.sh'")
    return size <= _MOST_ARGUMENT_BYTES


def read_uses(source: Source, node: Node, what: str) -> UsesDecl | UnsetType:
    """Read `uses:`: a script path, a workflow `.md`, `python:module:function` or a library ref."""
    written = f.text(source, node, what)
    if written is UNSET:
        return UNSET
    if written.startswith("python:"):
        if not re.fullmatch(_PYTHON, written):
            message = f"'{shown(written)}' names no Python function"
            source.error(node.place, "bad-uses", message, "write 'python:package.module:function'")
            return UNSET
        return UsesDecl(place=node.place, text=written, kind="python")
    if written != written.strip() or "\n" in written:
        source.error(node.place, "bad-uses", f"{what} must be one path without blanks around it")
        return UNSET
    if not written.startswith(_PATH_START) and re.fullmatch(_LIBRARY, written):
        return UsesDecl(place=node.place, text=written, kind="library")
    kind: Literal["workflow", "script"] = "workflow" if written.endswith(".md") else "script"
    return UsesDecl(place=node.place, text=written, kind=kind)


def kind_of(target: TargetDecl) -> Kind:
    """Return the kind of `target`."""
    if isinstance(target, UsesDecl):
        return target.kind
    return "prompt" if isinstance(target, PromptDecl) else "command"
