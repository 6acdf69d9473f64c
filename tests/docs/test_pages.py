"""Every command of the pages does what the page says, in a folder where only the page's own files are."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, Command, File, Shell, parts, pattern

from interlock.cli.program import COMMANDS

GUIDES = [
    f"docs/guide-{about}.md"
    for about in ("engines", "rubrics", "budgets", "secrets", "forks", "export", "testing-workflows")
]
PAGES = ["README.md", "docs/tutorial.md", "docs/guide.md", *GUIDES]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_does_what_the_page_says(page: str, shell: Shell) -> None:
    for part in parts((ROOT / page).read_text(encoding="utf-8")):
        if isinstance(part, File):
            (shell.folder / part.name).write_text(part.text, encoding="utf-8")
        else:
            follow(page, part, shell)


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
    file = next(p for p in parts((ROOT / "README.md").read_text(encoding="utf-8")) if isinstance(p, File))
    (shell.folder / file.name).write_text(file.text, encoding="utf-8")
    done = shell.run(f"git init -q && git add . && interlock lint {file.name} && interlock run {file.name}")
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(f"  total: {file.text.count(chr(10))}\n")


def test_every_command_and_option_that_a_page_names_exists() -> None:
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in [*PAGES, "docs/promises.md"])
    named = re.findall(r"\binterlock ([a-z]+)((?: [^`\n]*)?)", text.replace("\ninterlock", " interlock"))
    called = [(name, rest) for name, rest in named if name in COMMANDS]
    assert {name for name, _ in called} >= {"run", "resume", "status", "lint", "plan", "resolve", "abandon", "schema"}
    missing = [(name, o) for name, rest in called for o in re.findall(r" (--[a-z-]+)", rest) if o not in options(name)]
    assert missing == []


def options(name: str) -> set[str]:
    command = importlib.import_module(f"interlock.cli.commands.{name}").command
    return {option for parameter in command.params for option in parameter.opts} | {"--help"}


def test_the_pages_hold_commands() -> None:
    assert [
        page for page in PAGES[1:] if not any(isinstance(p, Command) for p in parts((ROOT / page).read_text()))
    ] == []


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
