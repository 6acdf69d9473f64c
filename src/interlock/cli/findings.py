"""What compiling found and nothing fails by, on stderr, before the work that was asked for."""

from __future__ import annotations

from interlock.cli.output import note
from interlock.errors import Diagnostic


def tell(found: Diagnostic) -> None:
    """Show a finding."""
    from interlock.plan.diagnose import render  # noqa: PLC0415 - only a doubtful file needs it

    note(f"{render(found)}\n")


def warn(found: Diagnostic) -> None:
    """Show a warning; a notice is told by the run itself."""
    if found.severity == "warning":
        tell(found)
