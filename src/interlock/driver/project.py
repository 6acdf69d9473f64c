"""Where a project is, and its state directory `.interlock/`.

Guarantees: finding a project writes nothing; HOME itself and folders of other users are never taken for a
project by search, and what was passed over is said in `notices`; the state directory is 0700, has a
`.gitignore` of its own and a random id that, once there, never changes even when two processes make it.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from interlock.errors import NO_SPACE, StoreError, UsageError
from interlock.store.durable import sync_folder

CONFIG_NAME: Final = "interlock.toml"
STATE_NAME: Final = ".interlock"
_ID_BYTES: Final = 16
_HINTS: Final = {
    errno.EROFS: "mount it for writing, or name another folder with --project",
    **dict.fromkeys(NO_SPACE, "free some space, or name another folder with --project"),
}


class ProjectPaths(msgspec.Struct, frozen=True, kw_only=True):
    """The places of one project. `config_files` are the user's and the project's, whether or not they exist."""

    root: Path
    state_dir: Path
    journal: Path
    logs: Path
    config_files: tuple[Path, Path]
    notices: tuple[str, ...] = ()


def project_at(root: Path, notices: tuple[str, ...] = ()) -> ProjectPaths:
    """Return the places of the project whose root is `root`, as given by the user. Raises UsageError."""
    if not seen(root.is_dir):
        raise UsageError("no-such-folder", f"{root} is not a folder", "name the folder that the project is in")
    root = root.resolve()
    state = root / STATE_NAME
    return ProjectPaths(
        root=root,
        state_dir=state,
        journal=state / "journal.db",
        logs=state / "logs",
        config_files=(_user_config(), root / CONFIG_NAME),
        notices=notices,
    )


def find_project(start: Path) -> ProjectPaths:
    """Search from `start` up: nearest `interlock.toml` or `.interlock/`, else the git root, else `start`.

    Raises UsageError when that leaves a folder with another user's configuration or state in it.
    """
    if not start.is_dir():
        raise UsageError("no-such-folder", f"{start} is not a folder", "name a folder that exists")
    start = start.resolve()
    passed: dict[Path, str] = {}
    git_root: Path | None = None
    for folder in _upwards(start):
        marker = next((name for name in (CONFIG_NAME, STATE_NAME) if seen((folder / name).exists)), None)
        is_git_root = _is_git_root(folder / ".git")
        reason = _not_ours(folder, marker)
        if reason is None:
            if marker:
                return project_at(folder, tuple(passed.values()))
            git_root = folder if is_git_root else None
        elif marker:
            passed[folder] = f"{folder / marker} was passed over: {reason}"
        if is_git_root or folder == _home():
            break
    root = git_root or start
    _refuse_foreign(root)
    return project_at(root, tuple(notice for folder, notice in passed.items() if folder != root))


def project_of(given: str | Path | None) -> ProjectPaths:
    """Return the project at the root that was given, else the one at or above the current folder. Raises UsageError."""
    return find_project(current_folder()) if given is None else project_at(Path(given))


def current_folder() -> Path:
    """Return the folder that relative paths are seen from. Raises UsageError when it is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        message = "the current folder does not exist any more"
        raise UsageError("no-current-folder", message, "change into one that does: cd DIR") from error


def seen(look: Callable[[], bool]) -> bool:
    """Tell what a look at a path says; where there can be no such name, or none may look, nothing is seen."""
    try:
        return look()
    except OSError:
        return False


def _refuse_foreign(root: Path) -> None:
    for path in (root / CONFIG_NAME, root / STATE_NAME):
        if seen(path.exists) and path.stat().st_uid != os.geteuid():
            owner = path.stat().st_uid
            message = f"{path} belongs to another user (uid {owner}) and could make you run their commands"
            raise UsageError("foreign-project", message, f"if you trust it, say so: --project {shlex.quote(str(root))}")


def _is_git_root(marker: Path) -> bool:
    """Tell whether git would take it: a file that points elsewhere, or a folder with a HEAD."""
    return seen(lambda: marker.is_file() or os.path.lexists(marker / "HEAD"))


def _upwards(start: Path) -> Iterator[Path]:
    yield start
    yield from start.parents


def _home() -> Path | None:
    try:
        return Path.home().resolve()
    except (RuntimeError, OSError):
        return None


def _user_config() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(base):  # noqa: PTH117 - a relative one has to be ignored, says the XDG specification
        return Path(base) / "interlock" / "config.toml"
    return (_home() or Path("/nonexistent")) / ".config" / "interlock" / "config.toml"


def _not_ours(folder: Path, marker: str | None) -> str | None:
    """Say why `folder` can't be the project's root, None when it can."""
    if folder == _home():
        return "your home folder is never a project by itself; use --project to say that it is"
    for path in (folder, folder / marker) if marker else (folder,):
        owner = path.stat().st_uid
        if owner != os.geteuid():
            return f"{path} belongs to another user (uid {owner}); use --project to trust it"
    return None


def read_project_id(paths: ProjectPaths) -> str:
    """Return the project's random id, or an empty string as long as there is none. Writes nothing."""
    return project_id_in(paths.root)


def project_id_in(root: Path) -> str:
    """Return the random id of the project at `root`, or an empty string. Writes nothing."""
    try:
        return (root / STATE_NAME / "id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def open_state(paths: ProjectPaths) -> str:
    """Make sure that the state directory is there and writable; return the project's id. Raises StoreError."""
    state = paths.state_dir
    try:
        if not state.is_dir():
            state.mkdir(mode=0o700, exist_ok=True)
            sync_folder(paths.root)
        _keep_private(state)
        _publish(state / ".gitignore", "*\n")
        _publish(state / "id", os.urandom(_ID_BYTES).hex() + "\n")
        paths.logs.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError as error:
        raise StoreError(
            "state-dir-blocked", f"{error.filename} is in the way: it is not a folder", "move it away"
        ) from error
    except OSError as error:
        raise StoreError(
            "state-dir-unwritable",
            f"can't write to {state}: {(error.strerror or str(error)).lower()}",
            _HINTS.get(error.errno or 0, "make the folder writable, or name another one with --project"),
        ) from error
    project_id = read_project_id(paths)
    if not project_id:
        raise StoreError(
            "project-id-damaged", f"{state / 'id'} can't be read or is empty", "remove it; a new id is made then"
        )
    return project_id


def _keep_private(state: Path) -> None:
    mode = stat.S_IMODE(state.stat().st_mode)
    if mode & 0o077:
        state.chmod(mode & 0o700)
    if not os.access(state, os.W_OK | os.X_OK):
        number = errno.EROFS if os.statvfs(state).f_flag & os.ST_RDONLY else errno.EACCES
        raise OSError(number, os.strerror(number), str(state))


def _publish(path: Path, text: str) -> None:
    """Write `path` whole unless it is there; of two writers the first wins and both see the same."""
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with draft.open("x", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        _link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _link(draft: Path, path: Path) -> None:
    """Give `draft` its name unless that is taken, also where the filesystem has no hard links."""
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    except OSError:
        if not path.exists():
            draft.rename(path)
