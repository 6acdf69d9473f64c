from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.dispatch.base import Started
from interlock.dispatch.processes.reaper_main import marker_of, pids
from interlock.model.plan import PythonFunction
from interlock.model.states import Reason
from interlock.testing.build import plan, step

Make = Callable[..., Any]
PYENV = Path.home() / ".pyenv" / "versions"


def test_a_function_gets_the_whole_context_and_its_value_is_the_output(make_functions: Make) -> None:
    functions = make_functions("def echo(context):\n    return context\n")
    options = {"params_json": b'{"p":1}', "inputs_json": b'{"a":[2]}', "feedback_json": b'"again"'}
    [outcome] = functions.run("echo", {"file": "x"}, **options)
    assert outcome.status == "ok"
    assert outcome.is_json
    assert json.loads(outcome.output) == {
        "params": {"p": 1},
        "item": {"file": "x"},
        "index": 0,
        "inputs": {"a": [2]},
        "feedback": "again",
        "run_id": functions.run_id,
        "step_id": "step",
        "unit_id": "step:1",
        "attempt": 1,
        "idempotency_key": "key-1",
    }


def test_a_solo_unit_has_neither_item_nor_index(make_functions: Make) -> None:
    functions = make_functions("def look(context):\n    return [context['item'], context['index']]\n")
    assert functions.run("look")[0].output == b"[null,null]"


def test_output_is_compact_with_sorted_keys_and_unicode_as_it_is(make_functions: Make) -> None:
    functions = make_functions("def give(context):\n    return {'b': (1, 2.5), 'a': 'ü'}\n")
    assert functions.run("give")[0].output == '{"a":"ü","b":[1,2.5]}'.encode()


def test_keys_of_several_types_are_no_reason_to_fail(make_functions: Make) -> None:
    functions = make_functions("def give(context):\n    return {'b': 1, 2: 3}\n")
    assert functions.run("give")[0].output == b'{"b":1,"2":3}'


def test_async_functions_are_awaited(make_functions: Make) -> None:
    functions = make_functions(
        "import asyncio\nasync def slow(context):\n    await asyncio.sleep(0)\n    return context['item'] * 2\n"
    )
    assert [outcome.output for outcome in functions.run("slow", 1, 2, 3)] == [b"2", b"4", b"6"]


def test_an_exception_is_non_zero_exit_with_its_text_and_a_traceback_in_the_log(make_functions: Make) -> None:
    functions = make_functions("def fail(context):\n    raise ValueError('no such colour: ' + context['item'])\n")
    first, second = functions.run("fail", "red", "green")
    assert (first.status, first.reason, first.answered) == ("failed", Reason.NON_ZERO_EXIT, True)
    assert first.error == "ValueError: no such colour: red"
    assert second.error == "ValueError: no such colour: green"
    assert first.log is not None
    log = functions.log()
    assert 'work.py", line 2, in fail' in log
    assert "dispatch/python/worker.py" not in log


def test_leaving_by_system_exit_fails_the_unit_and_keeps_the_worker(make_functions: Make) -> None:
    functions = make_functions(
        "import os, sys\ndef leave(context):\n    sys.exit(context['item'])\ndef pid(context):\n    return os.getpid()\n"
    )
    before = functions.run("pid")[0].output
    codes = [functions.run("leave", item)[0] for item in (3, 0, "a word")]
    assert [(code.error, code.exit_code) for code in codes] == [
        ("SystemExit: 3", 3),
        ("SystemExit: 0", 1),
        ("SystemExit: a word", 1),
    ]
    assert functions.run("pid")[0].output == before


@pytest.mark.parametrize(
    ("expression", "place"),
    [
        ("{'rows': [1, {'when': {2}}]}", "$.rows[1].when is of type set"),
        ("[1.0, float('nan')]", "$[1] is nan"),
        ("float('-inf')", "$ is -inf"),
        ("{'a': '\\ud800'}", "$.a holds a lone surrogate"),
        ("{(1, 2): 3}", "a key of $ is of type tuple"),
        ("object()", "$ is of type object"),
        ("(lambda a: a.append(a) or a)([])", "more than 64 levels of nesting"),
    ],
)
def test_a_value_that_is_not_json_is_a_parse_error_with_its_place(
    make_functions: Make, expression: str, place: str
) -> None:
    functions = make_functions(f"def give(context):\n    return {expression}\n")
    [outcome] = functions.run("give")
    assert outcome.reason == Reason.PARSE_ERROR
    assert outcome.error == f"the function returned what is not JSON: {place}"


def test_a_result_over_the_limit_is_output_too_large(make_functions: Make) -> None:
    functions = make_functions("def give(context):\n    return 'x' * context['item']\n")
    fits, too_large = functions.run("give", 998, 999, max_result_bytes=1000)
    assert fits.status == "ok"
    assert (too_large.status, too_large.reason) == ("failed", Reason.OUTPUT_TOO_LARGE)
    assert (
        too_large.error == "the function returned 1001 bytes of JSON; the limit is 1000 (max_result_bytes of [limits])"
    )


def test_large_items_and_results_pass_whole(make_functions: Make) -> None:
    functions = make_functions("def give(context):\n    return context['item'][:900000]\n")
    text = "äb" * 2_500_000
    outcomes = functions.run("give", text, text + "c", text + "d", max_result_bytes=2_000_000)
    assert {json.loads(outcome.output) for outcome in outcomes} == {text[:900_000]}


def test_a_missing_module_names_module_function_and_places(make_functions: Make) -> None:
    functions = make_functions()
    [outcome] = functions.run("go", module="not_there")
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.SPAWN_FAILED, True)
    assert outcome.error.startswith("python:not_there:go: module 'not_there' cannot be imported by ")
    assert "ModuleNotFoundError: No module named 'not_there'" in outcome.error
    assert f"looked in {functions.folder}, " in outcome.error


def test_a_missing_function_names_the_file(make_functions: Make) -> None:
    functions = make_functions("x = 1\n")
    for name in ("go", "x", "x.y"):
        [outcome] = functions.run(name)
        assert outcome.reason == Reason.SPAWN_FAILED
        assert outcome.error == f"python:work:{name}: {functions.folder}/work.py has no function {name!r}"


def test_a_module_that_fails_to_import_leaves_its_traceback_in_the_log(make_functions: Make) -> None:
    functions = make_functions("import sys\nprint('loading')\nsys.exit('no licence')\n")
    [outcome] = functions.run("go")
    assert outcome.reason == Reason.SPAWN_FAILED
    assert "SystemExit: no licence" in outcome.error
    assert 'work.py", line 3, in <module>' in functions.log()


def test_a_slow_import_counts_once_per_worker(make_functions: Make) -> None:
    functions = make_functions("import time\ntime.sleep(0.3)\ndef one(context):\n    return 1\n")
    for _ in range(4):
        assert functions.run("one")[0].output == b"1"
    assert len({report.process for report in functions.reports}) == 1


def test_a_log_that_takes_nothing_costs_no_function_its_result(make_functions: Make, tmp_path: Path) -> None:
    (tmp_path / "run.log").symlink_to("/dev/full")
    functions = make_functions("def say(context):\n    print(context['item'], end='')\n    return 1\n")
    silent, loud = functions.run("say", "", "word")
    assert [(unit.status, unit.output, unit.log) for unit in (silent, loud)] == [("ok", b"1", None)] * 2
    assert (silent.notices, loud.notices) == (
        (),
        (f"the log {tmp_path}/run.log lacks some of what was said: it could not be written: No space left on device",),
    )


def test_output_of_a_function_goes_to_the_log_and_not_to_ours(
    make_functions: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    functions = make_functions(
        "import os, sys\ndef talk(context):\n    print('said', context['item'])\n"
        "    sys.stderr.write('warned')\n    os.system('echo child')\n"
    )
    first, second = functions.run("talk", "one"), functions.run("talk", "two")
    assert capfd.readouterr() == ("", "")
    log = functions.log_path.read_bytes()
    for [outcome], word in ((first, b"said one\n"), (second, b"said two\n")):
        assert outcome.log is not None
        span = log[outcome.log.offset : outcome.log.offset + outcome.log.length]
        assert word in span
        assert b"warned" in span
        assert b"child\n" in span
        assert outcome.dispatch.encode() in span


def test_five_megabytes_of_noise_do_not_stop_a_function(make_functions: Make) -> None:
    functions = make_functions(
        "def noise(context):\n    for _ in range(5000):\n        print('x' * 1000)\n    return 7\n"
    )
    [outcome] = functions.run("noise", max_log_bytes=10_000_000)
    assert outcome.output == b"7"
    assert functions.log_path.read_bytes().count(b"x") == 5_000_000


def test_noise_over_the_limit_is_dropped_and_said(make_functions: Make) -> None:
    functions = make_functions("def noise(context):\n    print('x' * 5000000)\n    return 7\n")
    assert functions.run("noise", max_log_bytes=100_000)[0].output == b"7"
    assert functions.log_path.stat().st_size < 150_000
    assert "4900001 bytes dropped" in functions.log()


@pytest.mark.parametrize(
    "beside", ["1", json.dumps([*range(5_000)]), json.dumps([[]] * 100)], ids=["bare", "long", "deep"]
)
def test_what_one_unit_does_to_its_context_is_not_seen_by_the_next(make_functions: Make, beside: str) -> None:
    functions = make_functions(
        "def change(context):\n"
        "    params = context['params']\n"
        "    params['new'] = 1\n"
        "    params['in'][0]['seen'].append(1)\n"
        "    return [len(params), len(params['in'][0]['seen'])]\n"
    )
    job = functions.job("change", params_json=b'{"beside":%s,"in":[{"seen":[]}]}' % beside.encode())
    for _ in range(3):
        functions.start(job, None)
        assert [outcome.output for outcome in functions.outcomes(1).values()] == [b"[3,1]"]


def test_a_unit_knows_who_it_is_by_its_environment_and_runs_in_its_folder(
    make_functions: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    functions = make_functions(
        "import os\ndef look(context):\n"
        "    names = [n for n in os.environ if n.startswith('INTERLOCK_') or n == 'GIT_DIR']\n"
        "    return [os.getcwd(), {n: os.environ[n] for n in names}]\n"
    )
    (tmp_path / "below").mkdir()
    [outcome] = functions.run("look", "item", cwd=str(tmp_path / "below"))
    assert json.loads(outcome.output) == [
        str(tmp_path / "below"),
        {
            "INTERLOCK_RUN_ID": functions.run_id,
            "INTERLOCK_STEP_ID": "step",
            "INTERLOCK_UNIT_ID": "step:1",
            "INTERLOCK_ATTEMPT": "1",
            "INTERLOCK_IDEMPOTENCY_KEY": "key-1",
            "INTERLOCK_ITEM_INDEX": "0",
            "INTERLOCK_MARKER": f"{functions.run_id}:holder:1:d1",
        },
    ]


def test_a_folder_that_is_gone_is_spawn_failed(make_functions: Make) -> None:
    functions = make_functions("def one(context):\n    return 1\n")
    [outcome] = functions.run("one", cwd="/not/there")
    assert outcome.reason == Reason.SPAWN_FAILED
    assert outcome.error == "working directory /not/there: No such file or directory"


def test_our_own_files_do_not_shadow_the_standard_library(make_functions: Make) -> None:
    functions = make_functions("import secrets\ndef look(context):\n    return len(secrets.token_hex(4))\n")
    assert functions.run("look")[0].output == b"8"


def test_many_jobs_side_by_side_are_not_mixed_up(make_functions: Make) -> None:
    functions = make_functions("def give(context):\n    return [context['params'], context['item']]\n")
    expected = {}
    for turn in range(3):
        for number in range(20):
            job = functions.job("give", key=f"job-{number}", params_json=b"%d" % number)
            for request in functions.start(job, turn, turn + 100):
                expected[request.dispatch] = [number, json.loads(request.item_json or b"null")]
    found = functions.outcomes(len(expected))
    assert {dispatch: json.loads(outcome.output) for dispatch, outcome in found.items()} == expected


def test_offered_workers_are_not_offered_twice_and_come_back_when_unused(make_functions: Make) -> None:
    functions = make_functions("def one(context):\n    return 1\n")
    job, other = functions.job("one"), functions.job("one", key="other")
    first, second = functions.executor.capacity(job, 2), functions.executor.capacity(other, 2)
    assert len({place.pid for place in (*first, *second)}) == 4
    functions.executor.start([])
    assert set(functions.executor.capacity(job, 4)) == {*first, *second}


def test_the_offered_worker_does_the_work_and_is_told_only_when_it_is_another(make_functions: Make) -> None:
    functions = make_functions("import os\ndef pid(context):\n    return os.getpid()\n")
    job = functions.job("pid")
    [offered] = functions.executor.capacity(job, 1)
    functions.executor.start([functions.request(job, None, offered)])
    [outcome] = functions.outcomes(1).values()
    assert outcome.process == offered
    assert json.loads(outcome.output) == offered.pid
    assert not [report for report in functions.reports if isinstance(report, Started)]
    functions.executor.start([functions.request(job)])
    functions.outcomes(1)
    assert [report.process for report in functions.reports if isinstance(report, Started)] == [offered]


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13"])
def test_functions_run_under_another_interpreter_without_interlock(
    make_functions: Make, tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sorted(PYENV.glob(f"{version}.*/bin/python"))
    if not found:
        pytest.skip(f"no Python {version} below {PYENV}")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    subprocess.run([found[0], "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=60)
    functions = make_functions(
        "import sys, asyncio\nasync def look(context):\n    print('here')\n    await asyncio.sleep(0)\n"
        "    try:\n        import interlock\n    except ImportError:\n        return sys.version.split()[0]\n",
        python=str(tmp_path / "venv" / "bin" / "python"),
    )
    [outcome] = functions.run("look")
    assert json.loads(outcome.output).startswith(version + ".")
    assert "here" in functions.log()


def test_an_interpreter_that_is_missing_is_spawn_failed(make_functions: Make) -> None:
    functions = make_functions(python="/not/there/python")
    [outcome] = functions.run("one")
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.SPAWN_FAILED, True)
    assert outcome.error == (
        "python:work:one: cannot start a Python worker: /not/there/python: No such file or directory"
    )


def test_a_program_that_is_no_python_is_spawn_failed_with_what_it_said(make_functions: Make, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho broken install >&2\nexit 1\n", encoding="utf-8")
    fake.chmod(0o755)
    functions = make_functions(python=str(fake))
    [outcome] = functions.run("one")
    assert outcome.reason == Reason.SPAWN_FAILED
    assert outcome.error == f"python:work:one: cannot start a Python worker: {fake} ended: broken install"


def test_closing_leaves_no_process_and_may_be_repeated(make_functions: Make) -> None:
    functions = make_functions("import os\ndef pids(context):\n    return [os.getpid(), os.getppid()]\n")
    pids = {pid for outcome in functions.run("pids", 1, 2, 3) for pid in json.loads(outcome.output)}
    assert len(pids) >= 2
    functions.executor.close()
    functions.executor.close()
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]  # noqa: PTH110 - a pid, not a path of ours


def zygotes(functions: Any) -> int:
    mark = functions.run_id.encode()
    return sum(mark in marker and b"zygote" in marker for marker in map(marker_of, pids()))


def test_the_interpreter_comes_up_early_for_a_step_that_wants_it_at_once_only(make_functions: Make) -> None:
    functions = make_functions()
    function = PythonFunction(module="work", function="give", file="work.py", sha256="")
    functions.executor.prepare(chain := plan(step("a"), step("b", function)), ())
    functions.executor.prepare(chain, ("a", "b"))
    assert zygotes(functions) == 0
    functions.executor.prepare(chain, ("a",))
    until = time.monotonic() + 30
    while zygotes(functions) == 0:
        assert time.monotonic() < until
    functions.close()
    assert zygotes(functions) == 0


def test_an_interpreter_that_cannot_be_started_early_fails_the_unit_and_nothing_before(make_functions: Make) -> None:
    functions = make_functions(python="/no/such/python")
    function = PythonFunction(module="work", function="give", file="work.py", sha256="")
    functions.executor.prepare(plan(step("b", function)), ())
    assert functions.run("give")[0].reason is Reason.SPAWN_FAILED
