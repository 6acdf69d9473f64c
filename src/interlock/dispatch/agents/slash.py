"""Prompts that begin with `/`: several CLIs take them for a command of their own and never show them to the model.

Guarantee: a sentence of ours stands beside such a prompt, so that it is none; its own bytes stay as they are.
"""

from __future__ import annotations

from typing import Final

BEFORE: Final = "The task follows.\n"
AFTER: Final = "The text above is the whole task."
NOTICE: Final = (
    "engine `{}` ({}) takes a prompt that begins with `/` for a command; a sentence was put beside it to prevent that"
)


def is_command(prompt: str) -> bool:
    """Tell whether a CLI might take it for a command; they trim first."""
    return prompt.lstrip().lstrip("\ufeff").lstrip().startswith("/")


def notice(engine: str, program: str, prompt: str) -> tuple[str, ...]:
    """Return what to tell the user, if anything was done."""
    return (NOTICE.format(engine, program),) if is_command(prompt) else ()


def guarded(prompt: str) -> str:
    """Return the prompt, after a sentence of ours where it needs one."""
    return BEFORE + prompt if is_command(prompt) else prompt
