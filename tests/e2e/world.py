"""A project of its own for one test: a folder, a home, engines tied to the scripted server, and the real program.

Nothing of this machine's settings gets in: the environment is made here, and a run's processes are found by a marker
variable of this world alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from tests.e2e.agents import KEY, KEY_VALUE, Agent, programs
from tests.modelserver.fakellm import FakeLLM

import interlock

PROGRAM = "from interlock.cli.entry import main; raise SystemExit(main())"
# not INTERLOCK_..: those are interlock's own, and no child gets them
MARK = "E2E_WORLD"
RUN_TIMEOUT_S = 240
WAIT_S = 45


class World:
    """One project and the scripted server that its engines ask."""

    def __init__(self, folder: Path, server: FakeLLM) -> None:
        self.server = server
        self.folder = folder / "project"
        self.home = folder / "home"
        self.folder.mkdir()
        self.home.mkdir()
        self.env = {
            "PATH": os.pathsep.join((programs(), str(Path(sys.executable).parent), "/usr/local/bin:/usr/bin:/bin")),
            "HOME": str(self.home),
            "TMPDIR": str(folder),
            "PYTHONPATH": str(Path(interlock.__file__).parent.parent),
            "LC_ALL": "C.UTF-8",
            "NO_PROXY": "127.0.0.1",
            # agents that would fetch packages of their own when they start reach nobody
            "NPM_CONFIG_REGISTRY": "http://127.0.0.1:9/",
            "NPM_CONFIG_FETCH_RETRIES": "0",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            # each of an agent's starts would compile all of it anew
            "NODE_COMPILE_CACHE": str(folder.parent / "node-cache"),
            KEY: KEY_VALUE,
            MARK: str(folder),
        }
        for who in ("AUTHOR", "COMMITTER"):
            self.env |= {f"GIT_{who}_NAME": "Test", f"GIT_{who}_EMAIL": "test@example.invalid"}

    def engines(self, engines: Mapping[str, Mapping[str, Any]], **run: Any) -> None:
        """Write interlock.toml."""
        tables = {"run": run} | {f"engines.{name}": settings for name, settings in engines.items()}
        text = "".join(f"[{name}]\n{toml(settings)}\n" for name, settings in tables.items() if settings)
        (self.folder / "interlock.toml").write_text(text, encoding="utf-8")

    def agent(self, agent: Agent, **more: Any) -> dict[str, Any]:
        """Return the engine's table of `agent`, whose files and variables are put in place."""
        for name, text in agent.files.items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self.env |= {name: value.replace("{url}", self.server.url) for name, value in agent.env.items()}
        return agent.engine(self.server.url, **more)

    def workflow(self, text: str, name: str = "flow.md") -> None:
        (self.folder / name).write_bytes(text.encode("utf-8"))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start interlock."""
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @contextlib.contextmanager
    def driving(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start interlock and be sure that it has ended after."""
        with self.start(*arguments) as running:
            try:
                yield running
            finally:
                running.kill()
                running.communicate()

    def call(self, *arguments: str, expect: int | Iterable[int] = 0) -> str:
        """Run interlock to its end and return what it said."""
        with self.driving(*arguments) as running:
            said, _ = running.communicate(timeout=RUN_TIMEOUT_S)
        expected = (expect,) if isinstance(expect, int) else tuple(expect)
        assert running.returncode in expected, f"exit {running.returncode}\n{said}\n{self.asked()}"
        return said

    def read(self, *arguments: str) -> Any:
        return json.loads(self.call(*arguments, "--json"))

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.read("status", "last")
        return found

    def units(self) -> dict[str, dict[str, Any]]:
        """Return the last run's units by id."""
        return {unit["id"]: unit for unit in self.read("units", "last")}

    def artifact(self, step: str) -> Any:
        return next(entry["artifact"] for entry in self.status()["steps"] if entry["id"] == step)

    def asked(self) -> str:
        """Return the server's log, a short line per call."""
        return "\n".join(
            f"{entry['t']:8.3f} {entry['api']} {entry['status']} {(entry.get('user') or entry['path'])[:120]!r}"
            for entry in self.server.log()
        )

    def processes(self) -> dict[int, str]:
        """Return the command lines of all that was started from here and still runs."""
        return commands(lambda process: process.environ().get(MARK) == self.env[MARK])

    def until(self, true: Callable[[], object], what: str) -> None:
        """Wait until `true()`; fail after a bound."""
        end = time.monotonic() + WAIT_S
        while not true():
            assert time.monotonic() < end, f"{what} never came\n{self.asked()}"
            time.sleep(0.05)

    def close(self) -> None:
        """End what the test left behind."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def commands(wanted: Callable[[psutil.Process], bool]) -> dict[int, str]:
    """Return the command lines of the running processes that are `wanted`, by pid."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if wanted(process) and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.cmdline())
    return found


def toml(settings: Mapping[str, Any]) -> str:
    # a JSON text or list of texts is TOML too
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
