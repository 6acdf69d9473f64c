from __future__ import annotations

import base64
from typing import Any

import pytest

from interlock.errors import Diagnostic
from interlock.model.canon import sha256
from interlock.model.plan import Command, EnvGroup, Plan, PythonFunction, Script, Step
from interlock.plan.children import Resolved
from interlock.plan.compile import compile_workflow
from interlock.plan.config import Config
from interlock.plan.config_parse import parse_config
from interlock.plan.diagnose import render
from interlock.plan.resolve import resolve
from interlock.plan.sources import Missing
from interlock.testing.sources import SH, FakeSources

CONFIG = """
[run]
timeout = "20m"
idle_timeout = "5m"
[engines.fast]
kind = "llm"
api = "openai"
[env.staging]
vars = ["A"]
[env.unused]
vars = ["B"]
"""


def outcome(steps: str, *, body: str = "", config: str = CONFIG, **world: Any) -> tuple[Plan | None, list[Diagnostic]]:
    text = f"---\nsteps:\n{steps}\n---\n{body}"
    compiled = compile_workflow(text.encode(), "flow.md")
    assert compiled.workflow is not None, compiled.diagnostics
    resolved = resolve(compiled.workflow, parse_config(config.encode(), "c")[0], FakeSources(**world))
    return resolved.plan, list(resolved.diagnostics)


def planned(steps: str, **kinds: Any) -> Plan:
    plan, found = outcome(steps, **kinds)
    assert found == []
    assert plan is not None
    return plan


def faults(steps: str, **kinds: Any) -> list[tuple[str, int, str, str]]:
    plan, found = outcome(steps, **kinds)
    assert (plan is None) == any(d.severity == "error" for d in found)
    return [(d.code, d.line, d.message, d.hint) for d in found]


def only_step(steps: str, **kinds: Any) -> Step:
    (step,) = planned(steps, **kinds).steps
    return step


def test_a_shell_command_freezes_the_shell() -> None:
    plan = planned("- { id: a, run: ls | wc }")
    assert plan.steps[0].target == Command(text="ls | wc")
    assert plan.shell is not None
    assert plan.shell.argv == ("/bin/bash", "-euo", "pipefail", "-c")


def test_argv_alone_asks_for_no_shell_and_freezes_none() -> None:
    plan = planned("- { id: a, run: [ls, -l] }")
    assert plan.steps[0].target == Command(argv=("ls", "-l"))
    assert (plan.shell, plan.python, plan.python_path) == (None, (), ())


def test_only_what_is_used_is_frozen() -> None:
    plan = planned("- { id: a, run: 'true', env: [staging] }")
    assert plan.env_groups == (EnvGroup(name="staging", vars=("A",)),)


def test_configuration_lies_under_the_steps_own_settings() -> None:
    step = only_step("- { id: a, run: 'true' }")
    assert (step.timeout_ms, step.idle_timeout_ms) == (1_200_000, 300_000)
    step = only_step("- { id: a, run: 'true', timeout: none, idle_timeout: 1s }")
    assert (step.timeout_ms, step.idle_timeout_ms) == (None, 1_000)
    step = only_step("- { id: a, run: 'true' }", config="")
    assert (step.timeout_ms, step.idle_timeout_ms) == (600_000, None)


def test_a_script_is_embedded_with_its_hash_and_interpreter() -> None:
    step = only_step("- { id: a, uses: ./a.py }", scripts={"./a.py": b"print(1)\n"})
    assert isinstance(step.target, Script)
    assert base64.b64decode(step.target.content_b64) == b"print(1)\n"
    assert step.target.sha256 == sha256(b"print(1)\n")
    assert (step.target.path, step.target.interpreter) == ("a.py", ("/usr/bin/python3",))


@pytest.mark.parametrize(
    ("path", "content", "interpreter"),
    [
        ("./a.py", b"print(1)", ("/usr/bin/python3",)),
        ("./a.sh", b"echo", ("/bin/bash", "-euo", "pipefail")),
        ("./a.bash", b"echo", ("/bin/bash", "-euo", "pipefail")),
        ("./a", b"#!/bin/sh\n", ("/bin/sh",)),
        ("./a", b"#! /bin/sh -e -u\n", ("/bin/sh", "-e -u")),
        ("./a.py", b"#!/usr/bin/env python3\n", ("/usr/bin/env", "python3")),
        ("./a", b"#!/usr/bin/env -S python3 -u\n", ("/usr/bin/env", "-S python3 -u")),
        ("./a", b"\x7fELF\0\0", ()),
    ],
)
def test_a_script_is_run_by_its_first_line_else_by_its_suffix(
    path: str, content: bytes, interpreter: tuple[str, ...]
) -> None:
    step = only_step(f"- {{ id: a, uses: {path} }}", scripts={path: content})
    assert isinstance(step.target, Script)
    assert step.target.interpreter == interpreter


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (
            b"x = 1\n",
            "script './a' says nothing about the program that runs it",
            "begin it with a line such as '#!/usr/bin/env python3'",
        ),
        (b"#!\n", "script './a' has an empty '#!' line", "name the program that runs it"),
        (
            b"#!/bin/sh\r\necho\r\n",
            "script './a' has a carriage return in its '#!' line",
            "save it with LF line ends",
        ),
        (
            b"#!/opt/gone -x\n",
            "script './a' needs '/opt/gone', which is not on this machine",
            "install it, or mend the '#!' line",
        ),
        (
            b"#!/usr/bin/env -S X=1 gone -u\n",
            "script './a' needs 'gone', which is not on this machine",
            "install it, or mend the '#!' line",
        ),
    ],
)
def test_a_script_without_a_usable_interpreter_is_refused(content: bytes, message: str, hint: str) -> None:
    found = faults("- { id: a, uses: ./a }", scripts={"./a": content}, programs=["/bin/sh", "/usr/bin/env"])
    assert found == [("no-interpreter", 3, message, hint)]


def test_shell_scripts_need_their_shell() -> None:
    world = {"scripts": {"./a.sh": b"echo", "./b.bash": b"echo"}, "shell": SH, "programs": ["bash"]}
    plan = planned("- { id: a, uses: ./a.sh }\n- { id: b, uses: ./b.bash }", **world)
    assert [step.target.interpreter for step in plan.steps if isinstance(step.target, Script)] == [
        ("/bin/sh", "-eu"),
        ("/usr/bin/bash",),
    ]
    (found,) = faults("- { id: a, uses: ./a.sh }", scripts={"./a.sh": b"echo"}, shell=None, programs=[])
    assert found[:3] == ("no-interpreter", 3, "script './a.sh' needs 'sh', which was not found on PATH")


def test_a_missing_script_is_an_error_at_its_place() -> None:
    _, (found,) = outcome("- { id: a, uses: ./gone.py }")
    assert render(found) == (
        "flow.md:3:18: error: script './gone.py' does not exist\n"
        "    3 | - { id: a, uses: ./gone.py }\n"
        "      |                  ^~~~~~~~~\n"
        "hint: the path is relative to /project"
    )


def test_a_python_function_is_frozen_with_its_modules_hash() -> None:
    plan = planned("- { id: a, uses: 'python:pkg.mod:go' }", modules={"pkg.mod": b"def go(c): ...\n"})
    target = plan.steps[0].target
    assert isinstance(target, PythonFunction)
    assert (target.module, target.function, target.file) == ("pkg.mod", "go", "pkg/mod.py")
    assert (plan.python, plan.python_path) == (("/usr/bin/python3",), ("/project",))


def test_the_interpreter_is_the_configured_one() -> None:
    config = '[run]\npython = ["/opt/py", "-I"]'
    plan = planned("- { id: a, uses: 'python:m:go' }", modules={"m": b"def go(c): ..."}, config=config)
    assert plan.python == ("/opt/py", "-I")


def test_modules_and_functions_that_are_not_there_are_told_at_once() -> None:
    steps = "- { id: a, uses: 'python:m:goo' }\n- { id: b, uses: 'python:n:go' }\n- { id: c, uses: 'python:m:zzzz' }"
    assert faults(steps, modules={"m": b"async def go(c): ..."}) == [
        ("no-such-function", 3, "module 'm' has no function 'goo'", "did you mean 'go'?"),
        ("no-such-module", 4, "module 'n' was not found", "looked in /project"),
        ("no-such-function", 5, "module 'm' has no function 'zzzz'", "define it in m.py"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        b"from x import *",
        b"def __getattr__(name): ...",
        b"globals()['go'] = 1",
        b"def (",
        b"import a.b as go",
        b"from x import go",
        b"go = 1",
        b"if True:\n  class go: ...",
        b"for go in []: pass",
        b"x, go = 1, 2",
    ],
)
def test_a_function_that_may_be_there_is_not_refused(text: bytes) -> None:
    planned("- { id: a, uses: 'python:m:go' }", modules={"m": text})


def test_a_missing_interpreter_is_told_once_a_place() -> None:
    python = Missing(reason="'py9' was not found on PATH", hint="mend 'python' below [run]")
    found = faults(
        "- { id: a, uses: 'python:m:go' }\n- { id: b, uses: ./b.py }", python=python, scripts={"./b.py": b""}
    )
    assert found == [
        ("no-interpreter", 3, "the interpreter of Python functions 'py9' was not found on PATH", python.hint),
        ("no-interpreter", 4, "script './b.py' needs an interpreter: 'py9' was not found on PATH", python.hint),
    ]


def test_each_file_and_module_is_asked_for_once() -> None:
    sources = FakeSources(scripts={"./a.py": b""}, modules={"m": b"def f(c): ...", "n": b"def f(c): ..."})
    text = b"""---
steps:
- { id: a, uses: ./a.py }
- { id: b, uses: ./a.py }
- { id: c, uses: "python:m:f" }
- { id: d, uses: "python:n:f" }
- { id: e, run: "true" }
- { id: f, run: "true" }
---
"""
    compiled = compile_workflow(text, "flow.md")
    assert compiled.workflow is not None
    assert resolve(compiled.workflow, Config(), sources).plan is not None
    assert sorted(sources.asked) == ["folder .", "modules m n /usr/bin/python3", "script ./a.py", "shell"]


def test_a_host_without_a_shell_is_told() -> None:
    assert faults("- { id: a, run: 'true' }", shell=None) == [
        (
            "no-shell",
            3,
            "there is no shell on this machine: neither bash nor sh was found on PATH",
            "write the command as a list, or install bash",
        )
    ]


@pytest.mark.parametrize("text", ["a | b", "a |& b", "(a|b)", "a 'x' | b", "echo \\\\| b", "a#b | c"])
def test_pipes_are_warned_of_under_a_plain_shell(text: str) -> None:
    steps = f"- id: a\n  run: >-\n    {text}"
    (found,) = faults(steps, shell=SH)
    assert found[0] == "pipe-in-sh"
    assert found[2] == "plain 'sh' takes no notice when a command before a '|' fails"
    planned(steps)


@pytest.mark.parametrize("text", ["a || b", "echo 'a | b'", 'echo "a \\" | b"', "echo a \\| b", "true # a | b"])
def test_what_only_looks_like_a_pipe_is_not_warned_of(text: str) -> None:
    planned(f"- id: a\n  run: >-\n    {text}", shell=SH)


def test_an_unknown_env_group_is_told_with_the_nearest() -> None:
    assert faults("- { id: a, run: 'true', env: [stagin, zzzzzzzzz] }") == [
        ("unknown-env", 3, "no env group is named 'stagin'", "did you mean 'staging'?"),
        ("unknown-env", 3, "no env group is named 'zzzzzzzzz'", "use 'staging' or 'unused'"),
    ]
    ((_, _, _, hint),) = faults("- { id: a, run: 'true', env: [x] }", config="")
    assert hint == "add [env.x] to interlock.toml"


def test_a_fault_in_defaults_is_told_once() -> None:
    compiled = compile_workflow(
        b"---\ndefaults: { env: [gone] }\nsteps: [{ id: a, run: x }, { id: b, run: y }]\n---\n", "flow.md"
    )
    assert compiled.workflow is not None
    resolved = resolve(compiled.workflow, Config(), FakeSources())
    assert [(d.line, d.code) for d in resolved.diagnostics] == [(2, "unknown-env")]


def test_a_working_directory_must_exist() -> None:
    assert only_step("- { id: a, run: 'true', cwd: sub }", folders=[".", "sub"]).cwd == "sub"
    assert faults("- { id: a, run: 'true', cwd: gone }") == [
        ("bad-cwd", 3, "folder 'gone' does not exist", "'cwd' is relative to /project")
    ]


def test_a_program_that_is_not_on_path_is_a_warning() -> None:
    plan, (found,) = outcome("- { id: a, run: [jqq, .] }", programs=[])
    assert plan is not None
    assert (found.severity, found.code) == ("warning", "no-such-program")
    assert (found.message, found.hint) == (
        "program 'jqq' was not found on PATH",
        "install it, or write its full path",
    )
    planned("- { id: a, run: [./made-later, .] }", programs=[])


def test_gates_and_probes_are_resolved_like_commands() -> None:
    steps = "- { id: a, run: [x], gate: { check: test -s out }, effects: external, probe: [y] }"
    plan = planned(steps)
    step = plan.steps[0]
    assert step.gate is not None
    assert (step.gate.check, step.gate.max_loops, step.gate.each) == (Command(text="test -s out"), 1, False)
    assert step.probe == Command(argv=("y",))
    assert plan.shell is not None
    assert only_step("- { id: a, run: 'true', output: {}, gate: { max_loops: 1 } }").gate is None


def test_a_probe_without_external_effects_is_warned_of() -> None:
    assert faults("- { id: a, run: 'true', probe: 'true' }") == [
        (
            "idle-probe",
            3,
            "the probe of 'a' is never asked: its effects are not external",
            "add 'effects: external', or remove 'probe'",
        )
    ]


@pytest.mark.parametrize(
    ("steps", "message", "hint"),
    [
        (
            "- { id: a, uses: scripts/x }",
            "this version runs prompts, commands, scripts, Python functions and child workflows; step 'a' uses a library asset",
            "write './scripts/x' if it is a script beside the workflow",
        ),
    ],
)
def test_what_this_version_lacks_gets_one_error(steps: str, message: str, hint: str) -> None:
    workflows = {"child.md": "---\nsteps: [{ id: x, run: 'true' }]\n---\n"}
    assert faults(steps, workflows=workflows) == [("not-supported-yet", 3, message, hint)]


def test_a_model_api_can_not_work_in_a_worktree_unless_the_default_just_passes_it_by() -> None:
    body = "---\nsteps:\n{}\n---\n## a\nSay.\n"
    own = body.format("  - { id: a, engine: fast, isolation: worktree }")
    config = '[engines.fast]\nkind = "llm"\napi = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n'
    resolved = _resolved(own, config)
    (found,) = resolved.diagnostics
    assert (found.code, found.line) == ("no-worktree", 3)
    assert found.message == "step 'a' can't work in a worktree: engine 'fast' is a model API and changes no files"
    passed = _resolved(
        own.replace(", isolation: worktree", "").replace("steps:", "defaults: { isolation: worktree }\nsteps:"), config
    )
    assert passed.plan is not None
    assert (passed.plan.steps[0].isolation, passed.plan.repository) == ("none", None)


def test_a_folder_outside_of_the_repository_has_no_worktree() -> None:
    steps = "---\nsteps:\n  - { id: a, run: 'true', cwd: /elsewhere, isolation: worktree }\n---\n"
    (found,) = _resolved(steps, "", folders=("/elsewhere",)).diagnostics
    assert (found.code, found.message) == (
        "cwd-outside",
        "'cwd' of step 'a' lies outside of the repository: '/elsewhere'",
    )


def _resolved(text: str, config: str, folders: tuple[str, ...] = (".",)) -> Resolved:
    compiled = compile_workflow(text.encode(), "flow.md")
    assert compiled.workflow is not None, compiled.diagnostics
    return resolve(compiled.workflow, parse_config(config.encode(), "interlock.toml")[0], FakeSources(folders=folders))


def test_resources_do_nothing_here() -> None:
    ((code, _, message, _),) = faults("- { id: a, run: 'true', resources: { cpus: 2 } }")
    assert (code, message) == ("no-effect", "'resources' does nothing on the local machine")


def test_a_plan_over_its_limits_is_a_diagnostic() -> None:
    long = "x" * 262_000
    steps = "\n".join(f"- {{ id: s{i}, run: echo }}" for i in range(2))
    plan, found = outcome(steps)
    assert plan is not None
    assert found == []
    big = "\n".join(f"- {{ id: s{i}, uses: ./a }}" for i in range(256))
    plan, found = outcome(big, scripts={"./a": b"#!/bin/sh\n" + long.encode()})
    assert plan is None
    assert [(d.code, d.line) for d in found] == [("scripts-too-large", 1)]
