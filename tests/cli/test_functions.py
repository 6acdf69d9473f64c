"""Python functions that say, leave and change odd things, by the program as a process of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]


def write(folder: Path, steps: str, module: str) -> None:
    flow = f"---\nparams: {{ n: {{ type: array, default: [1, 2, 3] }} }}\nsteps:\n{steps}---\n"
    (folder / "flow.md").write_text(flow, encoding="utf-8")
    (folder / "work.py").write_text(module, encoding="utf-8")


def units_of(interlock: Interlock, folder: Path) -> list[Any]:
    found: list[Any] = json.loads(interlock("units", "last", "--json", cwd=folder).stdout)
    return found


@pytest.mark.parametrize("effects", ["internal", "external"])
def test_an_exception_whose_text_is_no_utf_8_fails_its_unit_and_the_map_goes_on(
    interlock: Interlock, tmp_path: Path, effects: str
) -> None:
    write(
        tmp_path,
        f"  - id: each\n    map: {{ over: params.n }}\n    effects: {effects}\n    on_error: continue\n"
        "    uses: python:work:name\n",
        "import os\ndef name(context):\n    if context['item'] == 2:\n"
        "        raise ValueError(os.fsdecode(b'caf\\xe9'))\n    return context['item']\n",
    )
    done = interlock("run", "flow.md", cwd=tmp_path)
    assert done.returncode == 6, done.stderr
    assert [(unit["state"], unit["reason"]) for unit in units_of(interlock, tmp_path)] == [
        ("completed", None),
        ("failed", "non_zero_exit"),
        ("completed", None),
    ]
    assert r"ValueError: caf\udce9" in done.stdout


DAEMON = """
import os, sys, time

def daemon(name):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open(name + ".part", "w") as file:
                file.write(str(os.getpid()))
            os.rename(name + ".part", name)
            for fd in (0, 1, 2):
                os.close(fd)
            time.sleep(60)
        os._exit(0)
    while not os.path.exists(name):
        time.sleep(0.001)

def leave(context):
    daemon("left")
    if "HOW" == "dies":
        os._exit(1)
    if "HOW" == "hangs":
        time.sleep(60)
"""
LOOK = "    run: grep -q '^State:.[^ZX]' /proc/$(cat left)/status 2> /dev/null && echo alive || echo gone\n"


@pytest.mark.parametrize("how", ["ends", "dies", "hangs"])
def test_a_daemon_that_only_forked_is_gone_when_its_step_is_over(
    interlock: Interlock, tmp_path: Path, how: str
) -> None:
    write(
        tmp_path,
        "  - id: leave\n    timeout: 2s\n    on_error: continue\n    uses: python:work:leave\n  - id: look\n" + LOOK,
        DAEMON.replace("HOW", how),
    )
    done = interlock("run", "flow.md", cwd=tmp_path)
    assert done.returncode == (0 if how == "ends" else 6), done.stdout + done.stderr
    assert [unit["result"] for unit in units_of(interlock, tmp_path)] == [None, "gone"]


EDITS = """
import os, sys

VERSION = 1

def leave(context):
    return [context["item"], VERSION]

def edit(context):
    if context["item"] == 1:
        with open(__file__) as file:
            text = file.read()
        with open(__file__, "w") as file:
            file.write(text.replace("VERSION = 1", "VERSION = 2"))
        os._exit(1)
    return [context["item"], VERSION]
"""
EACH = (
    "  - id: each\n    map: {{ over: params.n, concurrency: 1 }}\n    on_error: continue\n"
    "    uses: python:work:edit\n    effects: {effects}\n"
)


@pytest.mark.parametrize("effects", ["internal", "external"])
def test_a_module_that_changes_in_the_middle_of_a_map_blocks_it_before_any_worker_uses_it(
    interlock: Interlock, tmp_path: Path, effects: str
) -> None:
    write(tmp_path, EACH.format(effects=effects), EDITS)
    before = tmp_path / "before.py"
    before.write_text(EDITS, encoding="utf-8")
    done = interlock("run", "flow.md", cwd=tmp_path)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "module work (work.py) changed since the run began" in done.stdout
    assert "interlock resume" in done.stdout
    left = "failed" if effects == "internal" else "unknown"
    assert [unit["state"] for unit in units_of(interlock, tmp_path)] == [left, "pending", "pending"]
    assert interlock("run", "last", cwd=tmp_path).returncode == 4
    before.rename(tmp_path / "work.py")
    done = interlock("run", "last", cwd=tmp_path)
    assert done.returncode == (6 if effects == "internal" else 4), done.stdout + done.stderr
    assert [unit["result"] for unit in units_of(interlock, tmp_path)] == [None, [2, 1], [3, 1]]


def test_a_change_in_the_middle_of_a_map_can_be_accepted(interlock: Interlock, tmp_path: Path) -> None:
    write(tmp_path, EACH.format(effects="internal"), EDITS)
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 4
    assert interlock("resume", "last", "--accept-changes", cwd=tmp_path).returncode == 6
    assert [unit["result"] for unit in units_of(interlock, tmp_path)] == [None, [2, 2], [3, 2]]


def test_a_module_that_is_gone_in_the_middle_of_a_map_blocks_it(interlock: Interlock, tmp_path: Path) -> None:
    gone = EDITS.replace('with open(__file__, "w") as file:\n            file.write(', "os.unlink(__file__), (")
    write(tmp_path, EACH.format(effects="internal"), gone)
    done = interlock("run", "flow.md", cwd=tmp_path)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "module work (work.py) cannot be read: No such file or directory" in done.stdout
