"""What to type next, spelled for a person: commands below each other, what each does behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from interlock.cli.called import spelled
from interlock.cli.output import style
from interlock.cli.text import safe
from interlock.views.advice import Next

_WIDEST: Final = 80
"""A longer command doesn't push what the others do out of sight."""


def next_lines(commands: Sequence[Next], label: str) -> Iterator[str]:
    """Spell the commands after one label."""
    commands = [msgspec.structs.replace(found, command=spelled(found.command)) for found in commands]
    width = max((len(found.command) for found in commands if found.why and len(found.command) <= _WIDEST), default=0)
    for found in commands:
        why = style(f"  # {safe(found.why)}", dim=True) if found.why else ""
        padding = " " * (width - len(found.command)) if why else ""
        yield f"{label}{style(safe(found.command), bold=True)}{padding}{why}"
        label = " " * len(label)
