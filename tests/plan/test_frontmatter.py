"""The shipped JSON Schema and the parser know the same keys and agree on form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from interlock.model.states import NOT_RETRYABLE, Reason
from interlock.plan import akm, gates, retry, schema_check, settings, steps
from interlock.plan.compile import BUDGET_KEYS, DEFAULTS_KEYS, KEYS, MAX_STEPS, compile_workflow
from interlock.plan.diagnose import Source
from interlock.plan.document import read
from interlock.plan.frontmatter import schema, schema_text
from interlock.plan.scalars import to_json
from interlock.plan.yaml import compose

SCHEMA = schema()
DEFS = SCHEMA["$defs"]
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA, offline=True)
STEP = DEFS["step"]["properties"]


def test_the_schema_is_a_valid_schema_and_ends_in_a_newline() -> None:
    jsonschema_rs.Draft202012Validator({"$ref": "https://json-schema.org/draft/2020-12/schema"}).validate(SCHEMA)
    assert schema_text().endswith("}\n")
    assert SCHEMA["$schema"] == schema_check.DIALECT


@pytest.mark.parametrize(
    ("described", "known"),
    [
        (SCHEMA["properties"], {*KEYS, *akm.ENVELOPE_KEYS}),
        (SCHEMA["properties"]["defaults"]["properties"], DEFAULTS_KEYS),
        (SCHEMA["properties"]["budget"]["properties"], BUDGET_KEYS),
        (STEP, steps.KEYS),
        (STEP["map"]["properties"], steps.MAP_KEYS),
        (STEP["route"]["properties"], steps.ROUTE_KEYS),
        (STEP["route"]["properties"]["when"]["items"]["properties"], steps.WHEN_KEYS),
        (STEP["gate"]["properties"], gates.KEYS),
        (DEFS["settings"]["properties"], settings.KEYS),
        (DEFS["retry"]["properties"], retry.KEYS),
        (DEFS["retry"]["properties"]["backoff"]["properties"], retry.BACKOFF_KEYS),
        (DEFS["unit"]["properties"], akm.UNIT_KEYS),
        (DEFS["unit"]["properties"]["exec"]["properties"], akm.EXEC_KEYS),
        (DEFS["llm"]["properties"], {*akm.LLM_KEYS, *akm.LLM_IGNORED}),
        (DEFS["schema"]["properties"], schema_check.KEYWORDS),
        (DEFS["param"]["properties"], schema_check.KEYWORDS),
    ],
)
def test_schema_and_parser_know_the_same_keys(described: dict[str, Any], known: Any) -> None:
    assert set(described) == set(known)


def test_schema_and_parser_know_the_same_words_and_bounds() -> None:
    on = DEFS["retry"]["properties"]["on"]["items"]["enum"]
    assert set(on) == {
        *(str(reason) for reason in Reason if reason not in NOT_RETRYABLE),
        *retry.AKM_REASONS,
        *retry.AKM_REASONS_IGNORED,
    }
    assert STEP["map"]["properties"]["reducer"]["enum"] == list(steps.REDUCERS)
    assert STEP["map"]["properties"]["concurrency"]["maximum"] == steps.MAX_CONCURRENCY
    assert STEP["gate"]["properties"]["max_loops"]["maximum"] == gates.MAX_LOOPS
    assert STEP["gate"]["properties"]["judges"]["maximum"] == gates.MAX_JUDGES
    assert DEFS["retry"]["properties"]["max"]["maximum"] == retry.MAX_RETRIES
    factor = DEFS["retry"]["properties"]["backoff"]["properties"]["factor"]
    assert (factor["minimum"], factor["maximum"]) == (1, retry.MAX_FACTOR)
    assert SCHEMA["properties"]["steps"]["maxItems"] == MAX_STEPS
    assert DEFS["schema"]["properties"]["format"]["enum"] == list(schema_check.FORMATS)
    assert DEFS["step"]["then"]["propertyNames"]["enum"] == list(steps.ROUTE_STEP_KEYS)


def _properties(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every described key of a schema node, at any depth, with its path."""
    named = {**node.get("properties", {}), **{f"$defs/{name}": inner for name, inner in node.get("$defs", {}).items()}}
    for name, inner in named.items():
        yield f"{path}/{name}", inner
        yield from _properties(inner, f"{path}/{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from _properties(node[key], f"{path}/{key}")


def _description(described: dict[str, Any]) -> str | None:
    while "description" not in described and "$ref" in described:
        target: Any = SCHEMA
        for part in described["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        described = target
    return described.get("description")


def test_every_key_is_described_by_itself_or_by_what_it_refers_to() -> None:
    assert [path for path, described in _properties(SCHEMA) if not _description(described)] == []


def test_mappings_refuse_unknown_keys() -> None:
    for path, described in _properties(SCHEMA):
        if "properties" in described and path != "/$defs/settings":
            assert described["additionalProperties"] is False, path


def _front_matter(text: str) -> Any:
    written = read(text.encode(), "flow.md")
    source = Source("flow.md", ())
    node = compose(written.front or "", source)
    assert node is not None, source.diagnostics()
    return to_json(node, source)


WHOLE = """
type: workflow
description: All of it
tags: [a]
params:
  base: { type: string, default: main, description: what }
  n: { type: integer, required: true, minimum: 1 }
  o: { type: object, required: [a], properties: { a: { enum: [1, x] } } }
defaults: { engine: fast, timeout: 10m, llm: { temperature: 0, context_length: 9 }, on_error: continue }
budget: { max_units: 3, max_tokens: 5, max_cost_usd: 0.5, max_duration: 2h }
steps:
  - { id: a, run: 'true', retry: { max: 1, on: [timeout, cooldown], backoff: { initial: 1s, factor: 2, max: 9000 } } }
  - { id: b, run: [echo, 1, true], output: { type: string, format: date }, gate: { check: 'true' }, env: [x], cwd: . }
  - id: c
    needs: [a]
    map: { over: "steps.a.output.list[0]", concurrency: 3, reducer: vote, output: true, retry: { max: 0 } }
    uses: python:m:f
    inputs: { x: params.base }
    gate: { each: true, check: [x] }
  - { id: d, route: { input: steps.c.output, when: [{ match: 1, step: e }], default: f } }
  - { id: e, run: x, effects: external, probe: y, idle_timeout: none, resources: { cpus: 1 }, inputs: [params.n] }
  - { id: f, uses: ./child.md, with: { a: params.n, b: [1, { c: steps.e.output }] }, needs: [d, e] }
  - { id: g, unit: { exec: { command: [a], cwd: b, pass_env: [C] }, output: { type: string } } }
  - { id: h, map: { over: params.o, unit: { llm: { max_tokens: 3, extra_params: { a: 1 } }, workflow: ./c.md } } }
"""


def agreement(front: str) -> tuple[bool, bool]:
    """What the parser and the schema say of a front matter."""
    text = f"---\n{front}\n---\n"
    return compile_workflow(text.encode(), "flow.md").workflow is not None, VALIDATOR.is_valid(_front_matter(text))


def test_a_workflow_with_every_key_is_good_for_both() -> None:
    assert list(VALIDATOR.iter_errors(_front_matter(f"---\n{WHOLE}\n---\n"))) == []


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("*.md")), ids=lambda path: path.name)
def test_the_parsers_own_samples_are_good_for_the_schema(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert compile_workflow(text.encode(), path.name).workflow is not None
    assert list(VALIDATOR.iter_errors(_front_matter(text))) == []


@pytest.mark.parametrize(
    "step",
    [
        "run: 'true'",
        "run: 5",
        "run: [a, 1]",
        "run: [a, '', '']",
        "run: a, gate: { check: [b, ''] }",
        "run: a, effects: external, probe: [b, '']",
        "unit: { exec: { command: [b, ''] } }",
        *(
            f"run: a, retry: {{ max: 1, backoff: {{ initial: {delay} }} }}"
            for delay in ("0", "'0'", "0s", "00ms", "1", "500ms")
        ),
        "run: a, timeout: 5",
        "run: a, timeout: 2h",
        "run: a, timeout: none",
        "run: a, output: { type: [string, 'null'], $defs: { x: true } }",
        "run: a, env: []",
        "run: a, needs: []",
        "run: a, retry: { max: 3 }",
    ],
)
def test_good_steps_are_good_for_both(step: str) -> None:
    assert agreement(f"steps: [{{ id: a, {step} }}]") == (True, True)


@pytest.mark.parametrize(
    "front",
    [
        "params: {}",
        "steps: []",
        "steps: [3]",
        "steps: [{ run: a }]",
        "steps: [{ id: 'a b', run: a }]",
        "stepz: [{ id: a, run: a }]",
        "type: other\nsteps: [{ id: a, run: a }]",
        "budget: { max_units: 0 }\nsteps: [{ id: a, run: a }]",
        "budget: { max_cost_usd: 0 }\nsteps: [{ id: a, run: a }]",
        "params: { 'a b': {} }\nsteps: [{ id: a, run: a }]",
        "params: { a: 3 }\nsteps: [{ id: a, run: a }]",
        "params: { a: { typ: string } }\nsteps: [{ id: a, run: a }]",
        "params: { a: { type: strin } }\nsteps: [{ id: a, run: a }]",
        "defaults: { run: a }\nsteps: [{ id: a, run: a }]",
        *(
            f"steps: [{{ id: a, {step} }}]"
            for step in (
                "run: {}",
                "run: []",
                "run: ['', a]",
                "run: [' ']",
                "run: [a, {}]",
                "run: a, gate: { check: ['', b] }",
                "run: a, effects: external, probe: ['']",
                "unit: { exec: { command: ['', b] } }",
                "unit: { exec: { command: [] } }",
                "run: a, retry: { max: 1, backoff: { initial: -1 } }",
                "run: a, retry: { max: 1, backoff: { max: soon } }",
                "run: ' '",
                "run: a, uses: ./b",
                "run: a, rnu: b",
                "run: a, timeout: 5 minutes",
                "run: a, timeout: 0",
                "run: a, timeout: 0s",
                "run: a, timeout: -1",
                "run: a, on_error: stop",
                "run: a, retry: 3",
                "run: a, retry: { on: [timeout] }",
                "run: a, retry: { max: 1, on: [] }",
                "run: a, retry: { max: 1, on: [lost] }",
                "run: a, retry: { max: 1, on: [bogus] }",
                "run: a, retry: { max: 1, backoff: { initial: none } }",
                "run: a, retry: { max: 1, session: keep }",
                "run: a, effects: some",
                "run: a, env: x",
                "run: a, env: [x, x]",
                "run: a, output: 3",
                "run: a, output: { propertys: {} }",
                "run: a, output: { type: text }",
                "run: a, output: { format: dat }",
                "run: a, inputs: params.x",
                "run: a, inputs: [nothing]",
                "run: a, map: { concurrency: 3 }",
                "run: a, map: { over: params.x, reducer: sum }",
                "run: a, gate: true",
                "run: a, gate: { chek: x }",
                "run: a, gate: { max_loops: 0 }",
                "route: { input: params.x }",
                "run: a, route: { input: params.x, when: [] }",
                "route: { input: params.x, when: [{ match: 1 }] }",
                "unit: { exec: { cwd: x } }",
                "unit: { exe: {} }",
                "run: a, needs: b",
                "run: a, resources: 3",
                "run: a, cwd: ''",
            )
        ),
    ],
)
def test_bad_front_matter_is_bad_for_both(front: str) -> None:
    assert agreement(front) == (False, False)
