from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.dispatch.shop import Shop

from interlock.dispatch.base import Job, Outcome
from interlock.dispatch.env.clean import clean
from interlock.dispatch.env.redact_base import EnvUnresolvedError, NullRedactor, ResolvedEnv
from interlock.dispatch.logs.reading import read_log
from interlock.model.plan import PythonFunction, Script
from interlock.model.states import Reason


def _env(outcome: Outcome) -> dict[str, str]:
    pairs = (entry.partition(b"=") for entry in outcome.output.split(b"\0") if entry)
    return {name.decode(): value.decode() for name, _, value in pairs}


def _seen(shop: Shop, **job: Any) -> dict[str, str]:
    return _env(shop.run("env -0", **job))


def test_a_map_unit_learns_all_about_itself(shop: Shop) -> None:
    job = shop.job(
        'env -0; printf "CONTEXT="; cat "$INTERLOCK_CONTEXT"',
        params_json=b'{"base":"main","n":1.5,"list":["a b",1],"flag":true,"gone":null}',
        inputs_json='{"steps.a.output":{"ä":1}}'.encode(),
        feedback_json=b'{"text":"again"}',
    )
    request = shop.request(
        job, unit_id="step:0011223344556677", attempt=3, idempotency_key="k1", item_json=b'{"path":"x y"}', index=4
    )
    shop.runner.start(request)
    seen = _env(shop.outcome(request))
    assert {name: value for name, value in seen.items() if name.startswith("INTERLOCK_")} == {
        "INTERLOCK_ATTEMPT": "3",
        "INTERLOCK_CONTEXT": seen["INTERLOCK_CONTEXT"],
        "INTERLOCK_IDEMPOTENCY_KEY": "k1",
        "INTERLOCK_ITEM": '{"path":"x y"}',
        "INTERLOCK_ITEM_INDEX": "4",
        "INTERLOCK_MARKER": shop.marker.value(request.dispatch),
        "INTERLOCK_PARAM_BASE": "main",
        "INTERLOCK_PARAM_FLAG": "true",
        "INTERLOCK_PARAM_GONE": "null",
        "INTERLOCK_PARAM_LIST": '["a b",1]',
        "INTERLOCK_PARAM_N": "1.5",
        "INTERLOCK_RUN_ID": shop.marker.run_id,
        "INTERLOCK_STEP_ID": "step",
        "INTERLOCK_UNIT_ID": "step:0011223344556677",
    }
    assert json.loads(seen["CONTEXT"]) == {
        "params": {"base": "main", "n": 1.5, "list": ["a b", 1], "flag": True, "gone": None},
        "item": {"path": "x y"},
        "index": 4,
        "inputs": {"steps.a.output": {"ä": 1}},
        "feedback": {"text": "again"},
    }


def test_a_solo_unit_has_no_item(shop: Shop) -> None:
    seen = _seen(shop)
    assert not {"INTERLOCK_ITEM", "INTERLOCK_ITEM_INDEX"} & set(seen)
    context = json.loads(shop.run('cat "$INTERLOCK_CONTEXT"').output)
    assert context == {"params": {}, "item": None, "index": None, "inputs": {}, "feedback": None}


def test_a_checks_context_holds_the_artifact(shop: Shop) -> None:
    outcome = shop.run('cat "$INTERLOCK_CONTEXT"', artifact_json=b'{"a":[1]}')
    assert json.loads(outcome.output)["artifact"] == {"a": [1]}


def test_a_string_item_is_raw_and_an_empty_one_is_there(shop: Shop) -> None:
    job = shop.job('printf "%s|" "$INTERLOCK_ITEM"')
    items = ['"a \\"quoted\\"\\nline"', '""', '"ü"', "null", "[1]"]
    requests = [shop.request(job, index=n, item_json=text.encode()) for n, text in enumerate(items)]
    for request in requests:
        shop.runner.start(request)
    assert [shop.outcome(request).output.decode() for request in requests] == [
        'a "quoted"\nline|',
        "|",
        "ü|",
        "null|",
        "[1]|",
    ]


@pytest.mark.parametrize(("size", "there"), [(65_536, True), (65_537, False)])
def test_above_64_kib_a_value_stands_in_the_file_only(shop: Shop, size: int, there: bool) -> None:  # noqa: FBT001 - a case
    text = "x" * size
    job = shop.job('env -0; printf "CONTEXT="; cat "$INTERLOCK_CONTEXT"', params_json=json.dumps({"p": text}).encode())
    request = shop.request(job, item_json=json.dumps(text).encode(), index=0)
    shop.runner.start(request)
    seen = _env(shop.outcome(request))
    assert ("INTERLOCK_ITEM" in seen, "INTERLOCK_PARAM_P" in seen) == (there, there)
    context = json.loads(seen["CONTEXT"])
    assert context["item"] == context["params"]["p"] == text


def test_a_value_with_a_nul_stands_in_the_file_only(shop: Shop) -> None:
    job = shop.job('env -0; printf "CONTEXT="; cat "$INTERLOCK_CONTEXT"', params_json=b'{"p":"a\\u0000b"}')
    request = shop.request(job, item_json=b'"a\\u0000b"', index=0)
    shop.runner.start(request)
    seen = _env(shop.outcome(request))
    assert not {"INTERLOCK_ITEM", "INTERLOCK_PARAM_P"} & set(seen)
    assert json.loads(seen["CONTEXT"])["item"] == "a\0b"


def test_the_context_file_is_for_us_alone(shop: Shop) -> None:
    outcome = shop.run('stat -c "%a %a" "$INTERLOCK_CONTEXT" "$(dirname "$INTERLOCK_CONTEXT")"')
    assert outcome.output.split() == [b"600", b"600", b"700", b"700"]


def test_children_get_the_users_environment_without_what_would_mislead_them(
    open_shop: Callable[..., Shop],
) -> None:
    environ = {
        "PATH": "/usr/bin:/bin",
        "MINE": "ü",
        "GIT_DIR": "/elsewhere/.git",
        "GIT_INDEX_FILE": "/elsewhere/index",
        "GIT_AUTHOR_NAME": "kept",
        "CLAUDECODE": "1",
        "CODEX_SANDBOX": "seatbelt",
        "INTERLOCK_STEP_ID": "outer",
        "INTERLOCK_PARAM_X": "outer",
        "OLDPWD": "/elsewhere",
        "PWD": "/elsewhere",
    }
    shop = open_shop(environ=environ)
    seen = _seen(shop)
    ours = {name: value for name, value in seen.items() if not name.startswith("INTERLOCK_")}
    assert ours.pop("_", None) is not None
    ours.pop("SHLVL")
    assert ours == {"PATH": "/usr/bin:/bin", "MINE": "ü", "GIT_AUTHOR_NAME": "kept", "PWD": str(shop.folder)}
    assert seen["INTERLOCK_STEP_ID"] == "step"
    assert "INTERLOCK_PARAM_X" not in seen


def test_undecodable_variables_are_handed_on_byte_for_byte() -> None:
    assert clean({"A": "\udcff"}) == {b"A": b"\xff"}


def test_env_values_reach_the_child_and_their_names_the_audit_once(shop: Shop) -> None:
    shop.env_for = lambda _: ResolvedEnv(
        {"TOKEN": "s3cret", "PATH": "/usr/bin:/bin"}, NullRedactor(), ("TOKEN",), ("w",)
    )
    job = shop.job('echo "$TOKEN $PATH"')
    requests = [shop.request(job) for _ in range(3)]
    for request in requests:
        shop.runner.start(request)
    assert {shop.outcome(request).output for request in requests} == {b"s3cret /usr/bin:/bin\n"}
    assert [(audit.step, audit.names, audit.warnings) for audit in shop.audits()] == [(3, ("TOKEN",), ("w",))]


def test_an_env_that_cannot_be_resolved_starts_nothing(shop: Shop) -> None:
    def unresolved(_: Job) -> ResolvedEnv:
        raise EnvUnresolvedError("env-unresolved", "variable `X` of `env.a` is not set", "set it")

    shop.env_for = unresolved
    outcome = shop.run("touch ran")
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.ENV_UNRESOLVED, True)
    assert outcome.error == "variable `X` of `env.a` is not set"
    assert not (shop.folder / "ran").exists()


class _Stars:
    """A redactor of one value that holds back everything until the end, the worst a stream redactor may do."""

    def __init__(self) -> None:
        self._held = b""

    def stream(self) -> _Stars:
        return _Stars()

    def feed(self, data: bytes, /) -> bytes:
        self._held += data
        return b""

    def flush(self) -> bytes:
        return self.text(self._held)

    def text(self, data: bytes, /) -> bytes:
        return data.replace(b"s3cret", b"*")

    json = text


def test_values_leave_neither_by_result_nor_by_error_nor_by_log(shop: Shop) -> None:
    shop.env_for = lambda _: ResolvedEnv({"TOKEN": "s3cret"}, _Stars())
    good = shop.run('printf s3; sleep 0.1; echo "cret $TOKEN"')
    bad = shop.run('echo "no $TOKEN" >&2; exit 1')
    assert good.output == b"* *\n"
    assert bad.error == "exit code 1: no *"
    assert [frame.data for frame in read_log(shop.folder / "run.log")] == [b"* *\n", b"no *\n"]


def _script(text: str, *interpreter: str, name: str = "tools/say.sh", digest: str | None = None) -> Script:
    content = text.encode()
    return Script(
        path=name,
        sha256=digest or "sha256:" + hashlib.sha256(content).hexdigest(),
        content_b64=base64.b64encode(content).decode(),
        interpreter=interpreter,
    )


def test_a_script_runs_from_its_embedded_bytes_with_its_interpreter(shop: Shop) -> None:
    outcome = shop.run(_script('printf "%s $0" "$INTERLOCK_STEP_ID"', "bash"))
    assert outcome.output.startswith(b"step /")
    assert outcome.output.endswith(b"-say.sh")


def test_a_script_without_an_interpreter_is_executed_itself(shop: Shop) -> None:
    assert shop.run(_script("#!/bin/sh\necho direct\n")).output == b"direct\n"


def test_a_script_whose_bytes_miss_their_hash_is_not_run(shop: Shop) -> None:
    outcome = shop.run(_script("echo bad", "sh", digest="sha256:" + "0" * 64))
    assert (outcome.reason, outcome.output) == (Reason.SPAWN_FAILED, b"")
    assert outcome.error == "the embedded bytes of `tools/say.sh` do not match their hash"


def test_a_python_function_is_not_for_this_runner(shop: Shop) -> None:
    outcome = shop.run(PythonFunction(module="m", function="f", file="m.py", sha256="sha256:0"))
    assert outcome.reason is Reason.SPAWN_FAILED


def test_a_disk_that_is_full_before_the_start_starts_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", b"/somewhere/1.json")

    monkeypatch.setattr("interlock.dispatch.commands.context_files.ContextFiles.put", full)
    before = shop.run("touch ran")
    assert (before.reason, before.answered) == (Reason.DISK_FULL, True)
    assert before.error == "`/somewhere/1.json` could not be written: No space left on device"
    assert not Path(shop.folder / "ran").exists()


UNWRITTEN = "the log {}/run.log lacks some of what was said: it could not be written: No space left on device"


@pytest.mark.parametrize(("code", "status"), [(0, "ok"), (7, "failed")])
def test_a_log_that_takes_nothing_ends_nobody_s_work(
    open_shop: Callable[[], Shop], tmp_path: Path, code: int, status: str
) -> None:
    (tmp_path / "run.log").symlink_to("/dev/full")
    shop = open_shop()
    # more than a log holds back, and longer than it holds anything back
    outcome = shop.run(f"head -c 200000 /dev/zero | tr '\\0' x; sleep 0.3; echo end; exit {code}")
    assert (outcome.status, outcome.exit_code, outcome.answered) == (status, code, True)
    assert outcome.output == (b"" if code else b"x" * 200_000 + b"end\n")
    assert (outcome.log, outcome.notices) == (None, (UNWRITTEN.format(tmp_path),))


def test_attempts_in_one_thread_each_get_a_path_of_their_own(shop: Shop) -> None:
    paths = {shop.run('printf "$INTERLOCK_CONTEXT"').output for _ in range(3)}
    assert len(paths) == 3


@pytest.mark.parametrize(
    "mischief",
    [
        "true",
        'rm "$INTERLOCK_CONTEXT"',
        'chmod 000 "$INTERLOCK_CONTEXT"',
        'rm "$INTERLOCK_CONTEXT"; mkfifo "$INTERLOCK_CONTEXT"',
        'rm "$INTERLOCK_CONTEXT"; mkdir "$INTERLOCK_CONTEXT"',
        'mv "$INTERLOCK_CONTEXT" kept; ln -s kept "$INTERLOCK_CONTEXT"',
        'ln "$INTERLOCK_CONTEXT" kept',
        'head -c 100000 /dev/zero >> "$INTERLOCK_CONTEXT"',
    ],
)
def test_whatever_a_child_does_to_its_context_the_next_one_gets_its_own(shop: Shop, mischief: str) -> None:
    assert shop.run(mischief, params_json=b'{"first":"a long value that is not in the second"}').status == "ok"
    kept = (shop.folder / "kept").read_bytes() if (shop.folder / "kept").exists() else None
    outcome = shop.run('cat "$INTERLOCK_CONTEXT"', params_json=b'{"n":2}')
    assert json.loads(outcome.output)["params"] == {"n": 2}
    if kept is not None:
        assert (shop.folder / "kept").read_bytes() == kept


def test_what_a_killed_driver_left_in_the_scratch_folder_is_removed_by_the_next(shop: Shop) -> None:
    old = shop.folder / "scratch" / "contexts-dead-1"
    old.mkdir(parents=True)
    (old / "1.json").write_text("{}")
    shop.run("true")
    assert not old.exists()
