"""The example workflows run as they stand; only the engines of interlock.toml are other ones."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest
from tests.e2e.agents import KEY, MODEL, ROOT, Agent
from tests.e2e.world import World

EXAMPLES = ROOT / "examples" / "agents"


def model(world: World) -> dict[str, Any]:
    api = {"kind": "llm", "api": "openai", "base_url": f"{world.server.url}/v1"}
    return {**api, "model": MODEL, "api_key": f"${KEY}"}


def take(world: World, name: str) -> None:
    shutil.copy(EXAMPLES / name, world.folder)


def git(world: World, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=world.folder, env=world.env, check=True, capture_output=True)


def commit(world: World) -> None:
    git(world, "add", "--all")
    git(world, "commit", "--quiet", "--message", "A change")


@pytest.fixture
def branch(world: World) -> World:
    """Return a world whose repository has a branch with two changed files."""
    world.engines({"coder": model(world), "judge": model(world)}, engine="coder", judge="judge")
    take(world, "review.md")
    git(world, "init", "--quiet", "--initial-branch", "main")
    commit(world)
    git(world, "checkout", "--quiet", "-b", "work")
    for name in ("good.py", "bad name.py"):
        (world.folder / name).write_text("x = 1\n")
    commit(world)
    return world


def verdict(word: str, *problems: str) -> dict[str, Any]:
    return {"verdict": word, "findings": [{"line": 1, "problem": problem} for problem in problems]}


GOOD = {"complete": True, "missing": [], "feedback": ""}


def test_the_examples_and_their_configuration_have_no_faults(world: World) -> None:
    files = sorted(path.name for path in EXAMPLES.iterdir())
    for name in files:
        take(world, name)
    git(world, "init", "--quiet")
    commit(world)
    assert world.read("lint", *(name for name in files if name.endswith(".md"))) == []


def test_a_review_goes_over_the_changed_files_and_routes_to_the_summary(branch: World) -> None:
    branch.server.script(
        {"match": r"^\s*You are given the path", "json": verdict("pass"), "times": 2},
        {"match": r"^\s*Every review that says", "json": GOOD},
        {"match": r"^\s*All changed files passed", "text": "It sets x."},
    )
    branch.call("run", "review.md")
    states = {step["id"]: step["state"] for step in branch.status()["steps"]}
    assert (states["summary"], states["mend"]) == ("completed", "skipped")
    assert branch.artifact("summary") == "It sets x."


def test_a_rejected_review_is_asked_again_and_a_finding_routes_to_the_mending(branch: World) -> None:
    rejected = {"complete": False, "missing": ["a problem"], "feedback": "A verdict without a finding."}
    branch.server.script(
        {"match": "bad name.*A verdict without a finding", "json": verdict("fail", "x is never used")},
        {"match": r"^\s*You are given the path.*good.py", "json": verdict("pass"), "times": 2},
        {"match": r"^\s*You are given the path.*bad name", "json": verdict("fail")},
        {"match": r"^\s*Every review that says", "json": rejected},
        {"match": r"^\s*Every review that says", "json": GOOD},
        {"match": r"^\s*Some files did not pass.*x is never used", "text": "Use x."},
    )
    branch.call("run", "review.md")
    assert branch.artifact("mend") == "Use x."
    assert branch.artifact("verdict") == "fail"


def test_a_question_is_looked_at_from_several_sides_and_voted_on(world: World) -> None:
    world.engines({"coder": model(world), "judge": model(world)}, engine="coder", judge="judge")
    take(world, "research-vote.md")
    votes = [
        {"match": rf"^\s*You are one of several jurors.*index {n}", "json": "no" if n < 3 else "yes"} for n in range(5)
    ]
    finding = {"summary": "Both.", "sources": ["a book"]}
    world.server.script(
        {"match": r"^\s*List two to six", "json": ["the definition", "the history"]},
        {"match": r"^\s*Look into", "json": finding, "times": 2},
        *votes,
        {"match": r"^\s*Write a report", "text": "No, it is not."},
        {"match": r"^\s*The report states", "json": GOOD},
    )
    world.call("run", "research-vote.md", "-p", "question=Is Pluto a planet?")
    assert world.artifact("answer") == "no"
    assert world.artifact("report") == "No, it is not."
    asked = [entry["user"] for entry in world.server.calls() if "Write a report" in entry["user"]]
    assert '"answer":"no"' in asked[0]


@pytest.mark.parametrize("agent", ["claude"], indirect=True)
def test_a_task_is_implemented_until_its_tests_pass(agent: Agent, world: World) -> None:
    world.engines({"coder": world.agent(agent)}, engine="coder")
    take(world, "fix-until-green.md")
    git(world, "init", "--quiet")
    test = (
        "import unittest, sums\nclass T(unittest.TestCase):\n    def test(self):\n        assert sums.add(1, 2) == 3\n"
    )
    (world.folder / "test_sums.py").write_text(test)
    commit(world)

    def write(text: str) -> dict[str, Any]:
        return {"name": "Write", "input": {"file_path": str(world.folder / "sums.py"), "content": text}}

    world.server.script(
        {
            "match": "any:AssertionError",
            "tool": write("def add(a, b):\n    return a + b\n"),
            "text": "Mended.",
            "times": 9,
        },
        # of another length than what mends it: bytecode is told apart by size and second
        {"tool": write("def add(a, b):\n    return a - 2 * b\n"), "text": "Done.", "times": 9},
    )
    said = world.call("run", "fix-until-green.md", "-p", "task=Write sums.add")
    assert world.artifact("implement") == "Mended.", said
    assert (world.folder / "sums.py").read_text() == "def add(a, b):\n    return a + b\n"
    asked = [entry["user"] for entry in world.server.calls()]
    assert any("AssertionError" in text for text in asked)
    assert json.loads(world.call("status", "last", "--json"))["steps"][0]["loop"] == 2


@pytest.mark.parametrize("agent", ["claude"], indirect=True)
def test_findings_are_mended_side_by_side_and_only_what_passes_the_tests_is_merged(agent: Agent, world: World) -> None:
    world.engines({"coder": world.agent(agent, args=["--allowedTools", "Bash"])}, engine="coder")
    take(world, "mend-lint.md")
    git(world, "init", "--quiet", "--initial-branch", "main")
    (world.folder / "first.py").write_text("import os\nONE = 1\n")
    (world.folder / "second.py").write_text("import os\nTWO = 2\n")
    (world.folder / "lint.sh").write_text("grep -n '^import os' first.py second.py | sed 's/$/: not used/'\n")
    (world.folder / "tests.sh").write_text("grep -q TWO second.py && echo all is well\n")
    commit(world)

    def shell(command: str) -> dict[str, Any]:
        return {"name": "shell", "input": {agent.shell_input: command, "description": "mend it"}}

    world.server.script(
        {"match": "any:first.py:1", "tool": shell("sed -i 1d first.py"), "text": "Mended.", "times": 9},
        {"match": "any:second.py:1", "tool": shell("echo > second.py"), "text": "Mended.", "times": 9},
    )
    said = world.call("run", "mend-lint.md", "-p", "lint=bash lint.sh", "-p", "tests=bash tests.sh")
    made = world.artifact("mend")
    assert ([part["index"] for part in made["merged"]], [part["index"] for part in made["rejected"]]) == ([0], [1]), (
        said
    )
    assert made["conflicts"] == []
    assert "merged: 1" in world.artifact("report")

    def shown(name: str) -> str:
        asked = ["git", "show", f"{made['branch']}:{name}"]
        return subprocess.run(asked, cwd=world.folder, env=world.env, check=True, capture_output=True, text=True).stdout

    assert (shown("first.py"), shown("second.py")) == ("ONE = 1\n", "import os\nTWO = 2\n")
    assert (world.folder / "first.py").read_text() == "import os\nONE = 1\n"
