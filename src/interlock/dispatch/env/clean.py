"""The environment that children start from: the user's own, without what would mislead them.

Removed: variables that bind git to the repository of an outer hook or command, the marks by which an agent tells its
children that they run inside of it, and everything of interlock's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_GIT: Final = frozenset(
    f"GIT_{name}"
    for name in [
        "DIR",
        "WORK_TREE",
        "INDEX_FILE",
        "OBJECT_DIRECTORY",
        "ALTERNATE_OBJECT_DIRECTORIES",
        "COMMON_DIR",
        "NAMESPACE",
        "PREFIX",
        "IMPLICIT_WORK_TREE",
        "GRAFT_FILE",
        "SHALLOW_FILE",
        "INTERNAL_SUPER_PREFIX",
        "QUARANTINE_PATH",
        "REFLOG_ACTION",
    ]
)
_AGENTS: Final = frozenset(
    [
        "CLAUDECODE",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_CODE_EXECPATH",
        "CODEX_SANDBOX",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_THREAD_ID",
        "CODEX_CI",
        "GEMINI_CLI",
        "QWEN_CODE",
        "OPENCODE",
        "OPENCODE_PID",
        "CURSOR_AGENT",
        "CURSOR_TRACE_ID",
        "COPILOT_AGENT_SESSION_ID",
        "GOOSE_TERMINAL",
        "AI_AGENT",
        "AGENT_SESSION_ID",
    ]
)
_OTHER: Final = frozenset({"OLDPWD", "_"})
OWN_PREFIX: Final = "INTERLOCK_"


def clean(environ: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return what a child may inherit, encoded for exec."""
    dropped = _GIT | _AGENTS | _OTHER
    return {
        os.fsencode(name): os.fsencode(value)
        for name, value in environ.items()
        if name not in dropped and not name.startswith(OWN_PREFIX)
    }
