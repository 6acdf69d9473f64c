"""`--if-running` with processes that start at the same moment: one run is made, whoever looks when."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.waiting import until

Call = Callable[..., "subprocess.CompletedProcess[str]"]
TOGETHER = """
import sys, time, uuid
from pathlib import Path

import interlock.store.sqlite as sqlite
from interlock.cli import entry

here = Path(sys.argv.pop(1))
create_run = sqlite.SqliteStore.create_run


def together(self, *rest, **named):
    (here / f"ready-{uuid.uuid4()}").touch()
    deadline = time.monotonic() + 60
    while len(list(here.glob("ready-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return create_run(self, *rest, **named)


sqlite.SqliteStore.create_run = together
entry.main()
"""


@pytest.mark.parametrize(("answer", "code", "said"), [("fail", 5, "error: run "), ("skip", 0, "skipped: run ")])
def test_of_two_that_start_at_once_one_runs(
    flow: Callable[..., Path],
    begin: Callable[..., subprocess.Popen[str]],
    interlock: Call,
    tmp_path: Path,
    answer: str,
    code: int,
    said: str,
) -> None:
    flow("id: long, run: for i in $(seq 600); do test -e go && exit 0; sleep 0.1; done; exit 1")
    both = [
        begin(
            *("run", "flow.md", "--if-running", answer),
            program=[sys.executable, "-c", TOGETHER, str(tmp_path)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    until(lambda: any(one.poll() is not None for one in both), 60)
    (second,) = (one for one in both if one.poll() is not None)
    (first,) = (one for one in both if one is not second)
    (run,) = json.loads(interlock("list", "--json", cwd=tmp_path).stdout)
    told, _ = second.communicate(timeout=60)
    assert second.returncode == code
    assert f"{said}{run['id']}" in told
    assert "is under way" in told
    (tmp_path / "go").touch()
    first.communicate(timeout=60)
    assert first.returncode == 0
    assert len(json.loads(interlock("list", "--json", cwd=tmp_path).stdout)) == 1
