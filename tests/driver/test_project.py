from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interlock.driver.configuration import load_config, require_config
from interlock.driver.project import find_project, open_state, project_at, read_project_id
from interlock.errors import ConfigError, StoreError, UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return place


def folder(*parts: str | Path) -> Path:
    place = Path(*parts)
    place.mkdir(parents=True)
    return place


def test_the_nearest_configuration_marks_the_project(home: Path) -> None:
    deep = folder(home, "a", "b", "c")
    (home / "a" / "interlock.toml").touch()
    assert find_project(deep).root == home / "a"
    (home / "a" / "b" / ".interlock").mkdir()
    assert find_project(deep).root == home / "a" / "b"


def test_the_search_ends_at_the_git_root_and_takes_it(home: Path) -> None:
    deep = folder(home, "a", "repo", "src")
    (home / "a" / "interlock.toml").touch()
    (home / "a" / "repo" / ".git").mkdir()
    (home / "a" / "repo" / ".git" / "HEAD").touch()
    assert find_project(deep).root == home / "a" / "repo"


def test_an_empty_folder_of_that_name_is_no_git_root(home: Path) -> None:
    deep = folder(home, "a", "src")
    (home / "a" / ".git").mkdir()
    assert find_project(deep).root == deep


def test_a_git_worktree_is_a_git_root_too(home: Path) -> None:
    deep = folder(home, "tree", "src")
    (home / "tree" / ".git").write_text("gitdir: /elsewhere")
    assert find_project(deep).root == home / "tree"


def test_without_any_mark_the_folder_itself_is_the_project(home: Path) -> None:
    deep = folder(home, "a")
    assert find_project(deep).root == deep


def test_home_is_never_a_project_and_that_is_said(home: Path) -> None:
    deep = folder(home, "a")
    (home / "interlock.toml").touch()
    (home / ".git").mkdir()
    (home / ".git" / "HEAD").touch()
    found = find_project(deep)
    assert found.root == deep
    assert found.notices == (
        (
            f"{home / 'interlock.toml'} was passed over: your home folder is never a project by itself; "
            "use --project to say that it is"
        ),
    )
    assert project_at(home).root == home


def test_a_folder_of_another_user_is_passed_over_and_that_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = folder(home, "a", "b")
    (home / "a" / "interlock.toml").touch()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    found = find_project(deep)
    assert found.root == deep
    assert found.notices == (
        (
            f"{home / 'a' / 'interlock.toml'} was passed over: {home / 'a'} belongs to another user (uid {owner}); "
            "use --project to trust it"
        ),
    )


def test_another_users_configuration_in_the_folder_itself_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder(home, "a")
    (root / "interlock.toml").touch()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(UsageError) as caught:
        find_project(root)
    assert str(caught.value) == (
        f"{root / 'interlock.toml'} belongs to another user (uid {owner}) and could make you run their commands"
    )
    assert caught.value.hint == f"if you trust it, say so: --project {root}"
    assert project_at(root).root == root


def test_home_can_be_worked_in_from_itself(home: Path) -> None:
    (home / ".interlock").mkdir()
    found = find_project(home)
    assert (found.root, found.notices) == (home, ())


def test_the_id_is_made_where_there_are_no_hard_links(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    paths = project_at(folder(home, "a"))
    assert open_state(paths) == read_project_id(paths) != ""


def test_links_are_followed_to_the_real_folder(home: Path) -> None:
    deep = folder(home, "a")
    (home / "link").symlink_to(deep)
    assert find_project(home / "link").root == deep


def test_a_folder_that_is_not_there_is_refused(home: Path) -> None:
    for find in (find_project, project_at):
        with pytest.raises(
            UsageError,
            match=r"gone is not a folder\nhint: name (?:a folder that exists|the folder that the project is in)$",
        ):
            find(home / "gone")


def test_finding_a_project_writes_nothing(home: Path) -> None:
    deep = folder(home, "a")
    found = find_project(deep)
    assert read_project_id(found) == ""
    assert list(deep.iterdir()) == []
    assert found.journal == deep / ".interlock" / "journal.db"


def test_the_state_folder_is_private_and_keeps_out_of_git(home: Path) -> None:
    root = folder(home, "a")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    paths = project_at(root)
    project_id = open_state(paths)
    assert len(project_id) == 32
    assert read_project_id(paths) == project_id
    assert open_state(paths) == project_id
    assert stat.S_IMODE(paths.state_dir.stat().st_mode) == 0o700
    assert paths.logs.is_dir()
    seen = subprocess.run(
        ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=all"], capture_output=True, check=True
    )
    assert seen.stdout == b""


def test_a_state_folder_that_others_may_read_is_made_private(home: Path) -> None:
    root = folder(home, "a")
    (root / ".interlock").mkdir(mode=0o755)
    open_state(project_at(root))
    assert stat.S_IMODE((root / ".interlock").stat().st_mode) == 0o700


def test_many_that_make_the_state_folder_at_once_agree_on_the_id(home: Path) -> None:
    paths = project_at(folder(home, "a"))
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda _: open_state(paths), range(32)))
    assert len(ids) == 1
    assert sorted(entry.name for entry in paths.state_dir.iterdir()) == [".gitignore", "id", "logs"]


def test_something_in_the_way_is_told(home: Path) -> None:
    root = folder(home, "a")
    (root / ".interlock").touch()
    with pytest.raises(StoreError) as caught:
        open_state(project_at(root))
    assert str(caught.value) == f"{root / '.interlock'} is in the way: it is not a folder"
    assert caught.value.hint == "move it away"


def test_an_emptied_id_is_told(home: Path) -> None:
    paths = project_at(folder(home, "a"))
    open_state(paths)
    (paths.state_dir / "id").write_text("")
    with pytest.raises(StoreError) as caught:
        open_state(paths)
    assert caught.value.code == "project-id-damaged"


_UNWRITABLE = """
import os, sys
from pathlib import Path
from interlock.errors import StoreError
from interlock.driver.project import open_state, project_at
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
try:
    open_state(project_at(Path(sys.argv[1])))
except StoreError as error:
    print(error.code, "|", error, "|", error.hint)
"""


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that another user (nobody, when the tests run as root) can look at but not write to."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o555)
        yield Path(place).resolve()
        Path(place).chmod(0o755)


def test_a_read_only_folder_is_a_clear_error(read_only: Path, tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", _UNWRITABLE, str(read_only)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert answer.stdout == (
        f"state-dir-unwritable | can't write to {read_only / '.interlock'}: permission denied | "
        "make the folder writable, or name another one with --project\n"
    )


def test_configuration_comes_from_the_user_and_over_it_the_project(home: Path) -> None:
    root = folder(home, "a")
    folder(home, ".config", "interlock")
    (home / ".config" / "interlock" / "config.toml").write_text('[run]\nengine = "e"\nmax_concurrency = 2\n')
    (root / "interlock.toml").write_text('[run]\nmax_concurrency = 3\n[engines.e]\nkind = "llm"\napi = "openai"\n')
    config, diagnostics = load_config(project_at(root))
    assert diagnostics == ()
    assert (config.run.engine, config.run.max_concurrency) == ("e", 3)
    assert config.origins["run.engine"].file == str(home / ".config" / "interlock" / "config.toml")


def test_the_users_configuration_moves_with_xdg(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    assert project_at(home).config_files[0] == home / "xdg" / "interlock" / "config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert project_at(home).config_files[0] == home / ".config" / "interlock" / "config.toml"


def test_wrong_configuration_is_a_config_error_with_all_faults(home: Path) -> None:
    root = folder(home, "a")
    (root / "interlock.toml").write_text('[run]\nengine = "x"\nzzz = 1\n')
    with pytest.raises(ConfigError) as caught:
        require_config(project_at(root))
    assert caught.value.exit_code == 78
    assert [d.code for d in caught.value.diagnostics] == ["unknown-engine", "unknown-key"]


def test_a_configuration_that_cannot_be_read_is_a_diagnostic(home: Path) -> None:
    root = folder(home, "a")
    (root / "interlock.toml").mkdir()
    _, (found,) = load_config(project_at(root))
    assert (found.code, found.message) == ("unreadable", "can't read the configuration: is a directory")
