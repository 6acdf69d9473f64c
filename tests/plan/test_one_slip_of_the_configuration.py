"""One slip in `interlock.toml` is told once: not what it lacks because of it, nor what a workflow can't find then."""

from __future__ import annotations

import re

import pytest
from tests.plan.slips import CONFIG, lint, spoilt

KEYS = [(found.start(1), found[1]) for found in re.finditer(r"(?m)^\[?([a-z_]+)(?=[ .\]])", CONFIG)]
KEYS += [
    (CONFIG.index("secrets]"), "secrets"),
    (CONFIG.index("var ="), "var"),
    (CONFIG.index('command = ["pass'), "command"),
]
VALUES = [
    ('"llm"', '"lm"', [(9, "unknown-value")]),
    ('"openai"', '"opnai"', [(10, "unknown-value")]),
    ('"openai"', "3", [(10, "unknown-value")]),
    ('model = "deep"', "model = 3", [(12, "wrong-type")]),
    ('"$FAST_KEY"', '"sk-123"', [(13, "secret-in-config")]),
    ('"claude"', '"cluade"', [(16, "unknown-agent")]),
    ('agent = "command"', 'agent = "comand"', [(20, "unknown-agent")]),
    ('["staging"]', '["stagin"]', [(17, "unknown-env")]),
    ('["staging"]', '"staging"', [(17, "wrong-type")]),
    ('engine = "coder"', 'engine = "codr"', [(2, "unknown-engine")]),
    ('engine = "coder"', "engine = 5", [(2, "wrong-type")]),
    ('judge = "fast"', 'judge = "fst"', [(3, "unknown-engine")]),
    ('fast = "small-1"', "fast = 1", [(24, "wrong-type")]),
    ('fast = "small-1"', 'fsat = "small-1"', [(24, "unknown-engine")]),
    ("[engines.coder]", "[agents.coder]", [(14, "unknown-key")]),
    ("[env.staging]", "[groups.staging]", [(25, "unknown-key")]),
    ("max_items = 100", "max_items = 0", [(7, "wrong-type")]),
]


def test_the_keys_that_are_spoilt_are_those_of_the_whole_file() -> None:
    assert {"run", "limits", "engines", "models", "env", "kind", "api", "agent", "vars", "var"} <= {
        key for _, key in KEYS
    }


@pytest.mark.parametrize(("at", "key"), [pair for pair in KEYS if pair[1] != "fast"])
def test_a_misspelled_key_is_told_once_and_nothing_is_said_to_be_missing(at: int, key: str) -> None:
    for miss, text in list(spoilt(CONFIG, at, key))[at % 7 :: 7]:
        found = lint(config=text)
        assert [(one.file, one.line) for one in found] == [("interlock.toml", CONFIG[:at].count("\n") + 1)], miss
        assert found[0].message.startswith(f"unknown key '{miss}' in ")
        assert found[0].hint == f"did you mean '{key}'?"


@pytest.mark.parametrize(("right", "wrong", "expected"), VALUES)
def test_a_value_at_fault_is_told_where_it_is_and_not_where_it_is_wanted(
    right: str, wrong: str, expected: list[tuple[int, str]]
) -> None:
    assert right in CONFIG
    flow = (
        "---\nsteps:\n  - { id: a }\n  - { id: b, engine: fast, env: [staging] }\n---\n## a\nx\n### gate\nx\n## b\nx\n"
    )
    for workflow in (flow, flow.replace("engine: fast", "engine: fast, model: deep")):
        found = lint(workflow, CONFIG.replace(right, wrong, 1))
        assert [(one.line, one.code) for one in found if one.file == "interlock.toml"] == expected
        assert [one for one in found if one.file != "interlock.toml"] == []


def test_a_fault_in_one_table_hides_none_of_another_nor_what_that_other_could_explain() -> None:
    config = (
        '[limits]\nmax_items = 0\nzzz = 1\n[engines.a]\nkind = "llm"\n[engines.b]\nkind = "agent"\n[env.c]\nvras = 3\n'
    )
    flow = "---\nsteps:\n  - { id: a, engine: gone, env: [lost] }\n  - { id: b, engine: a, env: [c] }\n---\n## a\nx\n## b\nx\n"
    assert [(one.file, one.line, one.message) for one in lint(flow, config)] == [
        ("flow.md", 3, "no engine is named 'gone'"),
        ("flow.md", 3, "no env group is named 'lost'"),
        ("flow.md", 4, "no model is named for engine 'a', and its API needs one"),
        ("interlock.toml", 2, "'max_items' must be a whole number from 1 to 100,000, not the number 0"),
        ("interlock.toml", 3, "unknown key 'zzz' in [limits]"),
        ("interlock.toml", 4, "[engines.a] needs 'api'"),
        ("interlock.toml", 6, "[engines.b] needs 'agent'"),
        ("interlock.toml", 9, "unknown key 'vras' in [env.c]"),
        (
            "interlock.toml",
            9,
            "'vars' must be a list of names of variables, none of them INTERLOCK_..., not the number 3",
        ),
    ]


def test_a_file_that_is_not_toml_blames_no_workflow() -> None:
    assert [(one.file, one.code) for one in lint(config=CONFIG + "[run\n")] == [("interlock.toml", "toml-syntax")]


def test_a_misspelled_table_is_read_beside_the_one_that_is_spelled_well() -> None:
    text = CONFIG.replace("[engines.coder]", "[engine.coder]").replace('agent = "claude"', "agent = 3")
    assert [(one.line, one.message) for one in lint(config=text)] == [
        (14, "unknown key 'engine' in the configuration"),
        (16, "'agent' must be text, not the number 3"),
    ]
