"""How a script is started: by its `#!` line, else by its suffix, else directly when it is an executable."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from interlock.model.plan import Shell
from interlock.plan.sources import Missing, ScriptFile, Sources

_ENV: Final = r"(?:-S\s+|--split-string[= ])?(?:-\S+\s+)*(?:\w+=\S*\s+)*(\S+)"


def interpreter_of(
    script: ScriptFile, shell: Shell | None, python: tuple[str, ...] | Missing, sources: Sources
) -> tuple[str, ...] | Missing:
    """Return the argv prefix that runs `script`; empty when the file is to be executed itself."""
    if script.content.startswith(b"#!"):
        return _from_first_line(script.content, sources)
    suffix = PurePosixPath(script.path).suffix
    if suffix == ".py":
        return _because(python, "needs an interpreter:") if isinstance(python, Missing) else python
    if suffix in {".sh", ".bash"}:
        return _shell_prefix(shell, suffix, sources)
    if script.executable and b"\0" in script.content[:4096]:
        return ()
    return Missing(
        reason="says nothing about the program that runs it",
        hint="begin it with a line such as '#!/usr/bin/env python3'",
    )


def _from_first_line(content: bytes, sources: Sources) -> tuple[str, ...] | Missing:
    line = content[2:].split(b"\n", 1)[0]
    if line.endswith(b"\r"):
        return Missing(reason="has a carriage return in its '#!' line", hint="save it with LF line ends")
    program, _, rest = line.decode("utf-8", "replace").strip().partition(" ")
    if not program:
        return Missing(reason="has an empty '#!' line", hint="name the program that runs it")
    rest = rest.strip()
    for name in (program, _env_program(program, rest)):
        if name and isinstance(sources.program(name), Missing):
            return Missing(
                reason=f"needs '{name}', which is not on this machine", hint="install it, or mend the '#!' line"
            )
    # the kernel passes everything behind the program as one argument
    return (program, rest) if rest else (program,)


def _env_program(program: str, rest: str) -> str | None:
    """Return the program that `env` is asked to start."""
    if PurePosixPath(program).name != "env":
        return None
    match = re.match(_ENV, rest)
    return match[1] if match else None


def _shell_prefix(shell: Shell | None, suffix: str, sources: Sources) -> tuple[str, ...] | Missing:
    if shell is None or (suffix == ".bash" and shell.name != "bash"):
        name = "bash" if suffix == ".bash" else "sh"
        found = sources.program(name)
        return _because(found, f"needs '{name}', which") if isinstance(found, Missing) else (found,)
    # `-c` is for text on the command line
    return shell.argv[:-1]


def _because(missing: Missing, lead: str) -> Missing:
    return Missing(reason=f"{lead} {missing.reason}", hint=missing.hint)
