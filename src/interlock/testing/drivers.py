"""Real drivers of the sample workflow, forked from a warm parent, to be killed, stopped and waited for.

Guarantee: `wait` returns; a driver that does not end in time is killed and said to have hung. What drivers import when
they need it is imported here, once for all that are forked.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import jsonschema_rs
import markdown_it

from interlock.app import App
from interlock.dispatch.agents import asking, command, registry
from interlock.dispatch.agents import runner as agents
from interlock.dispatch.commands import merging
from interlock.dispatch.env import dotenv
from interlock.dispatch.git import occupied, removal, snapshot, traces, trees
from interlock.dispatch.git.command import IDENTITY, Git, dated
from interlock.dispatch.llm import engines
from interlock.dispatch.prompts import runner
from interlock.dispatch.python import pool
from interlock.driver import compiling
from interlock.driver.clock import Clock
from interlock.driver.configuration import require_config
from interlock.driver.forking import ForkOrder
from interlock.driver.project import project_at
from interlock.errors import InterlockError
from interlock.plan import config_parse, params

WARM: Final = (
    *(compiling, config_parse, params, jsonschema_rs, markdown_it),
    *(merging, dotenv, occupied, removal, snapshot, traces, trees, pool),
    *(agents, asking, command, registry, engines, runner),
)
Hook = Callable[[str], None]
WORKFLOW: Final = Path("sample.md")
HUNG: Final = "hung"
STOPPED: Final = "stopped"
KILLED: Final = -signal.SIGKILL
CRASHED: Final = 70
CHANGED: Final = Path("changed.md")
"""The workflow of forks: one more file to change."""
WITNESSES: Final = (str(CHANGED), "ran", "changed", "paid", "tried-*", "driver.log", "commits", "__pycache__")
"""What a run and its drivers leave in the project beside the journal."""
MORE: Final = "more"
_FILES: Final = r"\"kept\",\"red\",\"plain\""
_SAMPLE: Final = Path(__file__).parent / "sample"
_PATIENCE_S: Final = 60.0
_LINGER_S: Final = 0.02


def new_project(folder: Path, change: Callable[[str], str] = str) -> Path:
    """Make a repository whose only commit is the sample workflow, changed as asked; the same one every time."""
    shutil.copytree(_SAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / WORKFLOW).read_text(encoding="utf-8")
    (folder / WORKFLOW).write_text(change(text), encoding="utf-8")
    (folder / CHANGED).write_text(change(text).replace(_FILES, f'{_FILES},\\"{MORE}\\"'), encoding="utf-8")
    git = Git()
    git(folder, "init", "--quiet", "--template=", "--initial-branch=main")
    exclude = folder / ".git" / "info" / "exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("\n".join(WITNESSES) + "\n", encoding="utf-8")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=The sample", env={**IDENTITY, **dated(0)})
    (folder / ".interlock").mkdir(mode=0o700)
    return folder


class Killer:
    """Counts commits, and ends this process by SIGKILL before or after the one asked for.

    Before it dies it lingers, so that work which was started too early, or not recorded, can leave its trace.
    """

    def __init__(self, moment: str, commit: int) -> None:
        self._moment = moment
        self._commit = commit
        self.commits = 0

    def __call__(self, moment: str) -> None:
        """Take note of a commit about to happen, or just done."""
        self.commits += moment == "before"
        if moment == self._moment and self.commits == self._commit:
            time.sleep(_LINGER_S if moment == "before" else 0)
            os.kill(os.getpid(), signal.SIGKILL)


def fork(project: Path, work: Callable[[], int]) -> int:
    """Run `work` in a child of its own session that stands in the project; return its pid."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = CRASHED
    try:
        os.setsid()
        os.chdir(project)
        _log_to(project / "driver.log")
        code = work()
    except InterlockError as error:
        sys.stderr.write(f"error: {error.code}: {error}\n")
        code = error.exit_code
    except BaseException:  # noqa: BLE001 - whatever it is, this child ends here and its log tells
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _log_to(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)


def drive(hook: Hook | None = None, clock: Clock | None = None) -> int:
    """Start the project's run, or go on with it; return the exit code. For children: stands in the project."""
    paths = project_at(Path.cwd())
    with App(paths, require_config(paths), on_commit=hook, clock=clock) as app:
        runs = app._open().runs(limit=1)  # noqa: SLF001 - a reader would not be seen by the hook
        result = app.run_id(runs[0].id) if runs else app.run_file(WORKFLOW)
        return result.exit_code


def drive_fork(known: Sequence[str], hook: Hook | None = None) -> int:
    """Fork the first of the runs that are `known`, or go on with the fork that is none of them; else as `drive`."""
    paths = project_at(Path.cwd())
    with App(paths, require_config(paths), on_commit=hook) as app:
        (newest,) = app._open().runs(limit=1)  # noqa: SLF001 - as above
        if newest.id in known:
            return app.fork(ForkOrder(run=known[0], workflow=CHANGED)).exit_code
        return app.run_id(newest.id).exit_code


def wait(pid: int, *, stopped: bool = False) -> int | str:
    """Return the exit code, the negative signal, STOPPED where that is waited for, or HUNG."""
    give_up = time.monotonic() + _PATIENCE_S
    flags = os.WNOHANG | (os.WUNTRACED if stopped else 0)
    pause = 0.001
    while time.monotonic() < give_up:
        found, status = os.waitpid(pid, flags)
        if found:
            return STOPPED if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return HUNG


def last_words(project: Path) -> str:
    """Return the last line that a driver of the project said."""
    path = project / "driver.log"
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "it said nothing"
