"""The house's own rules: sizes, lock files, pages that are made from tables, pages with a length."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tools import check_size, draw_states, make_configuration, make_reference

from interlock.plan.config_kinds import RUN, TEXT

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")


def test_files_and_functions_keep_their_measure() -> None:
    assert check_size.check(ROOT, check_size.EXCEPTIONS) == []


def test_an_overlong_function_is_named_with_its_place() -> None:
    text = '"""Opening."""\ndef long() -> None:\n' + "    pass\n" * 61
    assert [message for _, message in check_size.faults("a.py", text)] == ["a.py:2: long has 62 lines; at most 60"]


def test_an_overlong_file_without_a_docstring_has_two_faults() -> None:
    messages = [message for _, message in check_size.faults("a.py", "x = 1\n" * 401)]
    assert messages == [
        "a.py:1: 401 lines; at most 400: split it by subject",
        "a.py:1: no docstring at the top: say what the file is for and what it guarantees",
    ]


def test_an_exception_that_is_not_needed_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert check_size.check(tmp_path, {"src/gone.py": "was long"}) == [
        "src/gone.py: is an exception in tools/check_size.py, but needs none"
    ]


def test_the_drawn_states_are_fresh() -> None:
    assert draw_states.PAGE.read_text(encoding="utf-8") == draw_states.page(), "run tools/draw_states.py"


def test_the_reference_of_the_file_format_is_fresh() -> None:
    assert make_reference.PAGE.read_text(encoding="utf-8") == make_reference.page(), "run tools/make_reference.py"


def test_the_page_of_the_configuration_is_fresh() -> None:
    assert make_configuration.PAGE.read_text(encoding="utf-8") == make_configuration.page(), (
        "run tools/make_configuration.py"
    )


def test_a_key_of_the_configuration_without_words_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_configuration, "RUN", {**RUN, "new_key": TEXT})
    with pytest.raises(ValueError, match=r"keys without words, or words without a key: \{'new_key'\}"):
        make_configuration.page()


def test_the_reference_holds_every_key_of_the_schema() -> None:
    page = make_reference.page()
    assert [key for key in keys(json.loads(make_reference.SCHEMA.read_text())) if f"| `{key}`" not in page] == []


def keys(schema: object) -> set[str]:
    if isinstance(schema, list):
        return {key for entry in schema for key in keys(entry)}
    if not isinstance(schema, dict):
        return set()
    own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    return own | {key for entry in schema.values() for key in keys(entry)}


def name_of(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[<>=\[; ]", requirement, maxsplit=1)[0]).lower()


def names(requirements: list[str]) -> set[str]:
    return {name_of(entry) for entry in requirements}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_by_hash_and_names_no_index(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert not re.search(r"://|^-|--(?:index|extra|find)|@ ", text, re.MULTILINE)
    entries = re.findall(r"^\S.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    pinned = [entry for entry in entries if not entry.startswith("#")]
    assert pinned
    assert [entry for entry in pinned if "==" not in entry or "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_what_the_project_and_its_build_need(lock: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = names(project["project"]["dependencies"] + project["build-system"]["requires"])
    if lock == "requirements-dev.lock":
        wanted |= names(project["dependency-groups"]["dev"])
    text = (ROOT / lock).read_text(encoding="utf-8")
    locked = names(re.findall(r"^[A-Za-z0-9._-]+(?===)", text, re.MULTILINE))
    assert wanted - locked == set(), "run ./dev lock"


@pytest.mark.parametrize(("page", "below"), [("ARCHITECTURE.md", 200), ("AGENTS.md", 60)])
def test_a_page_stays_short(page: str, below: int) -> None:
    assert (ROOT / page).read_text(encoding="utf-8").count("\n") < below


def links(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [link.split("#")[0] for link in found if "://" not in link and not link.startswith("#")]


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [f"{page.name}: {link}" for page in pages for link in links(page) if not (page.parent / link).exists()]
    assert broken == []


def test_every_file_that_the_architecture_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w.-]+/[\w./-]*|\w+\.py)`", text)
    assert len(named) > 20
    in_tree = [name for name in named if not name.startswith(".interlock/")]
    assert [n for n in in_tree if not (ROOT / n).exists() and not (ROOT / "src/interlock" / n).exists()] == []


def test_dev_without_a_command_says_what_there_is() -> None:
    said = subprocess.run([ROOT / "dev"], capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert said.stderr.startswith("The project's own commands. Needs Python 3.11+ and git, nothing else.\n")
    assert "./dev demo [DIR]" in said.stderr


def test_dev_without_a_new_enough_python_names_the_next_step(tmp_path: Path) -> None:
    for tool in ("dirname", "git", "sh"):
        found = subprocess.run(["sh", "-c", f"command -v {tool}"], capture_output=True, text=True, check=True)
        (tmp_path / tool).symlink_to(found.stdout.strip())
    said = subprocess.run(
        [ROOT / "dev", "demo"], capture_output=True, text=True, check=False, env={"PATH": str(tmp_path)}
    )
    assert said.returncode == 78
    assert said.stderr == (
        "dev: no Python 3.11 or newer was found on PATH\n"
        "hint: install one, or name it: PYTHON=/path/to/python3.12 ./dev demo\n"
    )
