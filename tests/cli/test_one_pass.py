"""Every fault in one pass: of the file's own making, of what it names in the world, and of the configuration."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
CHILD = """---
params: { name: { type: string } }
steps:
  - { id: greet, run: echo hello, cwd: nowhere, typo: 1 }
  - { id: say, uses: ./gone.sh }
---
"""
FLOW = """---
steps:
  - { id: first, run: echo, timout: 1s }
  - { id: script, uses: ./missing.sh }
  - { id: group, env: [secrets], cwd: nowhere, run: echo }
  - { id: "no id", run: echo, retry: many }
  - { id: child, uses: ./child.md, with: { nmae: item, zz: params.qq } }
  - { id: function, uses: "python:gone:run" }
  - { id: last, run: echo, needs: [nobody] }
---
## nothing
"""
OF_THE_FLOW = {
    (3, "unknown-key"),
    (4, "bad-script"),
    (5, "bad-cwd"),
    (6, "bad-name"),
    (6, "wrong-type"),
    (7, "unknown-param"),
    (8, "no-such-module"),
    (9, "unknown-step"),
    (11, "unknown-section"),
}


@pytest.fixture
def faults(tmp_path: Path, interlock: Interlock) -> Callable[[], tuple[int, set[tuple[str, int, str]]]]:
    (tmp_path / "flow.md").write_text(FLOW, encoding="utf-8")
    (tmp_path / "child.md").write_text(CHILD, encoding="utf-8")

    def lint() -> tuple[int, set[tuple[str, int, str]]]:
        done = interlock("lint", "flow.md", "--json", cwd=tmp_path)
        return done.returncode, {(Path(f["file"]).name, f["line"], f["code"]) for f in json.loads(done.stdout)}

    return lint


def test_a_fault_of_one_kind_hides_none_of_another(faults: Callable[[], tuple[int, set[tuple[str, int, str]]]]) -> None:
    code, found = faults()
    of_the_flow = {(line, what) for file, line, what in found if file == "flow.md"}
    assert code == 2
    assert of_the_flow == OF_THE_FLOW | {(5, "unknown-env")}
    assert {(line, what) for file, line, what in found if file == "child.md"} == {(4, "unknown-key"), (5, "bad-script")}


def test_a_faulty_param_is_not_said_to_be_missing_too(tmp_path: Path, interlock: Interlock) -> None:
    flow = "---\nparams: { r: { typ: string } }\nsteps:\n  - { id: m, map: { over: params.r }, run: echo }\n---\n"
    (tmp_path / "flow.md").write_text(flow, encoding="utf-8")
    assert interlock("lint", "flow.md", cwd=tmp_path).stderr.endswith("1 error, 0 warnings\n")


def test_a_faulty_configuration_is_told_beside_the_file_s_own_faults_but_blames_it_for_nothing(
    faults: Callable[[], tuple[int, set[tuple[str, int, str]]]], tmp_path: Path, interlock: Interlock
) -> None:
    (tmp_path / "interlock.toml").write_text("[run]\nfoo = 1\n[group.secrets]\n", encoding="utf-8")
    code, found = faults()
    assert code == 2
    assert {(line, what) for file, line, what in found if file == "flow.md"} == OF_THE_FLOW
    assert ("interlock.toml", 2, "unknown-key") in found
    done = interlock("run", "flow.md", cwd=tmp_path)
    assert done.returncode == 78
    assert "unknown key 'foo'" in done.stderr
    assert "unknown key 'timout'" in done.stderr
    assert not (tmp_path / ".interlock").exists()


def test_a_fault_of_the_configuration_alone_is_that_of_the_configuration(tmp_path: Path, interlock: Interlock) -> None:
    (tmp_path / "interlock.toml").write_text("[run\n", encoding="utf-8")
    (tmp_path / "flow.md").write_text("---\nsteps:\n  - { id: a, run: echo, env: [x] }\n---\n", encoding="utf-8")
    done = interlock("lint", "flow.md", cwd=tmp_path)
    assert done.returncode == 78
    assert "1 error, 0 warnings" in done.stderr


def test_runs_can_be_read_under_a_faulty_configuration_and_go_on_under_a_good_one(
    tmp_path: Path, interlock: Interlock
) -> None:
    (tmp_path / "flow.md").write_text("---\nsteps:\n  - { id: a, run: test -e open }\n---\n", encoding="utf-8")
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 1
    (tmp_path / "interlock.toml").write_text("[run]\nfoo = 1\n", encoding="utf-8")
    for verb in ("status", "list", "units", "events", "logs"):
        done = interlock(verb, *(() if verb in {"status", "list"} else ("last",)), cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "open").touch()
    refused = interlock("resume", "last", cwd=tmp_path)
    assert (refused.returncode, "unknown key 'foo'" in refused.stderr) == (78, True)
    (tmp_path / "interlock.toml").write_text("", encoding="utf-8")
    assert interlock("resume", "last", cwd=tmp_path).returncode == 0


def test_a_file_that_is_no_yaml_hides_no_fault_of_another_nor_of_the_configuration(
    tmp_path: Path, interlock: Interlock
) -> None:
    (tmp_path / "interlock.toml").write_text("[limits]\nmax_items = 0\n", encoding="utf-8")
    (tmp_path / "a.md").write_text("---\nsteps:\n  - { id: a, run: [ }\n---\n", encoding="utf-8")
    (tmp_path / "b.md").write_text("---\nsteps:\n  - { id: a, run: echo, env: [gone] }\n---\n", encoding="utf-8")
    done = interlock("lint", "a.md", "b.md", "--json", cwd=tmp_path)
    found = [(Path(one["file"]).name, one["line"], one["code"]) for one in json.loads(done.stdout)]
    assert found == [("interlock.toml", 2, "wrong-type"), ("a.md", 3, "yaml-syntax"), ("b.md", 3, "unknown-env")]
    assert done.returncode == 2
    refused = interlock("run", "a.md", cwd=tmp_path)
    assert (refused.returncode, "max_items" in refused.stderr, "not YAML" in refused.stderr) == (78, True, True)
