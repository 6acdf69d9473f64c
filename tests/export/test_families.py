"""A run's export holds the runs below it: their rows, their part of the log, and nothing that the run above kept secret."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.driver.family_world import MAP, World
from tests.export.files import lines_of

from interlock.driver.export.exporting import Exported, export_run, new_file
from interlock.driver.export.importing import verify_export
from interlock.driver.params import ParamsInput
from interlock.errors import UsageError
from interlock.exported import ExportApp
from interlock.model import canon

WORD, PIN, INNER, DEEP = "hunter2-and-more", "zq12", "default-of-the-child", "default-of-the-grandchild"
PARENT = """
params:
  password: { type: string }
  pin_token: { type: string }
  names: { type: array, default: [a, b] }
steps:
  - id: each
    map: { over: params.names }
    uses: ./child.md
    with: { name: item, word: params.password, code: params.pin_token }
  - { id: plain, uses: ./plain.md }
"""
CHILD = f"""
params:
  name: {{ type: string }}
  word: {{ type: string }}
  code: {{ type: string }}
  api_token: {{ type: string, default: {INNER} }}
steps:
  - {{ id: say, run: 'echo "$INTERLOCK_PARAM_WORD"; echo "for $INTERLOCK_PARAM_NAME, $INTERLOCK_PARAM_API_TOKEN" >&2' }}
  - {{ id: deep, uses: ./deep.md, with: {{ note: params.code, told: params.word }} }}
"""
DEEPEST = f"""
params:
  note: {{ type: string }}
  told: {{ type: string }}
  secret_key: {{ type: string, default: {DEEP} }}
steps:
  - {{ id: last, run: 'echo "told $INTERLOCK_PARAM_TOLD" >&2; echo done' }}
"""
PLAIN = "steps:\n  - { id: p, run: echo plain }"


def export(world: World, run: str, name: str = "run.gz") -> tuple[Path, Exported]:
    path = world.folder / name
    with new_file(path, force=True) as out:
        return path, export_run(world.app.project.journal, world.app.project.logs, run, out)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def secretive(world: World) -> Iterator[tuple[World, str]]:
    """A family that was handed secrets, by values and by defaults."""
    world.write(parent=PARENT, child=CHILD, deep=DEEPEST, plain=PLAIN)
    done = world.run(params=ParamsInput(values={"password": WORD, "pin_token": PIN}))
    assert done.state == "completed", done.detail
    yield world, done.run_id
    world.app.close()


def test_whatever_is_read_of_a_family_is_read_of_its_export(world: World) -> None:
    child = "params: { name: {} }\nsteps:\n  - { id: s, run: 'echo out; echo \"err $INTERLOCK_PARAM_NAME\" >&2' }"
    world.write(parent=MAP.replace("ON_ERROR", "fail"), child=child)
    run = world.run().run_id
    path, done = export(world, run)
    assert (done.run, len(done.runs)) == (run, 4)
    assert verify_export(path).header.runs == done.runs
    with ExportApp(path) as away:
        here, there = world.app.store, away.store
        assert there.children(run) == here.children(run)
        assert {row.id for row in there.runs(children=True)} == set(done.runs)
        assert [row.id for row in there.runs()] == [run]
        for member in done.runs:
            assert there.steps(member) == here.steps(member)
            assert [*there.units(member)] == [*here.units(member)]
            assert there.events(member) == here.events(member)
            assert there.read_lease(member) == here.read_lease(member)
            assert away.find(member) == member
        name = f"{run}.log"
        assert (away.project.logs / name).read_bytes() == (world.app.project.logs / name).read_bytes()
        assert away.replay(run).differences == ()


def test_a_child_alone_is_not_exported(world: World) -> None:
    world.write(
        parent=MAP.replace("ON_ERROR", "fail"), child="params: { name: {} }\nsteps:\n  - { id: c, uses: ./plain.md }"
    )
    world.write(plain=PLAIN)
    run = world.run().run_id
    child = world.children(run)[0]
    lowest = world.children(child.id)[0]
    for row in (child, lowest):
        with pytest.raises(UsageError) as caught:
            export(world, row.id)
        assert caught.value.message == f"run {row.id} is a unit of run {row.parent} and is exported with it"
        assert caught.value.hint == f"export the whole: interlock export {run}"
    assert not (world.folder / "run.gz").exists()


def test_no_secret_of_a_family_stands_in_its_export(secretive: tuple[World, str]) -> None:
    path, done = export(*secretive)
    text = b"".join(lines_of(path))
    assert [word for word in (WORD, INNER, DEEP) if word.encode() in text] == []
    assert (done.redacted, done.too_short) == (("api_token", "password", "pin_token", "secret_key"), ("pin_token",))


def test_what_a_run_above_handed_down_is_blanked_however_short(secretive: tuple[World, str]) -> None:
    world, run = secretive
    path, _ = export(world, run)
    assert PIN.encode() not in b"".join(lines_of(path))
    with ExportApp(path) as away:
        child = away.store.children(run)[0]
        assert json.loads(child.params_json) == {
            "name": "a",
            "word": "[redacted:word]",
            "code": "[redacted:code]",
            "api_token": "[redacted:api_token]",
        }
        (deep,) = away.store.children(child.id)
        assert json.loads(deep.params_json)["note"] == "[redacted:note]"


def test_no_hash_gives_the_default_of_a_child_away(secretive: tuple[World, str]) -> None:
    world, run = secretive
    path, done = export(world, run)
    text = b"".join(lines_of(path))
    embedded = json.loads(world.app.store.plan(run)[1])["children"]
    hashes = {plan["source"]: (key, plan["source_sha256"]) for key, plan in embedded.items()}
    files = [hashlib.sha256((world.folder / name).read_bytes()).hexdigest() for name in ("child.md", "deep.md")]
    plans = [world.app.store.plan(member)[0].partition(":")[2] for member in done.redacted_plans]
    own = [tagged.partition(":")[2] for name in ("child.md", "deep.md") for tagged in hashes[name]]
    assert [digest for digest in (*files, *plans, *own) if digest.encode() in text] == []
    assert hashes["plain.md"][0].encode() in text, "what holds no secret keeps its key"


def test_a_family_with_hidden_values_is_replayed_with_what_stands_in_their_place(secretive: tuple[World, str]) -> None:
    world, run = secretive
    path, _ = export(world, run)
    with ExportApp(path) as away:
        for member in (run, *(row.id for row in away.store.children(run))):
            tagged, plan = away.store.plan(member)
            assert tagged == canon.sha256(plan)
        found = away.replay(run)
        assert (found.differences, found.not_recorded, found.changed) == ((), {}, ())
        assert found.answered == 5


def test_items_that_hold_a_secret_are_replayed_in_the_children_that_were_made_of_them(world: World) -> None:
    child = "params: { name: { type: string } }\nsteps:\n  - { id: s, run: 'echo \"$INTERLOCK_PARAM_NAME\"' }"
    parent = "params: { tokens: { type: array } }\nsteps:\n  - { id: each, map: { over: params.tokens }, uses: ./child.md, with: { name: item } }"
    world.write(parent=parent, child=child)
    run = world.run(params=ParamsInput(values={"tokens": [WORD, "pq1"]})).run_id
    path, _ = export(world, run)
    assert WORD.encode() not in b"".join(lines_of(path))
    with ExportApp(path) as away:
        assert [json.loads(row.params_json) for row in away.store.children(run)] == [{"name": "[redacted:name]"}] * 2


def test_the_same_family_gives_the_same_bytes(secretive: tuple[World, str]) -> None:
    path, _ = export(*secretive)
    assert export(*secretive, "again.gz")[0].read_bytes() == path.read_bytes()
