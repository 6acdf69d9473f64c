from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.dispatch.processes.identity import alive
from interlock.dispatch.python.link import Ends, Interpreter, Link, NoWorkerError
from interlock.dispatch.python.worker import HEAD, JOB, UNIT
from interlock.model.events import Process

BOUND_S = 20.0
PYENV = Path.home() / ".pyenv" / "versions"


def close(ends: Ends) -> None:
    for end in (ends.socket, ends.ahead, ends.waiting):
        end.close()
    os.close(ends.out)
    os.close(ends.err)


def gone(processes: list[Process]) -> bool:
    until = time.monotonic() + BOUND_S
    while any(map(alive, processes)) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(map(alive, processes))


@pytest.fixture
def link() -> Iterator[Link]:
    link = Link(Interpreter((sys.executable,), (), {}))
    yield link
    link.close()


def test_workers_have_an_identity_when_fork_returns_and_each_leads_a_group(link: Link) -> None:
    workers = link.fork(3)
    assert len({worker.process.pid for worker in workers}) == 3
    for worker in workers:
        assert alive(worker.process)
        assert os.getpgid(worker.process.pid) == worker.process.pid
        close(worker)


def test_a_worker_ends_when_its_socket_closes_and_the_zygote_tells(link: Link) -> None:
    first, second = link.fork(2)
    close(first)
    until = time.monotonic() + BOUND_S
    ended: list[tuple[int, int]] = []
    while not ended and time.monotonic() < until:
        ended = link.ended()
    assert ended == [(first.process.pid, 0)]
    assert alive(second.process)
    close(second)


def occupy(worker: Ends, folder: Path) -> None:
    """Give the worker a unit that does not end, and wait until it has begun."""
    (folder / "work.py").write_text(
        "import time\ndef wait(context):\n    print('begun')\n    time.sleep(60)\n", encoding="utf-8"
    )
    names = ("run_id", "step_id", "params", "inputs", "feedback")
    job = {"number": 1, "module": "work", "function": "wait", "cwd": str(folder), "env": {}, "marker": ["", ""]}
    job |= {"frozen": {"file": "", "place": "", "sha256": ""}, "max_result_bytes": 100, **dict.fromkeys(names, "")}
    for kind, data in ((JOB, job), (UNIT, [1, "d", "u", 1, "k", None, None])):
        body = json.dumps(data).encode()
        worker.socket.send(HEAD.pack(kind, len(body)) + body)
    poll = select.poll()
    poll.register(worker.out, select.POLLIN)
    assert poll.poll(BOUND_S * 1_000)
    assert os.read(worker.out, 100) == b"begun\n"


def test_busy_workers_end_when_the_zygotes_socket_closes(tmp_path: Path) -> None:
    link = Link(Interpreter((sys.executable,), (str(tmp_path),), {}))
    workers = link.fork(3)
    for worker in workers:
        occupy(worker, tmp_path)
    link.close()
    assert gone([worker.process for worker in workers])
    for worker in workers:
        close(worker)


def test_closing_reaps_the_zygote_and_may_be_repeated(link: Link) -> None:
    [worker] = link.fork(1)
    zygote = link.pid
    link.close()
    link.close()
    with pytest.raises(ProcessLookupError):
        os.kill(zygote, 0)
    close(worker)


def test_a_zygote_that_was_killed_is_known_to_be_dead(link: Link) -> None:
    [worker] = link.fork(1)
    os.kill(link.pid, signal.SIGKILL)
    with pytest.raises(NoWorkerError, match="ended"):
        link.fork(1)
    # it may have been gone before the request could be sent: then its last news is still to be heard
    assert link.ended() == []
    assert link.dead
    close(worker)
    assert gone([worker.process])


def test_an_interpreter_that_is_too_old_is_named() -> None:
    path = next(map(str, PYENV.glob("3.7.*/bin/python")), "")
    if not path:
        pytest.skip(f"no Python 3.7 below {PYENV}")
    link = Link(Interpreter((path,), (), {}))
    try:
        with pytest.raises(NoWorkerError, match=r"is Python 3\.7; python: targets need 3\.8 or newer"):
            link.fork(1)
    finally:
        link.close()
