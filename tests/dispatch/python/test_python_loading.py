"""A frozen module that cannot be had any more has changed, however it is missed."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest

from interlock.dispatch.python.loading import ChangedError, Frozen
from interlock.model import canon


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module in a package of its own, found by a path that only this test has."""
    for name in ("boxed", "boxed.work"):
        # to be forgotten after the test
        monkeypatch.setitem(sys.modules, name, sys)
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "boxed"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "work.py").write_text("x = 1\n", encoding="utf-8")
    return package / "work.py"


def frozen(module: Path) -> Frozen:
    return Frozen(
        "boxed.work", {"file": "boxed/work.py", "place": str(module), "sha256": canon.sha256(module.read_bytes())}
    )


def refusal(of: Frozen) -> str:
    with pytest.raises(ChangedError) as caught:
        of.load()
    return str(caught.value)


GONE = "module boxed.work (boxed/work.py) cannot be read: No such file or directory"


def test_one_that_is_gone_has_changed(module: Path) -> None:
    of = frozen(module)
    module.unlink()
    assert refusal(of) == GONE


def test_one_that_is_gone_with_its_package_has_changed(module: Path) -> None:
    of = frozen(module)
    shutil.rmtree(module.parent)
    assert refusal(of) == GONE


def test_one_that_another_module_imported_before_it_was_gone_has_changed(module: Path) -> None:
    of = frozen(module)
    importlib.import_module("boxed.work")
    module.unlink()
    assert refusal(of) == GONE


def test_one_that_misses_a_module_of_its_own_has_not_changed(module: Path) -> None:
    module.write_text("import no_such_module_of_anybody\n", encoding="utf-8")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_of_anybody"):
        frozen(module).load()


def test_one_that_is_as_it_was_is_loaded(module: Path) -> None:
    assert frozen(module).load().x == 1
