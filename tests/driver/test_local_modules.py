"""A worker loads the module that was frozen, byte for byte, or none."""

from __future__ import annotations

import json
import os
import py_compile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.dispatch.base import FrozenModule
from interlock.driver.jobs import module_hash
from interlock.model.states import Reason

Make = Callable[..., Any]
PYENV = Path.home() / ".pyenv" / "versions"

ONE = "import os\n\ndef give(context):\n    return [1, os.getpid()]\n"
TWO = ONE.replace("[1,", "[2,")


@pytest.fixture(autouse=True)
def _with_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)


def frozen(file: Path) -> FrozenModule:
    return FrozenModule(file=file.name, place=str(file), sha256=module_hash(file))


def test_what_is_written_after_the_freeze_is_not_run_and_warm_workers_go_on(make_functions: Make) -> None:
    functions = make_functions(ONE)
    job = functions.job("give", frozen=frozen(functions.folder / "work.py"))
    functions.start(job, "a")
    [warm] = functions.outcomes(1).values()
    functions.module(TWO)
    requests = functions.start(job, "b", "c")
    found = functions.outcomes(2)
    went_on, refused = (found[request.dispatch] for request in requests)
    assert json.loads(went_on.output) == json.loads(warm.output) == [1, warm.process.pid]
    assert (refused.status, refused.reason, refused.answered) == ("aborted", Reason.ABORTED, True)
    assert refused.module_changed
    assert refused.error == "module work (work.py) changed since the run began"
    # the worker that refused takes it once it is back
    functions.module(ONE)
    requests = functions.start(job, "d", "e")
    assert {json.loads(outcome.output)[0] for outcome in functions.outcomes(2).values()} == {1}


@pytest.mark.parametrize("version", ["3.8", "3.11", "3.13"])
def test_bytecode_that_only_seems_to_be_of_the_source_is_not_run(make_functions: Make, version: str) -> None:
    found = sorted(PYENV.glob(f"{version}.*/bin/python"))
    if not found:
        pytest.skip(f"no Python {version} below {PYENV}")
    functions = make_functions(TWO, python=str(found[0]))
    file = functions.folder / "work.py"
    at = file.stat().st_mtime
    functions.run("give")
    # another program's bytecode: of a source of the same size, written in the same second
    cached = next((functions.folder / "__pycache__").iterdir())
    file.write_text(ONE, encoding="utf-8")
    os.utime(file, (at, at))
    os.utime(cached, (at, at))
    [outcome] = functions.run("give", frozen=frozen(file))
    assert json.loads(outcome.output)[0] == 1


def test_bytecode_that_is_surely_of_the_source_is_used(make_functions: Make) -> None:
    functions = make_functions(ONE)
    file = functions.folder / "work.py"
    os.utime(file, (1_000_000_000, 1_000_000_000))
    told = functions.folder / "told.py"
    told.write_text(TWO, encoding="utf-8")
    # by its look it is: the times in it and of it say so
    os.utime(told, (1_000_000_000, 1_000_000_000))
    [outcome] = functions.run("give", frozen=frozen(file))
    assert json.loads(outcome.output)[0] == 1
    cached = next((functions.folder / "__pycache__").glob("work.*"))
    py_compile.compile(str(told), cfile=str(cached), dfile=str(file))
    functions.close()
    fresh = make_functions(ONE)
    os.utime(file, (1_000_000_000, 1_000_000_000))
    [outcome] = fresh.run("give", frozen=frozen(file))
    assert json.loads(outcome.output)[0] == 2


def test_a_module_that_another_one_imported_is_looked_at_too(make_functions: Make) -> None:
    functions = make_functions(ONE)
    functions.module("import work\n\ndef give(context):\n    return work.give(context)\n", name="other")
    of_one = frozen(functions.folder / "work.py")
    functions.run("give", module="other")
    functions.module(TWO)
    [outcome] = functions.run("give", frozen=of_one)
    assert outcome.module_changed


def test_another_file_that_is_found_first_is_named(make_functions: Make) -> None:
    functions = make_functions(ONE)
    below = functions.folder / "below"
    below.mkdir()
    path = (str(below), str(functions.folder))
    (below / "work.py").write_text(TWO, encoding="utf-8")
    [outcome] = functions.run("give", frozen=frozen(functions.folder / "work.py"), python_path=path)
    assert outcome.error == (
        f"module work (work.py) changed since the run began: {below}/work.py is imported in its place"
    )


def test_a_module_in_a_package_is_checked_and_is_like_any_other(make_functions: Make) -> None:
    functions = make_functions()
    package = functions.folder / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    module = package / "work.py"
    module.write_text(
        "import inspect\nfrom . import near\n\ndef give(context):\n    return [inspect.getsource(give), near.x]\n",
        encoding="utf-8",
    )
    (package / "near.py").write_text("x = 5\n", encoding="utf-8")
    options = {"module": "pack.work", "frozen": frozen(module)}
    [outcome] = functions.run("give", **options)
    assert json.loads(outcome.output) == [module.read_text(encoding="utf-8").partition("\n\n")[2], 5]


def test_a_run_that_was_frozen_after_a_change_gets_workers_of_its_own(make_functions: Make) -> None:
    functions = make_functions(ONE)
    file = functions.folder / "work.py"
    before = functions.job("give", frozen=frozen(file), key="before")
    functions.start(before, "a")
    [first] = functions.outcomes(1).values()
    functions.module(TWO)
    after = functions.job("give", frozen=frozen(file), key="after")
    requests = [*functions.start(after, "b"), *functions.start(before, "c")]
    found = functions.outcomes(2)
    second, third = (json.loads(found[request.dispatch].output) for request in requests)
    assert second[0] == 2
    assert third == json.loads(first.output)


def test_a_module_whose_import_fails_has_not_changed(make_functions: Make) -> None:
    functions = make_functions("raise ValueError('not today')\n")
    [outcome] = functions.run("give", frozen=frozen(functions.folder / "work.py"))
    assert (outcome.status, outcome.reason, outcome.module_changed) == ("failed", Reason.SPAWN_FAILED, False)
    assert "ValueError: not today" in outcome.error
