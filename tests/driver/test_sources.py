from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock.driver.compiling import load_workflow
from interlock.driver.project import ProjectPaths, open_state, project_at
from interlock.driver.sources import MAX_SCRIPT_BYTES, FileSources, git_commit
from interlock.model.canon import sha256
from interlock.plan.compile import compile_workflow
from interlock.plan.config import Config
from interlock.plan.sources import Missing, ModuleFile, ScriptFile

GIT = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]


@pytest.fixture
def paths(tmp_path: Path) -> ProjectPaths:
    root = tmp_path / "project"
    (root / "flows").mkdir(parents=True)
    return project_at(root)


@pytest.fixture
def sources(paths: ProjectPaths) -> FileSources:
    return FileSources(paths.root / "flows" / "flow.md", paths)


def write(place: Path, content: str | bytes = "") -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content.encode() if isinstance(content, str) else content)
    return place


def missing(answer: Any) -> Missing:
    assert isinstance(answer, Missing)
    return answer


def test_the_workflow_is_named_from_the_projects_root(paths: ProjectPaths, tmp_path: Path) -> None:
    assert FileSources(paths.root / "flows" / "flow.md", paths).source() == "flows/flow.md"
    assert FileSources(tmp_path / "flow.md", paths).source() == str(tmp_path / "flow.md")


def test_the_project_is_known_by_its_root_and_random_id(paths: ProjectPaths, sources: FileSources) -> None:
    assert sources.project().id == ""
    project_id = open_state(paths)
    about = paths.root.stat()
    project = sources.project()
    assert (project.root, project.device, project.inode) == (str(paths.root), about.st_dev, about.st_ino)
    assert (project.id, project.commit) == (project_id, None)


def test_the_commit_is_the_projects_whatever_git_variables_say(
    paths: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([*GIT, "init", "-q", str(paths.root)], check=True)
    assert git_commit(paths.root) is None
    subprocess.run([*GIT, "-C", str(paths.root), "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    commit = git_commit(paths.root)
    assert commit is not None
    assert len(commit) == 40


def test_without_git_there_is_no_commit(paths: ProjectPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(paths.root))
    assert git_commit(paths.root) is None


def test_a_script_is_read_relative_to_the_workflow(paths: ProjectPaths, sources: FileSources, tmp_path: Path) -> None:
    write(paths.root / "flows" / "a.sh", b"\xff\r\n").chmod(0o755)
    assert sources.script("./a.sh") == ScriptFile(path="flows/a.sh", content=b"\xff\r\n", executable=True)
    outside = write(tmp_path / "b.sh")
    assert sources.script("../../b.sh") == ScriptFile(path=str(outside), content=b"", executable=False)
    assert sources.script(str(outside)) == sources.script("../../b.sh")


def test_a_script_that_cannot_be_embedded_is_told_why(paths: ProjectPaths, sources: FileSources) -> None:
    flows = paths.root / "flows"
    assert missing(sources.script("./gone")) == Missing(
        reason="does not exist", hint=f"the path is relative to {flows}"
    )
    write(flows / "file")
    assert missing(sources.script("./file/x")).reason == "does not exist"
    assert missing(sources.script(".")).reason == "is not a file"
    os.mkfifo(flows / "pipe")
    assert missing(sources.script("./pipe")).reason == "is not a file"
    (flows / "loop").symlink_to("loop")
    assert missing(sources.script("./loop")).reason.startswith("can't be read: too many levels")
    assert missing(sources.script("a" * 300)).reason == "can't be read: file name too long"
    assert missing(sources.script("a\0b")).reason == "can't be a path: embedded null byte"
    with (flows / "big").open("wb") as stream:
        stream.truncate(MAX_SCRIPT_BYTES + 1)
    assert missing(sources.script("./big")).reason == "has 4,194,305 bytes; 4,194,304 are allowed"


def test_a_folder_is_relative_to_the_project_and_real(
    paths: ProjectPaths, sources: FileSources, tmp_path: Path
) -> None:
    (paths.root / "link").symlink_to("flows")
    assert sources.folder(".") == "."
    assert sources.folder("link") == "flows"
    assert sources.folder("flows/..") == "."
    assert sources.folder("..") == str(tmp_path)
    assert missing(sources.folder("gone")) == Missing(
        reason="does not exist", hint=f"'cwd' is relative to {paths.root}"
    )
    write(paths.root / "file")
    assert missing(sources.folder("file")).reason == "is not a folder"
    assert missing(sources.folder("a\0")).reason.startswith("can't be a path")


def program(place: Path) -> Path:
    write(place, "#!/bin/sh\n").chmod(0o755)
    return place


def test_bash_is_taken_before_sh_and_by_its_full_path(
    sources: FileSources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    monkeypatch.setenv("PATH", str(bin_))
    assert sources.shell() is None
    sh = program(bin_ / "sh")
    shell = sources.shell()
    assert shell is not None
    assert (shell.name, shell.argv) == ("sh", (str(sh), "-eu", "-c"))
    bash = program(bin_ / "bash")
    shell = sources.shell()
    assert shell is not None
    assert (shell.name, shell.argv) == ("bash", (str(bash), "-euo", "pipefail", "-c"))


def test_the_frozen_shell_notices_a_failing_pipe(sources: FileSources) -> None:
    shell = sources.shell()
    assert shell is not None
    ends = [subprocess.run([*shell.argv, text], check=False).returncode for text in ("true | true", "false | true")]
    assert ends == ([0, 1] if shell.name == "bash" else [0, 0])


def test_programs_are_found_on_path_or_by_their_path(sources: FileSources, tmp_path: Path) -> None:
    assert sources.program("/bin/sh") == "/bin/sh"
    assert missing(sources.program("no-such-program-anywhere")).reason == "was not found on PATH"
    assert missing(sources.program(str(tmp_path))).reason == "was not found on PATH"


def test_the_interpreter_is_the_configured_one_else_the_venv_else_ours(
    paths: ProjectPaths, sources: FileSources
) -> None:
    assert sources.python(()) == (sys.executable,)
    venv = program(paths.root / ".venv" / "bin" / "python")
    assert sources.python(()) == (str(venv),)
    venv.unlink()
    venv.symlink_to("gone")
    assert missing(sources.python(())) == Missing(
        reason=f"'{venv}' leads to no interpreter", hint="make the environment anew, or set 'python' below [run]"
    )
    own = program(paths.root / "tools" / "py")
    assert sources.python(("tools/py", "-X", "dev")) == (str(own), "-X", "dev")
    assert sources.python(("sh",)) != ("sh",)
    assert missing(sources.python(("tools/gone",))) == Missing(
        reason="'tools/gone' was not found", hint="mend 'python' below [run]"
    )
    assert missing(sources.python(("no-such-python",))).reason == "'no-such-python' was not found on PATH"


def test_modules_are_found_in_folders_first_and_never_imported(paths: ProjectPaths, sources: FileSources) -> None:
    flows, root = paths.root / "flows", paths.root
    boom = "raise SystemExit('imported')\n"
    write(flows / "one.py", boom)
    write(root / "one.py", "# shadowed")
    write(root / "pkg" / "__init__.py", boom)
    write(root / "pkg" / "sub.py", boom)
    write(root / "space" / "inner.py", boom)
    write(root / "json" / "mine.py", "# does not hide the real json")
    names = ["one", "pkg", "pkg.sub", "space.inner", "json", "pkg.gone", "gone", "one.sub", "space", "sys"]
    found = sources.modules(names, (sys.executable,))
    assert {name: place.file for name, place in found.items() if isinstance(place, ModuleFile)} == {
        "one": "flows/one.py",
        "pkg": "pkg/__init__.py",
        "pkg.sub": "pkg/sub.py",
        "space.inner": "space/inner.py",
        "json": str(Path(json.__file__).resolve()),
    }
    one = found["one"]
    assert isinstance(one, ModuleFile)
    assert (one.sha256, one.text) == (sha256(boom.encode()), boom.encode())
    assert missing(found["gone"]) == Missing(
        reason="was not found", hint=f"looked in {flows}, {root} and the path of {sys.executable}"
    )


def test_the_interpreter_is_asked_once_and_only_for_what_is_in_no_folder(
    paths: ProjectPaths, sources: FileSources
) -> None:
    write(paths.root / "one.py")
    counter = paths.root / "asked"
    script = program(paths.root / "py")
    script.write_text(f'#!/bin/sh\necho x >> "{counter}"\nexec "{sys.executable}" "$@"\n')
    sources.modules(["one"], (str(script),))
    assert not counter.exists()
    sources.modules(["one", "json", "email.message", "gone"], (str(script),))
    assert counter.read_text() == "x\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#!/bin/sh\necho one >&2; echo broken >&2; exit 3\n", "broken"),
        ("#!/bin/sh\nexit 3\n", "exit 3"),
        ("#!/bin/sh\necho noise\n", "Expecting value: line 1 column 1 (char 0)"),
        ("#!/no/such/interpreter\n", "[Errno 2] No such file or directory: "),
    ],
)
def test_an_interpreter_that_cannot_answer_is_told(
    sources: FileSources, tmp_path: Path, text: str, reason: str
) -> None:
    python = program(tmp_path / "py")
    python.write_text(text)
    found = missing(sources.modules(["zzz"], (str(python), "-I"))["zzz"])
    assert found.reason.startswith(f"could not be looked for with {python}: {reason}")
    assert found.hint == f"does '{python} -I -c pass' work? It is set by 'python' below [run]"


WORKFLOW = """---
steps:
  - { id: a, run: echo hello }
  - { id: b, uses: ./b.sh }
  - { id: c, uses: "python:mod:go", cwd: flows }
---
"""


def test_a_workflow_is_loaded_into_a_plan(paths: ProjectPaths) -> None:
    flow = write(paths.root / "flows" / "flow.md", WORKFLOW)
    write(paths.root / "flows" / "b.sh", "echo hi\n")
    write(paths.root / "mod.py", "def go(context): return 1\n")
    plan, diagnostics = load_workflow(flow, paths, Config())
    assert diagnostics == ()
    assert plan is not None
    assert (plan.name, plan.source, [step.cwd for step in plan.steps]) == ("flow", "flows/flow.md", [".", ".", "flows"])
    assert plan.source_sha256 == sha256(WORKFLOW.encode())
    assert plan.python_path == (str(paths.root / "flows"), str(paths.root))
    assert sorted(entry.name for entry in paths.root.iterdir()) == ["flows", "mod.py"]


def test_warnings_of_both_halves_come_with_the_plan(paths: ProjectPaths) -> None:
    text = "---\nparams: { api_token: {} }\nsteps: [{ id: a, run: x, probe: y }]\n---\n"
    plan, diagnostics = load_workflow(write(paths.root / "flow.md", text), paths, Config())
    assert plan is not None
    assert [d.code for d in diagnostics] == ["secret-param", "idle-probe"]


def test_faults_of_either_half_leave_no_plan(paths: ProjectPaths) -> None:
    bad_text = write(paths.root / "bad.md", "---\nstepz: []\n---\n")
    bad_world = write(paths.root / "flow.md", WORKFLOW)
    compiled = compile_workflow(bad_text.read_bytes(), str(bad_text))
    assert load_workflow(bad_text, paths, Config()) == (None, compiled.diagnostics)
    plan, diagnostics = load_workflow(bad_world, paths, Config())
    assert plan is None
    assert [d.code for d in diagnostics] == ["bad-script", "no-such-module"]


def test_what_cannot_be_read_is_a_diagnostic(paths: ProjectPaths) -> None:
    write(paths.root / "flow.md", b"\xff")
    write(paths.root / "file")
    os.mkfifo(paths.root / "pipe.md")
    cases = {
        "floww.md": ("no-such-file", "there is no such file", "did you mean 'flow.md'?"),
        "else/where": ("no-such-file", "there is no such file", "check the path"),
        "flows": ("not-a-file", "this is a folder, not a workflow", "name a Markdown file in it"),
        "pipe.md": (
            "not-a-file",
            "this is a pipe or a device, not a workflow",
            "save it as a Markdown file",
        ),
        "file/x": ("unreadable", "can't read the workflow: not a directory", "make the file readable"),
    }
    for name, expected in cases.items():
        plan, (found,) = load_workflow(paths.root / name, paths, Config())
        assert plan is None
        assert (found.code, found.message, found.hint) == expected
    plan, (found,) = load_workflow(paths.root / "flow.md", paths, Config())
    assert plan is None
    assert "UTF-8" in found.message


def test_a_child_workflow_is_read_beside_its_caller_and_known_by_its_real_path(
    paths: ProjectPaths, sources: FileSources
) -> None:
    flows = paths.root / "flows"
    (flows / "deep").mkdir()
    (flows / "deep" / "child.md").write_bytes(b"text")
    (flows / "deep" / "run.sh").write_bytes(b"")
    (flows / "link.md").symlink_to("deep/child.md")
    found = sources.workflow("./link.md")
    assert not isinstance(found, Missing)
    assert (found.content, found.real) == (b"text", str(flows / "deep" / "child.md"))
    assert found.file == str(flows / "link.md")
    straight = sources.workflow("./deep/child.md")
    assert not isinstance(straight, Missing)
    assert straight.real == found.real == found.sources.real()
    script = straight.sources.script("./run.sh")
    assert not isinstance(script, Missing)
    assert script.path == "flows/deep/run.sh"


def test_a_child_workflow_that_cannot_be_read_is_told_why(paths: ProjectPaths, sources: FileSources) -> None:
    flows = paths.root / "flows"
    hint = f"the path is relative to {flows}"
    assert sources.workflow("./gone.md") == Missing(reason="does not exist", hint=hint)
    (flows / "folder.md").mkdir()
    assert sources.workflow("./folder.md") == Missing(reason="is not a file", hint="name one workflow")
    (flows / "loop.md").symlink_to("loop.md")
    looped = sources.workflow("./loop.md")
    assert isinstance(looped, Missing)
    (flows / os.fsdecode(b"\xff.md")).write_bytes(b"")
    (flows / "odd.md").symlink_to(os.fsdecode(b"\xff.md"))
    assert sources.workflow("./odd.md") == Missing(
        reason="has a path that is not UTF-8", hint="rename the file or folder"
    )
