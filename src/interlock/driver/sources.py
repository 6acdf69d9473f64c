"""The world around a workflow file, as `resolve` asks for it.

Guarantees: reads only, writes nothing; no module of the user's is imported; git and the interpreter are asked
without the variables that would lead them elsewhere, and never for longer than a bounded time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from interlock.dispatch.git.base import IsolationError
from interlock.dispatch.git.command import Git
from interlock.dispatch.git.repository import find, head
from interlock.driver.modules import find_modules
from interlock.driver.project import ProjectPaths, read_project_id
from interlock.model.canon import sha256
from interlock.model.plan import Project, Shell
from interlock.plan.sources import Missing, ModuleFile, ScriptFile, WorkflowFile

MAX_SCRIPT_BYTES: Final = 4 * 1_048_576
MOST_WORKFLOW_BYTES: Final = 1_048_576 + 1
"""One more than a workflow may have, so that the compiler sees that it is too large."""
_GIT_TIMEOUT_S: Final = 20
_GIT_ELSEWHERE: Final = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)
"""Variables that lead git to another repository; those that configure it stay."""
_COMMIT: Final = ("rev-parse", "--verify", "--quiet", "HEAD^{commit}")


class FileSources:
    """`plan.sources.Sources` over files, PATH, git and the target interpreter."""

    def __init__(self, workflow: Path, paths: ProjectPaths) -> None:
        self._named = workflow
        self._workflow = Path(os.path.abspath(workflow))  # noqa: PTH100 - the name as the user sees it, links and all
        self._folder = self._workflow.parent
        self._root = paths.root
        self._paths = paths
        self._commit: _Question | None = None

    def ask_ahead(self) -> None:
        """Put to git what `project` will need, so that it is answered meanwhile; `forget` must follow."""
        self._commit = _Question(self._root, *_COMMIT)

    def forget(self) -> None:
        """Drop what was asked and is not needed. Idempotent."""
        if self._commit is not None:
            self._commit.drop()
            self._commit = None

    def source(self) -> str:
        """The workflow file, relative to the project's root where it lies below it."""
        return self._relative(self._folder.resolve() / self._workflow.name)

    def project(self) -> Project:
        """Identity of the project's root and its git commit."""
        about = self._root.stat()
        return Project(
            root=str(self._root),
            device=about.st_dev,
            inode=about.st_ino,
            id=read_project_id(self._paths),
            commit=git_commit(self._root) if self._commit is None else self._commit.answer(),
        )

    def real(self) -> str:
        """The workflow file, links followed."""
        return str(self._workflow.resolve())

    def workflow(self, path: str) -> WorkflowFile | Missing:
        """Read a child workflow; `path` is relative to the workflow file."""
        try:
            named = self._named.parent / Path(path).expanduser()
            real = named.resolve()
            if not stat.S_ISREG(real.stat().st_mode):
                return Missing(reason="is not a file", hint="name one workflow")
            if os.fsencode(real) != str(real).encode("utf-8", "replace"):
                return Missing(reason="has a path that is not UTF-8", hint="rename the file or folder")
            with real.open("rb") as stream:
                content = stream.read(MOST_WORKFLOW_BYTES)
        except (OSError, ValueError, RuntimeError) as error:
            return _unreadable(error, self._folder)
        return WorkflowFile(file=str(named), real=str(real), content=content, sources=FileSources(named, self._paths))

    def repository(self) -> str | Missing:
        """The top folder of the working tree that the project's root lies in."""
        git = Git()
        try:
            top = find(git, self._root).top
            head(git, self._root)
        except IsolationError as error:
            if error.code == "no-repository":
                reason = f"{self._root} lies in no git repository with a working tree"
                return Missing(reason=reason, hint="make one: git init && git add -A && git commit")
            if error.code == "no-commits":
                return Missing(reason=f"the git repository {top} has no commit yet", hint="commit what is there first")
            return Missing(reason=error.message, hint=error.hint)
        return os.path.realpath(top)

    def script(self, path: str) -> ScriptFile | Missing:
        """Read a script; `path` is relative to the workflow file."""
        try:
            place = self._folder / Path(path).expanduser()
            about = place.stat()
            if not stat.S_ISREG(about.st_mode):
                return Missing(reason="is not a file", hint="name one script")
            if about.st_size > MAX_SCRIPT_BYTES:
                reason = f"has {about.st_size:,} bytes; {MAX_SCRIPT_BYTES:,} are allowed"
                return Missing(reason=reason, hint="call it with 'run' instead of embedding it")
            content = place.read_bytes()
        except (OSError, ValueError, RuntimeError) as error:
            return _unreadable(error, self._folder)
        executable = bool(about.st_mode & stat.S_IXUSR)
        return ScriptFile(path=self._relative(place.resolve()), content=content, executable=executable)

    def folder(self, path: str) -> str | Missing:
        """Return the real path of a folder given relative to the project's root."""
        try:
            place = (self._root / Path(path).expanduser()).resolve()
            if not place.is_dir():
                reason = "is not a folder" if place.exists() else "does not exist"
                return Missing(reason=reason, hint=f"'cwd' is relative to {self._root}")
            return self._relative(place)
        except (OSError, ValueError, RuntimeError) as error:
            return _unreadable(error, self._root)

    def shell(self) -> Shell | None:
        """Bash where there is one, else a POSIX shell."""
        import shutil  # noqa: PLC0415 - heavy, and what is named by its path needs no search

        bash = shutil.which("bash")
        if bash:
            return Shell(name="bash", argv=(os.path.abspath(bash), "-euo", "pipefail", "-c"))  # noqa: PTH100 - not through links
        sh = shutil.which("sh")
        return Shell(name="sh", argv=(os.path.abspath(sh), "-eu", "-c")) if sh else None  # noqa: PTH100 - as above

    def program(self, name: str) -> str | Missing:
        """Return the full path of a program."""
        import shutil  # noqa: PLC0415 - as in shell

        found = shutil.which(name)
        if found is None:
            return Missing(reason="was not found on PATH", hint="install it, or write its full path")
        return os.path.abspath(found)  # noqa: PTH100 - a link's name can decide what a program does

    def python(self, configured: tuple[str, ...]) -> tuple[str, ...] | Missing:
        """Return the interpreter as configured, else the project's `.venv`, else our own."""
        if not configured:
            return self._default_python()
        program = configured[0]
        import shutil  # noqa: PLC0415 - as in shell

        name = str(self._root / Path(program).expanduser()) if "/" in program else program
        found = shutil.which(name)
        if found is None:
            where = "" if "/" in program else " on PATH"
            return Missing(reason=f"'{program}' was not found{where}", hint="mend 'python' below [run]")
        return (os.path.abspath(found), *configured[1:])  # noqa: PTH100 - a venv is known by its link

    def _default_python(self) -> tuple[str, ...] | Missing:
        venv = self._root / ".venv" / "bin" / "python"
        if os.access(venv, os.X_OK):
            return (str(venv),)
        if venv.is_symlink():
            # falling back in silence would run the functions without the packages that they need
            hint = "make the environment anew, or set 'python' below [run]"
            return Missing(reason=f"'{venv}' leads to no interpreter", hint=hint)
        return (sys.executable,)

    def python_path(self) -> tuple[str, ...]:
        """The workflow's folder and the project's root."""
        return tuple(dict.fromkeys((str(self._folder.resolve()), str(self._root))))

    def modules(self, names: Iterable[str], python: tuple[str, ...]) -> dict[str, ModuleFile | Missing]:
        """Find modules without importing them."""
        found = find_modules(tuple(names), self.python_path(), python)
        return {name: self._hashed(place) for name, place in found.items()}

    def _hashed(self, place: Path | Missing) -> ModuleFile | Missing:
        if isinstance(place, Missing):
            return place
        try:
            content = place.read_bytes()
        except OSError as error:
            return _unreadable(error, place.parent)
        return ModuleFile(
            file=self._relative(place), sha256=sha256(content), text=content if place.suffix == ".py" else None
        )

    def _relative(self, place: Path) -> str:
        return str(place.relative_to(self._root)) if place.is_relative_to(self._root) else str(place)


def _unreadable(error: Exception, folder: Path) -> Missing:
    if not isinstance(error, OSError):
        return Missing(reason=f"can't be a path: {error}")
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        return Missing(reason="does not exist", hint=f"the path is relative to {folder}")
    return Missing(reason=f"can't be read: {(error.strerror or str(error)).lower()}", hint="make it readable")


def git_commit(root: Path) -> str | None:
    """Return the commit that `root` stands at, None without a repository, a commit or git."""
    return git_answer(root, *_COMMIT)


def git_answer(root: Path, *words: str) -> str | None:
    """Return what git says on stdout about `root`, None where it fails or says nothing."""
    return _Question(root, *words).answer()


class _Question:
    """What git was asked about a folder."""

    def __init__(self, root: Path, *words: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in _GIT_ELSEWHERE}
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                ["git", "-C", str(root), *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )

    def answer(self) -> str | None:
        """Wait for the answer, None where git fails or says nothing."""
        if self._process is None:
            return None
        try:
            said, _ = self._process.communicate(timeout=_GIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.drop()
            return None
        text = os.fsdecode(said).removesuffix("\n")
        return text if self._process.returncode == 0 and text else None

    def drop(self) -> None:
        """End it, wherever it is. Idempotent."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            self._process.communicate()
