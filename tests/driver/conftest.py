from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.driver.desk import Desk, real_plan

from interlock.dispatch.base import Job, Outcome, Report, Request
from interlock.dispatch.env.redact_base import NullRedactor, ResolvedEnv
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes.markers import Marker
from interlock.driver.local import LocalExecutor
from interlock.model import canon
from interlock.model.events import Process
from interlock.model.plan import PythonFunction, Step

BOUND_S = 30.0


class Functions:
    """A LocalExecutor, and Python functions to run in it."""

    def __init__(self, folder: Path, python: str, env_for: Callable[[Job], ResolvedEnv]) -> None:
        self.folder = folder
        self.run_id = uuid.uuid4().hex
        self.log_path = folder / "run.log"
        self._log = RunLog(self.log_path)
        self.executor = LocalExecutor(
            python=(python,),
            env_for=env_for,
            # by its marker a process may be killed, also by tests that run at the same time on this machine
            marker=Marker(self.run_id, "holder", 1),
            log=self._log,
            scratch=folder,
        )
        self._count = 0
        self.reports: list[Report] = []

    def module(self, text: str, name: str = "work") -> None:
        (self.folder / f"{name}.py").write_text(text, encoding="utf-8")

    def job(self, function: str, module: str = "work", **options: Any) -> Job:
        target = PythonFunction(module=module, function=function, file=f"{module}.py", sha256="")
        options.setdefault("cwd", str(self.folder))
        options.setdefault("key", f"{module}:{function}:{options}")
        return Job(
            run_id=self.run_id, step_id="step", step=0, target=target, **{"python_path": (str(self.folder),), **options}
        )

    def request(self, job: Job, item: Any = None, process: Process | None = None, *, ahead: bool = False) -> Request:
        self._count += 1
        return Request(
            job=job,
            dispatch=f"d{self._count}",
            unit_id=f"step:{self._count}",
            attempt=1,
            idempotency_key=f"key-{self._count}",
            item_json=None if item is None else canon.dumps(item),
            index=None if item is None else self._count - 1,
            process=process,
            ahead=ahead,
        )

    def start(self, job: Job, *items: Any) -> list[Request]:
        places = self.executor.capacity(job, len(items))
        requests = [self.request(job, item, place) for item, place in zip(items, places, strict=True)]
        self.executor.start(requests)
        return requests

    def outcomes(self, count: int, bound_s: float = BOUND_S) -> dict[str, Outcome]:
        """Wait for so many outcomes."""
        until = time.monotonic() + bound_s
        found: dict[str, Outcome] = {}
        while len(found) < count:
            left = until - time.monotonic()
            assert left > 0, f"{count} outcomes within {bound_s} s, got {found}"
            for report in self.executor.wait(left):
                self.reports.append(report)
                if isinstance(report, Outcome):
                    assert report.dispatch not in found
                    found[report.dispatch] = report
        return found

    def run(self, function: str, *items: Any, **options: Any) -> list[Outcome]:
        """Run one unit per item; their outcomes in order."""
        requests = self.start(self.job(function, **options), *(items or (None,)))
        found = self.outcomes(len(requests))
        return [found[request.dispatch] for request in requests]

    def log(self) -> str:
        return self.log_path.read_bytes().decode(errors="replace")

    def close(self) -> None:
        self.executor.close()
        self._log.close()


@pytest.fixture
def make_functions(tmp_path: Path) -> Iterator[Callable[..., Functions]]:
    made: list[Functions] = []

    def make(
        text: str = "",
        python: str = sys.executable,
        env_for: Callable[[Job], ResolvedEnv] = lambda _job: ResolvedEnv({}, NullRedactor()),
    ) -> Functions:
        functions = Functions(tmp_path, python, env_for)
        made.append(functions)
        functions.module(text)
        return functions

    yield make
    for functions in made:
        functions.close()


@pytest.fixture
def desks(tmp_path: Path) -> Iterator[Any]:
    made: list[Desk] = []

    def make(*steps: Step, params: dict[str, Any] | None = None, **settings: Any) -> Desk:
        made.append(Desk(tmp_path, real_plan(tmp_path, *steps, **settings), params or {"items": ["a", "b", "c"]}))
        return made[-1]

    yield make
    for desk in made:
        desk.close()
