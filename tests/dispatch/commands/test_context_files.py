"""The folder of context files: of one driver, beside those of others."""

from __future__ import annotations

import os
from pathlib import Path

from interlock.dispatch.commands.context_files import ContextFiles


def test_a_driver_of_another_run_leaves_a_living_drivers_folder_alone(tmp_path: Path) -> None:
    first, second = ContextFiles(tmp_path, "first"), ContextFiles(tmp_path, "second")
    path = first.put(b"1")
    second.put(b"2")
    assert Path(os.fsdecode(path)).read_bytes() == b"1"
    assert Path(os.fsdecode(first.put(b"3"))).read_bytes() == b"3"
    first.remove()
    second.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_driver_is_removed_by_the_next(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        ContextFiles(tmp_path, "killed").put(b"1")
        os._exit(0)
    os.waitpid(pid, 0)
    assert (tmp_path / "contexts-killed").is_dir()
    files = ContextFiles(tmp_path, "next")
    files.put(b"2")
    assert [path.name for path in tmp_path.iterdir()] == ["contexts-next"]
    files.remove()


def test_what_is_no_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "contexts-file").write_text("somebody's")
    (tmp_path / "contexts-link").symlink_to(tmp_path.parent)
    files = ContextFiles(tmp_path, "own")
    files.put(b"1")
    files.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["contexts-file", "contexts-link"]
