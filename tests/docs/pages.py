"""What the tests of the pages share: reading their blocks, and a shell in which their commands run.

In a page, `<!-- file: NAME -->` before a code block makes it a file, `<!-- exit: N -->` before a console block says
how its last command ends (else 0). `$ ` begins a command; what follows is its output, where a line `...` stands for
any lines and `...` in a line for any text. A command without output is only run. Blocks marked `sh` are not run; the
test of the pages knows each of them and why.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent.parent
# taken from the folders, so that a new page can't be forgotten
PAGES = [
    str(path.relative_to(ROOT))
    for path in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs/agents").glob("*.md")),
    )
]
TEXT = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
BLOCK = re.compile(r"(?:^<!-- (file|exit): (\S+) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND_TIMEOUT_S = 60


class Command(msgspec.Struct, frozen=True):
    """One command of a page. `said` is empty when its output does not matter."""

    line: int
    text: str
    said: str
    exit_code: int


class File(msgspec.Struct, frozen=True):
    """A file that a page asks its reader to save."""

    name: str
    text: str


def parts(page: str) -> Iterator[Command | File]:
    """Yield what a reader of the page would do, in order."""
    for match in BLOCK.finditer(page):
        kind, argument, language, text = match.groups()
        if kind == "file":
            yield File(argument, text)
        elif language == "console":
            yield from _commands(text, page[: match.start(4)].count("\n") + 1, int(argument or 0))


def unrun(page: str) -> list[str]:
    """Return the blocks of commands that are not run."""
    return [text for _, _, language, text in BLOCK.findall(page) if language in {"sh", "bash", "shell"}]


def _commands(text: str, first_line: int, exit_code: int) -> Iterator[Command]:
    found = list(re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE))
    for match in found:
        line = first_line + text[: match.start()].count("\n")
        yield Command(line, match[1], match[2], exit_code if match is found[-1] else 0)


def pattern(said: str) -> str:
    """Return the regular expression of an expected output."""
    return "".join(
        r"(?:.*\n)*?" if line == "..." else r".*".join(map(re.escape, line.split("..."))) + r"\n"
        for line in said.splitlines()
    )


class Shell:
    """Runs commands in a folder of its own, with a home of its own and the interlock of this checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        programs = self.programs = folder / "bin"
        programs.mkdir()
        # not a link to the interpreter: a virtual environment is found by the path it was started with
        program = "from interlock.cli.entry import main; raise SystemExit(main())"
        for name, call in (("interlock", f'-c "{program}"'), ("python3", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n', encoding="utf-8")
            (programs / name).chmod(0o755)
        self.env = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT / "src"),
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            **{
                f"GIT_{who}_{what}": "docs@example.invalid"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run one command line in bash."""
        return subprocess.run(
            ["bash", "-c", text],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
