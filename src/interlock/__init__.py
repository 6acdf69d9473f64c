"""interlock: a durable, local-first workflow engine for AI-agent work.

    result = interlock.run("review.md", params={"base": "main"})
    findings = interlock.lint("review.md")
    with interlock.open() as app: print(app.store.runs())

The names load their modules when they are first used, so that `import interlock` stays cheap.
"""

from __future__ import annotations

from interlock.version import __version__

TYPE_CHECKING = False
# what type checkers take for true; importing `typing` for it would double the time of `interlock --version`

if TYPE_CHECKING:
    from interlock.api import App, Diagnostic, InterlockError, Result, lint, open, open_export, run  # noqa: A004 - what a caller writes

__all__ = ["App", "Diagnostic", "InterlockError", "Result", "__version__", "lint", "open", "open_export", "run"]


def __getattr__(name: str) -> object:
    """Load the API when a name of it is asked for."""
    if name in __all__:
        from interlock import api  # noqa: PLC0415 - start-up time is a feature

        return getattr(api, name)
    raise AttributeError(f"module 'interlock' has no attribute {name!r}")
