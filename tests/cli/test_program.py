"""The program as a whole: help, usage errors, failures in words, exit codes, completion."""

from __future__ import annotations

import ast
import importlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

import interlock as package
from interlock.cli import program
from interlock.cli.failures import explain_bug
from interlock.cli.session import Session
from interlock.errors import Diagnostic, LeaseHeldError, UsageError, WorkflowError
from interlock.version import __version__

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
NAMES = sorted(program.COMMANDS)


def command(name: str) -> click.Command:
    loaded: click.Command = importlib.import_module(f"interlock.cli.commands.{name}").command
    return loaded


@pytest.mark.parametrize("name", NAMES)
def test_every_command_s_help_shows_an_example(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert program.run([name, "--help"]) == 0
    shown = capfd.readouterr().out
    assert re.search(rf"Examples?:\n(.*\n)*?.*interlock {name}", shown)
    assert f"Usage: interlock {name}" in shown


@pytest.mark.parametrize("name", NAMES)
def test_what_may_be_left_out_stands_in_brackets(name: str) -> None:
    arguments = [param for param in command(name).params if isinstance(param, click.Argument)]
    shown = [(one.required, one.make_metavar(click.Context(command(name)))) for one in arguments]
    assert [text for required, text in shown if required is text.startswith("[")] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_option_of_a_command_is_explained(name: str) -> None:
    options = [param for param in command(name).params if isinstance(param, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_options_in_a_command_s_examples_exist(name: str) -> None:
    for line in (command(name).epilog or "").splitlines():
        for found, rest in re.findall(r"interlock ([a-z]+)(.*)", line):
            known = {flag for param in command(found).params for flag in param.opts}
            assert set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", rest)) <= known | {"--help"}


def test_help_lists_each_command_and_imports_none() -> None:
    folder = Path(program.__file__).with_name("commands")
    assert sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__") == NAMES


def test_every_command_that_a_message_names_exists() -> None:
    named: dict[str, str] = {}
    for path in Path(package.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for word in re.findall(r"(?:`|: |run )interlock ([a-z]+)", node.value):
                    named[word] = str(path)
    assert {word: path for word, path in named.items() if word not in program.COMMANDS} == {}
    assert "resume" in named or "run" in named


def test_the_version_is_told_at_once(interlock: Interlock) -> None:
    assert interlock("--version").stdout == f"interlock {__version__}\n"
    assert interlock("--project", ".", "--version").stdout == f"interlock {__version__}\n"


def test_the_version_needs_no_import_but_the_version() -> None:
    entry = Path(program.__file__).with_name("entry.py").read_text(encoding="utf-8")
    tops = [node for node in ast.parse(entry).body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(node) for node in tops] == [
        "from __future__ import annotations",
        "import gc",
        "import os",
        "import sys",
        "from interlock.version import __version__",
    ]


def test_no_arguments_show_the_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert program.run([]) == 0
    assert "Commands:" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stauts"], "error: no command 'stauts'; did you mean 'status'?\nhint: see `interlock --help`\n"),
        (["run"], "error: Missing argument 'FILE|RUN'.\nhint: see `interlock run --help`\n"),
        (
            ["run", "x.md", "-p", "novalue"],
            (
                "error: Invalid value for '-p' / '--param': 'novalue' is not of the form name=value\n"
                "hint: see `interlock run --help`\n"
            ),
        ),
        (
            ["run", "x.md", "--timeout", "soon"],
            (
                "error: Invalid value for '--timeout': 'soon' is no duration; write 500ms, 90s, 10m, 2h or 30d\n"
                "hint: see `interlock run --help`\n"
            ),
        ),
        (
            ["run", " "],
            "error: the workflow or run id is blank\nhint: give a FILE or a RUN; see `interlock list`\n",
        ),
        (
            ["status", ""],
            "error: the run id is blank\nhint: give an id, its beginning, or `last`; see `interlock list`\n",
        ),
        (
            ["resolve", "r", "u"],
            "error: say either --done or --rerun\nhint: see `interlock resolve --help`\n",
        ),
        (
            ["resolve", "r", "u", "--done", "--result", "{a}"],
            (
                "error: --result is not JSON: Expecting property name enclosed in double quotes at line 1 column 2\n"
                "hint: quote strings: --result '\"text\"'\n"
            ),
        ),
        (
            ["resume", "r", "--raise", "max_unit=3"],
            "error: no ceiling 'max_unit'\nhint: use one of max_units, max_tokens, max_cost_usd, max_duration\n",
        ),
        (
            ["resume", "r", "--raise", "max_units=many"],
            "error: max_units=many is no ceiling\nhint: write a number, such as max_units=200\n",
        ),
        (
            ["run", "flow.md", "--key", "\udcff"],
            "error: Invalid value for '--key': '\\udcff' is not UTF-8\nhint: see `interlock run --help`\n",
        ),
        (
            ["resolve", "last", "\udcff", "--rerun"],
            "error: Invalid value for 'UNIT': '\\udcff' is not UTF-8\nhint: see `interlock resolve --help`\n",
        ),
        (
            ["approve", "last", "--note", "\udcff"],
            "error: Invalid value for '-m' / '--note': '\\udcff' is not UTF-8\nhint: see `interlock approve --help`\n",
        ),
        (
            ["list", "-n", "99999999999999999999"],
            (
                "error: Invalid value for '-n' / '--limit': 99999999999999999999 is not in the range 1<=x<=1000000.\n"
                "hint: see `interlock list --help`\n"
            ),
        ),
    ],
)
def test_wrong_usage_is_told_with_a_next_step_and_exits_2(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert program.run(arguments, Session(_never)) == 2
    assert capfd.readouterr().err == message


def _never(_project: Path | None) -> Any:
    raise AssertionError("the engine is not needed to refuse this")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("x", "no run 'q'", "see `interlock list`"), 2, "error: no run 'q'\nhint: see `interlock list`\n"),
        (LeaseHeldError("x", "held by\x1b[2J pid 4"), 5, "error: held by\\x1b[2J pid 4\n"),
        (
            WorkflowError(
                (
                    Diagnostic(
                        file="a.md", line=2, column=3, code="c", message="bad", hint="mend it", source_line="ab c"
                    ),
                )
            ),
            2,
            "a.md:2:3: error: bad\n    2 | ab c\n      |   ^\nhint: mend it\n\nerror: 1 error in a.md\n",
        ),
        (PermissionError(13, "Permission denied", "/x"), 1, "error: /x: Permission denied\n"),
        (KeyboardInterrupt(), 130, "\n"),
    ],
)
def test_a_failure_is_told_in_words_and_has_its_exit_code(
    error: BaseException, code: int, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(_project: Path | None) -> Any:
        raise error

    assert program.run(["status"], Session(fail)) == code
    assert capfd.readouterr().err == message


def test_an_unforeseen_error_is_one_line_and_its_traceback_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("INTERLOCK_TRACEBACK", raising=False)
    (tmp_path / ".interlock").mkdir()
    assert explain_bug(KeyError("planted"), tmp_path) == 1
    (kept,) = (tmp_path / ".interlock").iterdir()
    assert capfd.readouterr().err == (
        f"error: internal error: KeyError: 'planted' (traceback: {kept})\n"
        "hint: set INTERLOCK_TRACEBACK=1 to see the traceback here\n"
    )
    assert "KeyError: 'planted'" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_command_that_only_looks_leaves_no_traceback_in_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("INTERLOCK_TRACEBACK", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".interlock").mkdir()

    def fail(_project: Path | None) -> Any:
        raise KeyError("planted")

    assert program.run(["status"], Session(fail)) == 1
    assert not list((tmp_path / ".interlock").iterdir())
    (kept,) = (tmp_path / "elsewhere").iterdir()
    assert f"(traceback: {kept})" in capfd.readouterr().err
    assert program.run(["abandon", "last"], Session(fail)) == 1
    assert len(list((tmp_path / ".interlock").iterdir())) == 1


def test_the_traceback_of_an_unforeseen_error_can_be_seen(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INTERLOCK_TRACEBACK", "1")

    def fail(_project: Path | None) -> Any:
        raise KeyError("planted")

    assert program.run(["status"], Session(fail)) == 1
    told = capfd.readouterr().err
    assert "Traceback (most recent call last)" in told
    assert told.endswith("error: internal error: KeyError: 'planted'\n")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    script = "from interlock.cli.entry import main; main()"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, "schema"], stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_the_program_back(shell: str, interlock: Interlock) -> None:
    script = interlock("completion", shell).stdout
    assert "_INTERLOCK_COMPLETE" in script


def test_completion_knows_the_runs(journal: Any, interlock: Interlock) -> None:
    done = interlock(
        cwd=journal.root, _INTERLOCK_COMPLETE="bash_complete", COMP_WORDS="interlock status 01", COMP_CWORD="2"
    )
    assert done.stdout.split() == ["plain,01BBB", "plain,01AAA"]


def test_completion_knows_the_commands(interlock: Interlock) -> None:
    done = interlock(_INTERLOCK_COMPLETE="bash_complete", COMP_WORDS="interlock res", COMP_CWORD="1")
    assert done.stdout.split() == ["plain,resume", "plain,resolve"]


INTERRUPTED_IMPORT = """
import os, signal, sys, time
class Press:
    def find_spec(self, name, path=None, target=None):
        if name == "interlock.cli.program":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30)
sys.meta_path.insert(0, Press())
from interlock.cli.entry import main
sys.argv = ["interlock", "list"]
main()
"""


def test_ctrl_c_while_the_program_starts_ends_it_without_a_word() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_the_package_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "interlock", "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.startswith("interlock ")


@pytest.mark.parametrize(
    "name", ["abandon", "approve", "events", "fork", "logs", "reject", "resolve", "resume", "units"]
)
def test_a_command_about_a_run_says_that_none_was_named(interlock: Interlock, name: str) -> None:
    said = interlock(name)
    assert said.returncode == 2
    assert "Missing argument 'RUN'" in said.stderr
