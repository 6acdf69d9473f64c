"""Messages about what the system refused: they name the thing, and a next step that can be taken."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.driver.export.exporting import new_file
from interlock.errors import StoreError

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
PROGRAM = [sys.executable, "-c", "from interlock.cli.entry import main; main()"]


@pytest.mark.parametrize("arguments", ["list", "run flow.md", "lint flow.md"])
def test_a_folder_that_was_deleted_under_one_is_said_to_be_gone(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "gone").mkdir()
    shell = f'rmdir "$PWD" && exec {shlex.join(PROGRAM)} {arguments}'
    done = subprocess.run(
        ["sh", "-c", shell], cwd=tmp_path / "gone", capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (
        2,
        "error: the current folder does not exist any more\nhint: change into one that does: cd DIR\n",
    )


def test_an_export_s_hint_is_about_what_was_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught, new_file(tmp_path / "none/x", force=False):
        pass
    assert caught.value.message == f"can't write {tmp_path}/none/x: no such file or directory; no file was left"
    assert caught.value.hint == "name a file in a folder that can be written: -o FILE"


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("with space.md", "'with space.md'"),
        ("-w.md", "./-w.md"),
        ("-it's.md", """'./-it'"'"'s.md'"""),
        ("--/w.md", "./--/w.md"),
    ],
)
def test_a_command_with_a_path_in_it_can_be_pasted(
    name: str, spelled: str, tmp_path: Path, interlock: Interlock
) -> None:
    written = interlock("new", "--", name, cwd=tmp_path)
    assert written.stdout == f"wrote {name}\nnext: interlock run {spelled} -p greeting=Hello\n"
    _, _, line = written.stdout.partition("next: interlock ")
    assert interlock(*shlex.split(line), cwd=tmp_path).returncode == 0


def test_a_journal_on_a_read_only_mount_is_said_to_be_on_one(tmp_path: Path, interlock: Interlock) -> None:
    (tmp_path / "flow.md").write_text("---\nsteps: [{ id: a, run: 'true' }]\n---\n", encoding="utf-8")
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 0
    mounted = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path} && cd {tmp_path}"
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*inside, mounted], capture_output=True, check=False).returncode:
        pytest.skip("this host lets nobody mount in a namespace of his own")
    done = subprocess.run(
        [*inside, f"{mounted} && exec {shlex.join(PROGRAM)} run flow.md"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ,
    )
    assert done.stderr == (
        f"error: can't write to {tmp_path}/.interlock: read-only file system\n"
        "hint: mount it for writing, or name another folder with --project\n"
    )


def test_of_a_module_that_is_gone_nothing_can_be_accepted(tmp_path: Path, interlock: Interlock) -> None:
    (tmp_path / "work.py").write_text("def one(context):\n    return 1\n", encoding="utf-8")
    (tmp_path / "flow.md").write_text(
        "---\nsteps:\n  - { id: wait, run: rm work.py }\n  - { id: one, uses: 'python:work:one' }\n---\n",
        encoding="utf-8",
    )
    done = interlock("run", "flow.md", cwd=tmp_path)
    assert done.returncode == 4
    assert "module work (work.py) cannot be read: No such file or directory" in done.stdout
    assert "accept-changes" not in done.stdout
    assert "once it is there again" in done.stdout
    (tmp_path / "work.py").write_text("def one(context):\n    return 1\n", encoding="utf-8")
    again = interlock("run", "last", "--json", cwd=tmp_path)
    assert json.loads(again.stdout.splitlines()[-1])["steps"][1]["artifact"] == 1
