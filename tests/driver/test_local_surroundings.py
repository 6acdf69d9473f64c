"""A unit finds its process the same, whichever worker takes it and whatever the units before did there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.dispatch.base import Job
from interlock.dispatch.env.redact_base import NullRedactor, ResolvedEnv

Make = Callable[..., Any]
PYENV = Path.home() / ".pyenv" / "versions"

WORK = """
import os, signal, sys
if os.environ.get("AT_IMPORT") is None:
    os.environ["AT_IMPORT"] = "kept"
    sys.path.append("/kept")
kept = []

def look(context):
    import resource
    return {
        "pid": os.getpid(),
        "environ": {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")},
        "shown": os.popen("echo $AT_IMPORT $LEFT $HOME $TOKEN").read(),
        "cwd": os.getcwd(),
        "path": sys.path,
        "argv": sys.argv,
        "umask": os.umask(0o22),
        "handlers": [str(signal.getsignal(number)) for number in (15, 14, 13, 10, 2)],
        "mask": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "alarm": signal.alarm(0),
        "recursion": sys.getrecursionlimit(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    }

def spoil(context):
    import resource
    kept.append(1)
    os.environ["LEFT"] = os.environ["AT_IMPORT"] = "spoilt"
    os.environ["TOKEN"] = "spoilt"
    os.environ.pop("HOME")
    if context["item"] == "replace":
        os.environ = {"LEFT": "replaced"}
    os.chdir("/")
    sys.path.insert(0, "/spoilt")
    if context["item"] == "replace":
        sys.path = ["/replaced"]
        sys.argv = ["replaced"]
    sys.argv.append("spoilt")
    os.umask(0o77)
    for number in (15, 14, 13, 10, 2):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [10, 15])
    signal.alarm(100)
    sys.setrecursionlimit(5000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout = sys.stderr = None
    return os.getpid()

def alarm(context):
    def late(*_):
        raise TimeoutError
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    return os.getpid()

def mute(context):
    import io
    print("before")
    sys.stdout = io.StringIO()
    print("lost")

def speak(context):
    print("heard", len(kept), flush=True)
"""


def told(functions: Any, **options: Any) -> Any:
    return json.loads(functions.run("look", None, **options)[0].output)


@pytest.mark.parametrize("how", ["change", "replace"])
def test_what_a_function_did_to_its_process_is_undone_before_the_next(make_functions: Make, how: str) -> None:
    functions = make_functions(WORK)
    before = told(functions)
    assert before["environ"]["AT_IMPORT"] == "kept"
    assert before["path"][-1] == "/kept"
    [spoilt] = functions.run("spoil", how)
    assert json.loads(spoilt.output) == before["pid"]
    # a hard limit that was lowered cannot be raised again
    assert told(functions) == {**before, "core": 0}


def test_an_alarm_that_a_function_forgot_does_not_reach_its_worker(make_functions: Make) -> None:
    functions = make_functions(WORK)
    pid = json.loads(functions.run("alarm")[0].output)
    assert functions.executor.wait(0.2) == []
    assert told(functions)["pid"] == pid


def test_a_secret_of_a_job_is_gone_however_a_function_handled_it(make_functions: Make) -> None:
    def env_for(job: Job) -> ResolvedEnv:
        return ResolvedEnv({"TOKEN": "of the job"} if job.env else {}, NullRedactor())

    functions = make_functions(WORK, env_for=env_for)
    before = told(functions)
    with_token = told(functions, env=("g",))
    assert with_token["environ"] == {**before["environ"], "TOKEN": "of the job"}
    functions.run("spoil", "change", env=("g",))
    assert told(functions, env=("g",)) == {**with_token, "core": 0}
    assert told(functions) == {**before, "core": 0}


def test_what_is_printed_after_a_unit_put_its_output_elsewhere_is_logged_and_globals_stay(make_functions: Make) -> None:
    functions = make_functions(WORK)
    functions.run("mute")
    [heard] = functions.run("speak")
    functions.run("spoil", "change")
    functions.run("speak")
    log = functions.log()
    assert "before\n" in log
    assert "lost" not in log
    assert heard.log is not None
    assert "heard 0\n" in log
    assert "heard 1\n" in log


@pytest.mark.parametrize("version", ["3.8", "3.13"])
def test_other_interpreters_are_put_back_too(make_functions: Make, version: str) -> None:
    found = sorted(PYENV.glob(f"{version}.*/bin/python"))
    if not found:
        pytest.skip(f"no Python {version} below {PYENV}")
    functions = make_functions(WORK, python=str(found[0]))
    before = told(functions)
    functions.run("spoil", "replace")
    assert told(functions) == {**before, "core": 0}
