"""What must not leave with an export: no spelling of a secret param's value, and nothing that it can be guessed from."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.export.files import export, lines_of, new_run, say
from tests.store import builders as b

from interlock.dispatch.logs.reading import read_log
from interlock.driver.export.exporting import Exported
from interlock.driver.export.importing import open_export
from interlock.driver.export.scrubbing import RunSecrets, Scrubber, secrets_of
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.states import RunState
from interlock.store.sqlite import SqliteStore

VALUE = 'sw/ord "fïsh" of 7 seas'
PIN = "4711"
DEFAULT = "never-changed-default"
INNER = "default-of-a-child-plan"
PLAN = canon.dumps(
    {
        "params": [
            {"name": "token", "secret": True, "default_json": json.dumps(DEFAULT)},
            {"name": "pin", "secret": True},
            {"name": "who"},
        ],
        "source_sha256": "sha256:" + "a" * 64,
        "steps": [
            {"id": "w", "text": f"echo {DEFAULT}"},
            {"plan": {"params": [{"name": "key", "secret": True, "default_json": json.dumps(INNER)}]}},
        ],
    }
)
PARAMS = canon.dumps({"token": VALUE, "pin": PIN, "who": "ann"})


def spellings(value: str) -> Iterator[bytes]:
    raw = value.encode()
    yield raw
    yield json.dumps(value)[1:-1].encode()
    yield json.dumps(value, ensure_ascii=False)[1:-1].encode()
    yield quote(value).encode()
    yield quote(value, safe="").encode()
    yield base64.b64encode(raw)[:-4]
    yield base64.urlsafe_b64encode(raw)[:-4]


def digests(value: object) -> Iterator[bytes]:
    """What somebody who guesses the value can work out."""
    text = canon.dumps(value)
    for made_of in (text, str(value).encode()):
        yield hashlib.sha256(made_of).hexdigest().encode()
        yield hashlib.sha256(made_of).hexdigest()[:16].encode()


def secretive(folder: Path) -> Path:
    """A journal of a run whose secrets went everywhere."""
    item, large = canon.dumps(VALUE), canon.dumps([VALUE, "x" * 70_000])
    unit = f"s0:{canon.item_digest(item)}"
    with SqliteStore.open(folder / "journal.db") as store:
        mine = new_run(store, plan=PLAN, params_json=PARAMS, gates=((), ()), key=f"nightly {VALUE}")
        new = ev.NewUnit(0, unit, 0, item, f"sha256.v1:{hashlib.sha256(item).hexdigest()}", None)
        other = ev.NewUnit(1, "s0:" + canon.item_digest(b'"plain"'), 1, b'"plain"', "sha256.v1:" + "b" * 64, None)
        store.commit(mine, [ev.StepStarted(at=20, step=0, round=1, loop=1, units=(new, other)), b.reserved(0)])
        store.commit(mine, [b.failed(0, error=f"could not log in: {quote(VALUE)}"), b.reserved(1)])
        store.commit(mine, [b.finished(1, result=canon.dumps({"said": VALUE, unit: True}))])
        store.request(b.RUN, "reject", canon.dumps({"note": VALUE}), "ann", 5)
        store.commit(mine, [b.completed(canon.dumps([VALUE])), b.started(1, step=1), b.reserved(0, step=1)])
        store.commit(mine, [b.finished(0, step=1, result=b'"fine"'), b.completed(large, step=1)])
        store.commit(mine, [b.run_moved(RunState.FAILED, outcome="failed", reason="step_failed", detail=f"of {VALUE}")])
        store.release(mine)
    words = [f"my {VALUE} is\n".encode(), base64.b64encode(VALUE.encode()) + b"\n", b"nothing\n"]
    say(folder, b.RUN, *words, *(f"{n} {VALUE}\n".encode() for n in range(200)))
    # what a crash cut short
    with (folder / "logs" / f"{b.RUN}.log").open("ab") as log:
        log.write(b'{"d":"x","s":"out","n":99,"c":1,"t":1}\n' + VALUE.encode())
    return folder / "journal.db"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Exported]:
    return export(secretive(tmp_path_factory.mktemp("secretive")))


@pytest.mark.parametrize("value", [VALUE, DEFAULT, INNER])
def test_no_spelling_of_a_secret_stands_in_the_file(made: tuple[Path, Exported], value: str) -> None:
    text = b"".join(lines_of(made[0]))
    for line in lines_of(made[0]):
        # a line is JSON in which JSON is text: look into what it says, too
        said = json.loads(line)["data"]
        text += "\n".join(_strings(said)).encode()
    assert [spelled for spelled in spellings(value) if spelled in text] == []


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _strings(entry)


def test_nothing_is_left_that_a_guess_could_be_held_against(made: tuple[Path, Exported]) -> None:
    text = b"".join(lines_of(made[0]))
    large, said = [VALUE, "x" * 70_000], {"said": VALUE, f"s0:{canon.item_digest(canon.dumps(VALUE))}": True}
    params = json.loads(PARAMS)
    guesses = [*digests(VALUE), *digests([VALUE]), *digests(large), *digests(said), *digests(params)]
    assert [digest for digest in (*guesses, canon.sha256(PLAN).encode()) if digest in text] == []
    assert b"a" * 64 not in text, "the workflow file holds the default too"


def test_a_short_secret_is_blanked_where_it_is_known_to_stand_and_told(made: tuple[Path, Exported]) -> None:
    path, done = made
    assert (done.redacted, done.too_short, done.redacted_plans) == (("key", "pin", "token"), ("pin",), (b.RUN,))
    with open_export(path) as opened:
        params = json.loads(opened.store.run(b.RUN).params_json)
        assert params == {"pin": "[redacted:pin]", "token": "[redacted:token]", "who": "ann"}
        assert opened.header.redacted.params == ("key", "pin", "token")


def test_what_is_hidden_fits_together_still(made: tuple[Path, Exported]) -> None:
    with open_export(made[0]) as opened:
        store = opened.store
        tagged, plan = store.plan(b.RUN)
        assert tagged == canon.sha256(plan)
        for step in store.steps(b.RUN):
            artifact = store.artifact(b.RUN, step.step)
            assert artifact is not None
            assert (step.artifact_hash, step.artifact_size) == (canon.sha256(artifact), len(artifact))
        units = list(store.units(b.RUN, step=0))
        assert [unit.id for unit in units] == ["s0:redacted-1", "s0:" + canon.item_digest(b'"plain"')]
        assert json.loads(units[1].result or b"") == {"said": "[redacted:token]", "s0:redacted-1": True}
        assert b"[redacted:token]" in json.dumps(store.run(b.RUN).detail).encode()
        log = opened.project.logs / f"{b.RUN}.log"
        spans = [attempt.log for attempt in store.attempts(b.RUN, 0, 0)]
        assert spans is not None
        said = [frame.data for frame in read_log(log)]
        assert len(said) == 203
        assert said[2] == b"nothing\n"
        assert all(b"***" in data for data in (*said[:2], *said[3:]))
        assert log.stat().st_size == (made[0].parent / "logs" / f"{b.RUN}.log").stat().st_size


def test_what_looks_like_a_secret_within_a_param_and_its_default_is_gone() -> None:
    cfg = {"host": "db.example", "password": VALUE, "logins": [{"token": PIN}]}
    default = json.dumps({"password": DEFAULT, "pin": {"secret": PIN}})
    plan = canon.dumps({"params": [{"name": "cfg", "default_json": default}]})
    scrub = Scrubber([secrets_of(plan, canon.dumps({"cfg": cfg}))])
    assert scrub.active
    assert scrub.names == ("cfg.logins.token", "cfg.password", "cfg.pin.secret")
    assert canon.loads(scrub.params(canon.dumps({"cfg": cfg})))["cfg"] == {
        "host": "db.example",
        "password": "[redacted:cfg.password]",
        "logins": [{"token": "[redacted:cfg.logins.token]"}],
    }
    shown = json.loads(canon.loads(scrub.plan(plan))["params"][0]["default_json"])
    assert shown == {"password": "[redacted:cfg.password]", "pin": {"secret": "[redacted:cfg.pin.secret]"}}
    assert scrub.json(json.dumps([VALUE, "db.example"]).encode()) == b'["[redacted:cfg.password]","db.example"]'


def test_the_same_secretive_state_gives_the_same_bytes(made: tuple[Path, Exported]) -> None:
    again, _ = export(made[0].parent / "journal.db", to="again.gz")
    assert again.read_bytes() == made[0].read_bytes()


def test_a_run_without_secrets_keeps_every_byte(tmp_path: Path) -> None:
    text = canon.dumps({"image": "sha256:" + "c" * 64, "digest": "0123456789abcdef"})
    with SqliteStore.open(tmp_path / "journal.db") as store:
        mine = new_run(store)
        store.commit(mine, [b.started(1), b.reserved(0), b.finished(0, result=text), b.completed(text)])
    path, done = export(tmp_path / "journal.db")
    assert (done.redacted, done.redacted_plans, done.too_short) == ((), (), ())
    with open_export(path) as opened:
        assert opened.store.artifact(b.RUN, 0) == text


CONFIG = '[env.vault]\nvars = ["VAULT_WORD"]\n'
FLOW = """---
params: { api_token: { type: string, default: given-by-default }, names: { type: array, default: [a, b] } }
steps:
  - id: say
    env: [vault]
    run: 'echo "$VAULT_WORD $INTERLOCK_PARAM_API_TOKEN"; echo "$VAULT_WORD" | base64 >&2'
  - id: each
    map: { over: params.names }
    run: cat "$INTERLOCK_CONTEXT"
    inputs: [steps.say.output]
    on_error: continue
---
# Flow
"""


def test_no_value_of_a_real_run_leaves_with_its_export(tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "flow.md").write_text(FLOW, encoding="utf-8")
    secrets = {"VAULT_WORD": "the vault's word", "API": "param-of-this-run"}

    def interlock(*arguments: str) -> str:
        program = [sys.executable, "-c", "from interlock.cli.entry import main; main()", *arguments]
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, check=False, timeout=60, text=True, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    import os  # noqa: PLC0415 - the program's own surroundings

    env = {**os.environ, **secrets}
    interlock("run", "flow.md", "-p", f"api_token={secrets['API']}")
    told = interlock("export", "last", "-o", "run.gz")
    assert "note: redacted the params api_token and every hash that could give them away" in told
    text = b"".join(lines_of(tmp_path / "run.gz"))
    for value in (*secrets.values(), "given-by-default"):
        assert [spelled for spelled in spellings(value) if spelled in text] == []
    shown = [
        interlock(command, "last", "--from", "run.gz") for command in ("status", "units", "logs", "events", "plan")
    ]
    assert "[redacted:api_token]" in shown[0]


def test_what_is_masked_keeps_its_length_where_values_overlap() -> None:
    scrubber = Scrubber([RunSecrets((("k", None),), {"k": "abcabc"})])
    assert scrubber.mask(b"-abcabcabc-abcabc") == b"-*********-******"
