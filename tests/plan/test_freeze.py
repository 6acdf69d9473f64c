from __future__ import annotations

import base64
import json
from pathlib import Path

import msgspec
import pytest

from interlock.errors import PlanError
from interlock.model import canon
from interlock.model.plan import FORMAT, Child, Command, Engine, Gate, Judge, Param, Plan, Prompt, Script, Step
from interlock.plan.compile import compile_workflow
from interlock.plan.config_parse import parse_config
from interlock.plan.freeze import MAX_PLAN_BYTES, MAX_SCRIPTS_BYTES, MAX_STEPS, freeze, limit_faults, thaw
from interlock.plan.resolve import resolve
from interlock.testing.sources import FakeSources

GOLDEN = Path(__file__).parent / "golden"


RELEASE = """---
params: { file: {}, notes: { type: array } }
steps:
  - { id: tag, run: [git, tag, "v1"] }
---
"""


def whole_plan() -> Plan:
    """The golden workflow, which uses everything that a plan can hold."""
    compiled = compile_workflow((GOLDEN / "plan.md").read_bytes(), "flow.md")
    config, _ = parse_config((GOLDEN / "plan.toml").read_bytes(), "interlock.toml")
    assert compiled.workflow is not None, compiled.diagnostics
    sources = FakeSources(
        scripts={"./count.py": b"#!/usr/bin/env python3\nprint(1)\n"},
        modules={"tools.sums": b"def add(context): ...\n"},
        folders=[".", "sub"],
        workflows={"release.md": RELEASE},
    )
    resolved = resolve(compiled.workflow, config, sources)
    assert resolved.plan is not None, resolved.diagnostics
    # made when a run is, never by lint
    return msgspec.structs.replace(resolved.plan, uncommitted="d" * 40)


def refusal(data: bytes, expected: str | None = None) -> PlanError:
    with pytest.raises(PlanError) as caught:
        thaw(data, expected or canon.sha256(data), "R1")
    return caught.value


def test_the_golden_plan_of_format_1_loads_for_ever() -> None:
    data = (GOLDEN / "plan-format-1.json").read_bytes()
    plan = thaw(data, (GOLDEN / "plan-format-1.sha256").read_text().strip(), "R1")
    assert plan.format == 1
    assert freeze(plan)[0] == data


def test_this_version_still_makes_the_golden_plan() -> None:
    assert freeze(whole_plan())[0] == (GOLDEN / "plan-format-1.json").read_bytes()


def test_the_golden_plan_uses_every_field() -> None:
    """So that no field can change its meaning or its spelling unnoticed."""
    stored = json.loads((GOLDEN / "plan-format-1.json").read_bytes())
    steps = stored["steps"]
    for field in Step.__struct_fields__:
        assert any(step[field] not in (None, [], False, "") for step in steps), field
    for field in Plan.__struct_fields__:
        assert stored[field] not in (None, [], ""), field
    targets = [step["target"] for step in steps if step["target"]]
    assert {target["type"] for target in targets} == {"command", "script", "python", "prompt", "workflow"}
    gates = [step["gate"] for step in steps if step["gate"]]
    for values, of in (
        ([target for target in targets if target["type"] == "prompt"], Prompt),
        (gates, Gate),
        ([gate["judge"] for gate in gates if gate["judge"]], Judge),
        (stored["engines"], Engine),
        ([target for target in targets if target["type"] == "workflow"], Child),
    ):
        for field in of.__struct_fields__:
            assert any(value[field] not in (None, [], False, "", "{}") for value in values), (of, field)


def test_the_golden_plan_holds_no_place_where_an_engine_is_reached() -> None:
    data = (GOLDEN / "plan-format-1.json").read_bytes()
    for unfrozen in (b"127.0.0.1", b"FAST_KEY", b"--bare", b"unused"):
        assert unfrozen not in data


def test_what_is_frozen_comes_back_equal() -> None:
    plan = whole_plan()
    data, digest = freeze(plan)
    assert digest == canon.sha256(data)
    assert thaw(data, digest, "R1") == plan
    assert canon.normalise(data)[1] == data


def test_a_changed_byte_is_refused_and_names_the_run() -> None:
    data, digest = freeze(whole_plan())
    error = refusal(data.replace(b'"flow"', b'"flaw"'), digest)
    assert error.code == "plan-damaged"
    assert str(error) == "the stored plan of run R1 does not match its hash; nothing was dispatched"
    assert error.hint == ("restore the journal from a backup, or start a new run of the workflow: interlock run FILE")


def test_a_newer_or_older_format_is_refused_even_with_the_right_hash() -> None:
    stored = json.loads(freeze(whole_plan())[0])
    newer = refusal(canon.dumps(stored | {"format": FORMAT + 1, "news": 1}))
    assert (newer.code, newer.hint) == ("plan-too-new", "use a newer interlock")
    assert str(newer) == f"the plan of run R1 has format {FORMAT + 1}; this version reads format {FORMAT}"
    assert refusal(canon.dumps(stored | {"format": 0})).code == "plan-too-old"


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{}", b'{"format":"1"}', b"\xff", b"[" * 100_000])
def test_what_is_no_plan_is_refused(data: bytes) -> None:
    error = refusal(data)
    assert error.code == "plan-unreadable"
    assert str(error).startswith("the stored plan of run R1 is not one that this version knows: ")


def test_an_unknown_field_is_refused_at_every_level() -> None:
    stored = json.loads(freeze(whole_plan())[0])
    for spoilt in (
        stored | {"extra": 1},
        stored | {"steps": [stored["steps"][0] | {"extra": 1}, *stored["steps"][1:]]},
        stored | {"project": stored["project"] | {"extra": 1}},
    ):
        assert refusal(canon.dumps(spoilt)).code == "plan-unreadable"


def test_a_plan_over_its_limits_is_refused() -> None:
    plan = whole_plan()
    steps = tuple(Step(id=f"s{i}", target=Command(text="true")) for i in range(MAX_STEPS + 1))
    with pytest.raises(PlanError) as caught:
        freeze(msgspec.structs.replace(plan, steps=steps))
    assert str(caught.value) == f"{MAX_STEPS + 1} steps; a workflow may have at most {MAX_STEPS}"
    wide = msgspec.structs.replace(plan, params=(Param(name="a", description="x" * MAX_PLAN_BYTES),))
    assert [fault[0] for fault in limit_faults(wide)] == ["plan-too-large"]


def test_embedded_scripts_do_not_count_as_plan_but_have_a_limit_of_their_own() -> None:
    plan = whole_plan()

    def holding(size: int) -> Plan:
        content = base64.b64encode(b"x" * size).decode()
        script = Script(path="a", sha256=canon.sha256(b""), content_b64=content, interpreter=())
        return msgspec.structs.replace(plan, steps=(Step(id="a", target=script),))

    assert limit_faults(holding(MAX_PLAN_BYTES)) == []
    assert [fault[0] for fault in limit_faults(holding(MAX_SCRIPTS_BYTES))] == ["scripts-too-large"]
