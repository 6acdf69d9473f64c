"""interlock: a durable, local-first workflow engine for AI-agent work."""

from interlock.version import __version__

__all__ = ["__version__"]
