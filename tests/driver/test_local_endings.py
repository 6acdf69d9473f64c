from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.dispatch.shop import runs, until

from interlock.dispatch.base import Job, Started
from interlock.dispatch.python import pool
from interlock.dispatch.python.link import Ends, Link, NoWorkerError
from interlock.model.plan import Command
from interlock.model.states import Reason

Make = Callable[..., Any]

ENDINGS = """
import ctypes, os, resource, signal, sys, time

def end(context):
    how = context["item"]
    if how == "exit":
        os._exit(3)
    if how == "exit 0":
        os._exit(0)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "oom":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "close":
        os.closerange(3, 100)
        time.sleep(60)
    if how == "lie":
        for fd in range(3, 100):
            try:
                os.write(fd, b"nonsense")
            except OSError:
                pass
        return 1
    if how == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        return len(bytearray(1 << 40))
    return how

def wait(context):
    if context["item"] == "slow":
        time.sleep(60)
    return context["item"]

def stubborn(context):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)

def fork(context):
    if os.fork():
        time.sleep(0.05)
        return "parent"
    return "child"

def pid(context):
    return os.getpid()
"""

FAMILY = """
import os, subprocess, sys, time

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]

def family(context):
    folder = context["params"]
    left = subprocess.Popen(SLEEP, start_new_session=True)
    near = subprocess.Popen(SLEEP)
    with open(folder + "/pids.part", "w") as file:
        file.write(f"{os.getpid()} {os.getppid()} {left.pid} {near.pid}")
    os.rename(folder + "/pids.part", folder + "/pids")
    time.sleep(60)
"""


def read_pids(folder: Path) -> list[int]:
    until((folder / "pids").exists)
    return [int(pid) for pid in (folder / "pids").read_text(encoding="ascii").split()]


@pytest.mark.parametrize(
    ("how", "error", "exit_code"),
    [
        ("exit", "the worker process exited with status 3 before it answered", 3),
        ("exit 0", "the worker process exited with status 0 before it answered", 0),
        ("segfault", "the worker process was killed by signal 11 (SIGSEGV)", None),
        (
            "oom",
            "the worker process was killed by signal 9 (SIGKILL); perhaps the machine ran out of memory (see `dmesg`)",
            None,
        ),
    ],
)
def test_a_worker_that_dies_takes_only_its_own_unit_with_it(
    make_functions: Make, how: str, error: str, exit_code: int | None
) -> None:
    functions = make_functions(ENDINGS)
    before, dead, after = functions.run("end", "before", how, "after")
    assert (dead.status, dead.reason, dead.answered) == ("failed", Reason.KILLED, False)
    assert dead.error == error
    assert dead.exit_code == exit_code
    assert [before.output, after.output] == [b'"before"', b'"after"']
    assert functions.run("end", "again")[0].output == b'"again"'


def test_a_memory_blow_up_within_a_limit_is_an_exception(make_functions: Make) -> None:
    functions = make_functions(ENDINGS)
    [outcome] = functions.run("end", "memory")
    assert (outcome.reason, outcome.error) == (Reason.NON_ZERO_EXIT, "MemoryError")


@pytest.mark.parametrize("how", ["close", "lie"])
def test_a_function_that_breaks_its_connection_is_killed(make_functions: Make, how: str) -> None:
    functions = make_functions(ENDINGS)
    [outcome] = functions.run("end", how)
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.KILLED, False)
    assert not runs(outcome.process.pid)
    assert functions.run("end", "again")[0].output == b'"again"'


def test_a_timeout_ends_one_of_eight_and_the_others_go_on(make_functions: Make) -> None:
    functions = make_functions(ENDINGS)
    items = [f"item {number}" for number in range(7)]
    slow, *others = functions.run("wait", "slow", *items, timeout_ms=500)
    assert (slow.status, slow.reason, slow.answered) == ("failed", Reason.TIMEOUT, False)
    assert slow.error == "timed out after 500ms"
    assert not runs(slow.process.pid)
    assert [json.loads(outcome.output) for outcome in others] == items
    assert all(runs(outcome.process.pid) for outcome in others)


def test_what_ignores_sigterm_is_killed_after_the_grace(make_functions: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "KILL_AFTER_S", 0.3)
    functions = make_functions(ENDINGS)
    [outcome] = functions.run("stubborn", timeout_ms=200)
    assert outcome.reason == Reason.TIMEOUT
    assert not runs(outcome.process.pid)


def test_a_timeout_ends_children_that_left_the_group_too(make_functions: Make, tmp_path: Path) -> None:
    functions = make_functions(FAMILY)
    params = json.dumps(str(tmp_path)).encode()
    [outcome] = functions.run("family", params_json=params, timeout_ms=1_500)
    assert outcome.reason == Reason.TIMEOUT
    worker, _, left, near = read_pids(tmp_path)
    assert not [pid for pid in (worker, left, near) if runs(pid)]


def test_children_of_a_worker_that_crashed_are_ended_before_its_outcome(make_functions: Make, tmp_path: Path) -> None:
    functions = make_functions(FAMILY)
    functions.start(functions.job("family", params_json=json.dumps(str(tmp_path)).encode()), None)
    worker, _, left, near = read_pids(tmp_path)
    os.kill(worker, signal.SIGSEGV)
    [outcome] = functions.outcomes(1).values()
    assert outcome.reason == Reason.KILLED
    assert not [pid for pid in (worker, left, near) if runs(pid)]


def test_idle_units_are_ended_and_busy_or_talking_ones_are_not(make_functions: Make) -> None:
    functions = make_functions(
        "import time\ndef work(context):\n    until = time.monotonic() + 1.5\n"
        "    if context['item'] == 'idle':\n        time.sleep(60)\n"
        "    while time.monotonic() < until:\n"
        "        if context['item'] == 'talk':\n            print('.')\n            time.sleep(0.05)\n"
        "    return context['item']\n"
    )
    idle, busy, talk = functions.run("work", "idle", "busy", "talk", idle_timeout_ms=600)
    assert (idle.status, idle.reason, idle.answered) == ("failed", Reason.IDLE_TIMEOUT, False)
    assert idle.error == "no output and no processor time for 600ms"
    assert (busy.output, talk.output) == (b'"busy"', b'"talk"')


def test_cancelling_some_leaves_the_others_alone(make_functions: Make) -> None:
    functions = make_functions(ENDINGS)
    requests = functions.start(functions.job("wait"), "slow", "slow", "quick")
    functions.executor.cancel([requests[0].dispatch], 5.0)
    found = functions.outcomes(2)
    aborted = found[requests[0].dispatch]
    assert (aborted.status, aborted.reason, aborted.answered) == ("aborted", Reason.ABORTED, False)
    assert not runs(aborted.process.pid)
    assert found[requests[2].dispatch].output == b'"quick"'
    functions.executor.cancel(None, 0.0)
    [other] = functions.outcomes(1).values()
    assert (other.dispatch, other.status) == (requests[1].dispatch, "aborted")


def test_a_second_cancel_without_grace_kills_at_once(make_functions: Make) -> None:
    functions = make_functions(ENDINGS)
    [request] = functions.start(functions.job("stubborn"), None)
    functions.executor.cancel(None, 60.0)
    functions.executor.cancel(None, 0.0)
    [outcome] = functions.outcomes(1, 10.0).values()
    assert (outcome.dispatch, outcome.status) == (request.dispatch, "aborted")


def test_a_cancel_after_a_timeout_does_not_change_the_reason(make_functions: Make) -> None:
    functions = make_functions(ENDINGS)
    functions.start(functions.job("stubborn", timeout_ms=100), None)
    assert functions.executor.wait(0.5) == []
    functions.executor.cancel(None, 0.0)
    [outcome] = functions.outcomes(1).values()
    assert outcome.reason == Reason.TIMEOUT


def test_only_the_worker_answers_when_a_function_forks(make_functions: Make) -> None:
    functions = make_functions(ENDINGS)
    for _ in range(3):
        assert functions.run("fork")[0].output == b'"parent"'


def test_an_idle_worker_that_died_is_replaced_and_the_new_one_is_told(make_functions: Make) -> None:
    functions = make_functions(ENDINGS)
    job = functions.job("pid")
    [place] = functions.executor.capacity(job, 1)
    os.kill(place.pid, signal.SIGKILL)
    until(lambda: not any(map(runs, [place.pid])))
    functions.executor.start([functions.request(job, None, place)])
    [outcome] = functions.outcomes(1).values()
    assert outcome.process != place
    assert json.loads(outcome.output) == outcome.process.pid
    assert [report.process for report in functions.reports if isinstance(report, Started)] == [outcome.process]


def test_when_the_zygote_dies_its_workers_end_and_new_ones_come(make_functions: Make) -> None:
    functions = make_functions(ENDINGS + "\ndef parent(context):\n    return os.getppid()\n")
    zygote = json.loads(functions.run("parent")[0].output)
    functions.start(functions.job("wait"), "slow")
    os.kill(zygote, signal.SIGKILL)
    [outcome] = functions.outcomes(1).values()
    assert (outcome.reason, outcome.error) == (Reason.KILLED, "the worker process was lost")
    assert not runs(outcome.process.pid)
    assert functions.run("end", "again")[0].output == b'"again"'


DRIVER = """
import sys, time, uuid
from pathlib import Path
from interlock.dispatch.base import Job, Request
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes.markers import Marker
from interlock.dispatch.env.redact_base import NullRedactor, ResolvedEnv
from interlock.model.plan import PythonFunction
from interlock.driver.local import LocalExecutor

folder = Path(sys.argv[1])
executor = LocalExecutor(python=(sys.executable,), marker=Marker(uuid.uuid4().hex, "killed", 1),
    env_for=lambda job: ResolvedEnv({}, NullRedactor()), log=RunLog(folder / "log"), scratch=folder)
target = PythonFunction(module="work", function="family", file="work.py", sha256="")
job = Job(key="k", run_id="r", step_id="s", step=0, target=target, cwd=str(folder), python_path=(str(folder),),
    params_json=b'"' + str(folder).encode() + b'"')
[place] = executor.capacity(job, 1)
executor.start([Request(job=job, dispatch="d", unit_id="u", attempt=1, idempotency_key="k", process=place)])
executor.wait(60)
"""


def test_when_the_driver_is_killed_no_worker_zygote_or_child_is_left(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(FAMILY, encoding="utf-8")
    with subprocess.Popen([sys.executable, "-c", DRIVER, tmp_path]) as driver:
        try:
            pids = read_pids(tmp_path)
            assert all(map(runs, pids))
        finally:
            driver.kill()
    until(lambda: not any(map(runs, pids)))


def test_wake_ends_a_wait_and_one_not_yet_begun(make_functions: Make) -> None:
    functions = make_functions()
    functions.executor.wake()
    assert functions.executor.wait(60) == []
    signal.signal(signal.SIGALRM, lambda *_: functions.executor.wake())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert functions.executor.wait(60) == []
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_a_wait_with_nothing_to_tell_ends_in_time(make_functions: Make) -> None:
    started = time.monotonic()
    assert make_functions().executor.wait(0.05) == []
    assert 0.04 < time.monotonic() - started < 5


def test_commands_and_functions_run_side_by_side(make_functions: Make, tmp_path: Path) -> None:
    functions = make_functions(ENDINGS)
    command = Job(
        key="command",
        run_id=functions.run_id,
        step_id="other",
        step=1,
        target=Command(argv=("printf", "hello")),
        cwd=str(tmp_path),
    )
    assert functions.executor.capacity(command, 2) == [None, None]
    requests = functions.start(functions.job("wait"), "one", "two") + functions.start(command, "x", "y")
    found = functions.outcomes(4)
    assert [found[request.dispatch].output for request in requests] == [b'"one"', b'"two"', b"hello", b"hello"]


def test_closing_with_units_under_way_leaves_no_process(make_functions: Make, tmp_path: Path) -> None:
    functions = make_functions(FAMILY)
    functions.start(functions.job("family", params_json=json.dumps(str(tmp_path)).encode()), None)
    pids = read_pids(tmp_path)
    functions.executor.close()
    assert not [pid for pid in pids if runs(pid)]


def test_children_that_a_finished_unit_left_are_gone_after_close(make_functions: Make) -> None:
    functions = make_functions(
        "import subprocess\ndef leave(context):\n"
        "    return subprocess.Popen(['sleep', '60'], start_new_session=True).pid\n"
    )
    pid = json.loads(functions.run("leave")[0].output)
    assert runs(pid)
    functions.executor.close()
    assert not runs(pid)


def open_files() -> dict[int, str]:
    """What this process has open, found out without opening anything."""
    found = {}
    for number in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
        with contextlib.suppress(OSError):
            found[number] = str(Path(f"/proc/self/fd/{number}").readlink())
    return found


def test_when_descriptors_run_out_there_are_fewer_workers_and_none_is_mixed_up(
    make_functions: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    fork = Link.fork

    def telling(link: Link, count: int) -> list[Ends]:
        try:
            return fork(link, count)
        except NoWorkerError as error:
            said.append(f"{error}; open: {open_files()}; threads: {[thread.name for thread in threading.enumerate()]}")
            raise

    monkeypatch.setattr(Link, "fork", telling)
    functions = make_functions(ENDINGS)
    job = functions.job("pid")
    [first] = functions.executor.capacity(job, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
    free = [fd for fd in range(len(used) + 40) if fd not in used]
    before = open_files()
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[20], hard))
    try:
        places = functions.executor.capacity(job, 16)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert None in places
    assert len(set(places) - {None, first}) > 0, "\n".join([*said, f"before: {before}"])
    functions.executor.start([functions.request(job, None, place) for place in places])
    for outcome in functions.outcomes(16).values():
        assert json.loads(outcome.output) == outcome.process.pid
