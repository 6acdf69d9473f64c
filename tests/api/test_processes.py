"""What `interlock.run` returns and raises crosses to the process that asked for it."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

import interlock
from interlock.errors import ConfigError, Diagnostic, InterlockError, LeaseHeldError, UsageError, WorkflowError


def go(flow: Path) -> interlock.Result:
    return interlock.run(flow, project=flow.parent)


def test_a_pool_of_processes_gives_back_results_and_errors(tmp_path: Path) -> None:
    (tmp_path / "flow.md").write_text("---\nsteps: [{ id: a, run: 'true' }]\n---\n", encoding="utf-8")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(go, tmp_path / "flow.md").result(timeout=60).state == "completed"
        with pytest.raises(WorkflowError) as caught:
            pool.submit(go, tmp_path / "none.md").result(timeout=60)
    assert [found.message for found in caught.value.diagnostics] == ["there is no such file"]
    assert str(caught.value) == f"1 error in {tmp_path / 'none.md'}"


@pytest.mark.parametrize(
    "error",
    [
        UsageError("a-code", "a message", "a hint"),
        LeaseHeldError("a-code", "a message"),
        ConfigError((Diagnostic(file="f", line=1, column=2, code="c", message="m"),)),
    ],
)
def test_an_error_is_pickled_whole(error: InterlockError) -> None:
    error.add_note("a note")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is type(error)
    assert (str(copy), copy.args, copy.__dict__) == (str(error), error.args, error.__dict__)
    assert copy.__notes__ == error.__notes__
