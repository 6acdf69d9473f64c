from __future__ import annotations

import pytest

from interlock.plan.config_check import check_config
from interlock.plan.config_parse import parse_config

AGENTS = ("claude", "codex", "pi")


def test_an_agent_that_nobody_knows_is_told_with_those_there_are() -> None:
    config, found = parse_config(b'[engines.a]\nkind = "agent"\nagent = "claud"\n', "interlock.toml")
    assert found == ()
    assert [(d.line, d.code, d.message, d.hint) for d in check_config(config, lambda: AGENTS)[1]] == [
        (3, "unknown-agent", "'agent' must be 'claude', 'codex' or 'pi', not 'claud'", "did you mean 'claude'?")
    ]


def test_agents_are_asked_for_only_where_one_may_be_named() -> None:
    config, _ = parse_config(b'[engines.a]\nkind = "llm"\napi = "openai"\nmodel = "m"\n', "interlock.toml")
    assert check_config(config, lambda: pytest.fail("nothing here names an agent"))[1] == ()


def test_names_that_lead_nowhere_are_found_in_the_merged_configuration() -> None:
    text = b'[run]\nengine = "fasst"\njudge = "zzz"\n[engines.fast]\nkind = "agent"\nagent = "pi"\nenv = ["stagin", "qqqqq"]\n'
    config, _ = parse_config(text + b"[env.staging]\n", "interlock.toml")
    assert [(d.line, d.message, d.hint) for d in check_config(config, lambda: AGENTS)[1]] == [
        (2, "no engine is named 'fasst'", "did you mean 'fast'?"),
        (3, "no engine is named 'zzz'", "use 'fast'"),
        (7, "no env group is named 'qqqqq'", "use 'staging'"),
        (7, "no env group is named 'stagin'", "did you mean 'staging'?"),
    ]
    assert check_config(config, lambda: AGENTS)[1][0].source_line == 'engine = "fasst"'


def test_models_that_lead_nowhere_are_found_in_the_merged_configuration() -> None:
    text = b"""[engines.fast]
kind = "llm"
api = "openai"
model = "deep"
[engines.plain]
kind = "llm"
api = "gemini"
model = "deep"
[models.deep]
openai = "big-1"
opnai = "big-2"
claude = "big-3"
fsat = "big-4"
"""
    config, _ = parse_config(text, "interlock.toml")
    assert [(d.line, d.severity, d.message, d.hint) for d in check_config(config, lambda: AGENTS)[1]] == [
        (
            8,
            "error",
            "model alias 'deep' says nothing for engine 'plain' (gemini)",
            'add plain = "MODEL-ID" or "*" = "MODEL-ID" below [models.deep]',
        ),
        (11, "warning", "model alias 'deep' names 'opnai', which is no engine, agent or API", "did you mean 'openai'?"),
        (13, "warning", "model alias 'deep' names 'fsat', which is no engine, agent or API", "did you mean 'fast'?"),
    ]
