"""References: `params.<name>` and `steps.<id>.output(.<name>|[<int>])*`. Nothing else parses.

Guarantee: parsing what `unparse` wrote gives the same reference, and a reference keeps the author's text.
"""

from __future__ import annotations

import re
from typing import Final

from interlock.model.plan import Reference

STEP_ID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
PARAM_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
GRAMMAR: Final = "write 'params.<name>' or 'steps.<id>.output', which '.name' and '[0]' may follow"
_PARAM: Final = rf"params\.({PARAM_NAME.pattern})"
_STEP: Final = rf"steps\.({STEP_ID.pattern})\.output((?:\.{STEP_ID.pattern}|\[(?:0|[1-9][0-9]{{0,8}})\])*)"
_ITEM: Final = rf"item((?:\.{STEP_ID.pattern}|\[(?:0|[1-9][0-9]{{0,8}})\])*)"
_PART: Final = rf"\.({STEP_ID.pattern})|\[([0-9]+)\]"
_LONGEST: Final = 1_000


class ReferenceSyntaxError(ValueError):
    """The text is not a reference; `hint` says how one is written."""

    def __init__(self, message: str, hint: str = GRAMMAR) -> None:
        super().__init__(message)
        self.hint = hint


def parse_reference(text: str) -> Reference:
    """Return `text` parsed. Raises ReferenceSyntaxError."""
    if len(text) > _LONGEST:
        raise ReferenceSyntaxError(f"is longer than {_LONGEST} characters")
    if found := re.fullmatch(_PARAM, text):
        return Reference(text=text, root="params", name=found[1])
    if found := re.fullmatch(_STEP, text):
        return Reference(text=text, root="steps", name=found[1], path=_path(found[2]))
    raise ReferenceSyntaxError("is not a reference", _hint(text))


def parse_item(text: str) -> Reference | None:
    """Return `item(.<name>|[<int>])*` parsed, None for any other text."""
    found = re.fullmatch(_ITEM, text) if len(text) <= _LONGEST else None
    return None if found is None else Reference(text=text, root="item", name="", path=_path(found[1]))


def _path(tail: str) -> tuple[str | int, ...]:
    return tuple(name or int(index) for name, index in re.findall(_PART, tail))


def unparse(reference: Reference) -> str:
    """Return the canonical text of `reference`."""
    if reference.root == "params":
        return f"params.{reference.name}"
    tail = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in reference.path)
    if reference.root == "item":
        return f"item{tail}"
    return f"steps.{reference.name}.output{tail}"


def _hint(text: str) -> str:
    if "{{" in text or text.startswith("$"):
        return f"references are bare, without '${{{{ }}}}': {GRAMMAR}"
    if re.fullmatch(r"params\.[A-Za-z0-9_]+[.\[].*", text):
        return "a param is passed whole: 'params.<name>'"
    if found := re.fullmatch(rf"steps\.({STEP_ID.pattern})(?:\.(?!output\b).*)?", text):
        return f"did you mean 'steps.{found[1]}.output'?"
    return GRAMMAR
