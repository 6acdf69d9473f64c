"""Every command of the pages does what the page says, in a folder where only the page's own files are."""

from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT, TEXT, Command, File, Shell, parts, pattern, unrun

from interlock.cli.program import COMMANDS

FOLLOWED = [page for page in PAGES if any(isinstance(part, Command) for part in parts(TEXT[page]))]
# what can't be run in a page's own folder, by its page
NOT_RUN = {
    # the gate of a change runs both
    "README.md": ["./dev demo ", "./dev test "],
    # it holds for the shell that it is typed in; the pages' shell finds the program in the same way
    "docs/tutorial.md": ['export PATH="$PWD/.venv/bin:$PATH"'],
}


@pytest.mark.parametrize("page", FOLLOWED)
def test_every_command_of_a_page_does_what_the_page_says(page: str, shell: Shell) -> None:
    if re.search(r"\bjq\b", TEXT[page]) and shutil.which("jq") is None:
        pytest.skip("its commands need jq")
    if page == "README.md":
        be_a_checkout(shell)
    for part in parts(TEXT[page]):
        if isinstance(part, File):
            (shell.folder / part.name).write_text(part.text, encoding="utf-8")
        else:
            follow(page, part, shell)


def be_a_checkout(shell: Shell) -> None:
    """Lay the shell's folder out as a checkout in which `./dev` has set everything up; small, so that it is quick."""
    shutil.copytree(ROOT / "examples", shell.folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (shell.folder / ".venv").mkdir()
    (shell.folder / ".venv" / "bin").symlink_to(shell.programs)
    done = shell.run("echo /.venv/ > .gitignore && git init -q && git add . && git commit -q -m Everything")
    assert done.returncode == 0, done.stdout


def follow(page: str, command: Command, shell: Shell) -> None:
    done = shell.run(command.text)
    place = f"{page}:{command.line}: $ {command.text}"
    # bash hands its place to the last command; an interactive shell would say 128 + the signal
    code = 128 - done.returncode if done.returncode < 0 else done.returncode
    assert code == command.exit_code, f"{place}\n{done.stdout}"
    assert "Traceback" not in done.stdout, f"{place}\n{done.stdout}"
    if command.said:
        assert re.fullmatch(pattern(command.said), done.stdout), f"{place}\n{done.stdout}"


def test_the_workflow_in_the_readme_runs(shell: Shell) -> None:
    file = next(p for p in parts(TEXT["README.md"]) if isinstance(p, File))
    (shell.folder / file.name).write_text(file.text, encoding="utf-8")
    done = shell.run(f"git init -q && git add . && interlock lint {file.name} && interlock run {file.name}")
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(f"  total: {file.text.count(chr(10))}\n")


def test_every_command_and_option_that_a_page_names_exists() -> None:
    text = "\n".join(TEXT.values())
    # a command within another one is a command of its own
    lines = text.replace("\ninterlock", " interlock").replace("$(interlock", "\ninterlock")
    named = re.findall(r"\binterlock ([a-z]+)((?: [^`\n]*)?)", lines)
    called = [(name, rest) for name, rest in named if name in COMMANDS]
    assert {name for name, _ in called} >= {"run", "resume", "status", "lint", "plan", "resolve", "abandon", "schema"}
    missing = [(name, o) for name, rest in called for o in re.findall(r" (--[a-z-]+)", rest) if o not in options(name)]
    assert missing == []


def options(name: str) -> set[str]:
    command = importlib.import_module(f"interlock.cli.commands.{name}").command
    return {option for parameter in command.params for option in parameter.opts} | {"--help"}


def test_every_page_that_teaches_holds_commands_that_are_run() -> None:
    taught = [page for page in PAGES if page.startswith(("README", "docs/guide", "docs/tutorial"))]
    assert len(taught) >= 12
    assert [page for page in taught if page not in FOLLOWED] == []


def test_commands_that_are_not_run_are_known() -> None:
    found = {page: [line for block in unrun(text) for line in block.splitlines()] for page, text in TEXT.items()}
    assert set(filter(found.get, found)) == set(NOT_RUN)
    for page, beginnings in NOT_RUN.items():
        told = zip(found[page], beginnings, strict=True)
        assert all(line.startswith(beginning) for line, beginning in told), found[page]


@pytest.mark.parametrize(
    ("said", "output", "fits"),
    [
        ("one\n", "one\n", True),
        ("one\n", "one\ntwo\n", False),
        ("one\n...\n", "one\ntwo\nthree\n", True),
        ("run ... done\n", "run 01AB done\n", True),
        ("run ... done\n", "run 01AB\ndone\n", False),
        ("a.b\n", "axb\n", False),
    ],
)
def test_expected_output_fits_as_written(said: str, output: str, fits: bool) -> None:  # noqa: FBT001 - a table's column
    assert bool(re.fullmatch(pattern(said), output)) is fits


def test_a_page_is_read_as_its_reader_would() -> None:
    page = (
        "<!-- file: a.md -->\n```markdown\n---\n---\n```\ntext\n"
        "<!-- exit: 3 -->\n```console\n$ one\nsaid\n$ two\n```\n```sh\nnot run\n```\n"
    )
    assert list(parts(page)) == [
        File("a.md", "---\n---\n"),
        Command(9, "one", "said\n", 0),
        Command(11, "two", "", 3),
    ]


def links_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("[0-9]*.md"))


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"\]\((\d{4}-[^)]+)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == links_of(folder)
