from __future__ import annotations

import pytest

from interlock.dispatch.agents.registry import card, names
from interlock.dispatch.base import EngineSettings
from interlock.driver.engines import key_names, settings_of
from interlock.errors import ConfigError
from interlock.model.plan import Engine
from interlock.plan.config import Config
from interlock.plan.config_kinds import SAMPLING_OF_AGENT
from interlock.plan.config_parse import parse_config

TEXT = b"""
[engines.fast]
kind = "llm"
api = "openai"
base_url = "http://127.0.0.1:8080/v1"
api_key = "$FAST_KEY"
concurrency = 4
[engines.own]
kind = "agent"
agent = "command"
command = ["answer", "-x"]
args = ["-y"]
output = "json"
"""
FAST = Engine(name="fast", kind="llm", driver="openai")


def configured() -> Config:
    config, diagnostics = parse_config(TEXT, "interlock.toml")
    assert diagnostics == ()
    return config


def refusal(config: Config, *frozen: Engine) -> tuple[str, int, str, str]:
    with pytest.raises(ConfigError) as caught:
        settings_of(config, frozen)(frozen[0].name)
    (found,) = caught.value.diagnostics
    assert caught.value.exit_code == 78
    return found.file, found.line, found.message, found.hint


def test_settings_say_what_the_configuration_says_now() -> None:
    settings = settings_of(configured(), [FAST])
    assert settings("fast") == EngineSettings(
        name="fast",
        kind="llm",
        driver="openai",
        base_url="http://127.0.0.1:8080/v1",
        api_key="FAST_KEY",
        concurrency=4,
    )
    assert settings("own") == EngineSettings(
        name="own", kind="agent", driver="command", command=("answer", "-x"), args=("-y",), output="json"
    )


def test_an_engine_that_nobody_asks_for_may_be_gone() -> None:
    settings = settings_of(configured(), [FAST, Engine(name="gone", kind="llm", driver="openai")])
    assert settings("fast").name == "fast"


def test_an_engine_that_is_gone_is_named_with_the_way_out() -> None:
    assert refusal(configured(), Engine(name="fats", kind="llm", driver="openai")) == (
        "interlock.toml",
        1,
        "the plan asks engine 'fats', which is configured no longer",
        "add [engines.fats] again, or start a new run of the workflow (did you mean 'fast'?)",
    )
    assert refusal(Config(), FAST)[3] == "add [engines.fast] again, or start a new run of the workflow"


@pytest.mark.parametrize(
    ("frozen", "line", "message"),
    [
        (
            Engine(name="fast", kind="llm", driver="gemini"),
            4,
            "engine 'fast' was the gemini API when the plan was frozen, and is the openai API now",
        ),
        (
            Engine(name="own", kind="llm", driver="openai"),
            10,
            "engine 'own' was the openai API when the plan was frozen, and is agent command now",
        ),
    ],
)
def test_an_engine_that_became_another_is_not_asked_in_its_place(frozen: Engine, line: int, message: str) -> None:
    hint = "change it back, or start a new run of the workflow"
    assert refusal(configured(), frozen) == ("interlock.toml", line, message, hint)


def test_keys_of_all_engines_are_known_and_an_api_s_own_variable_too() -> None:
    assert key_names(configured()) == ("FAST_KEY",)
    official, _ = parse_config(b'[engines.x]\nkind = "llm"\napi = "openai"\nmodel = "m"\n', "interlock.toml")
    assert key_names(official) == ("OPENAI_API_KEY",)


def test_what_a_plan_leaves_to_an_agent_is_what_its_adapter_can_set() -> None:
    sampling = {"temperature", "max_tokens", "extra_params"}
    able = {agent: sampling - card(agent).cannot for agent in names()}
    assert {agent: set(keys) for agent, keys in SAMPLING_OF_AGENT.items()} == {
        a: keys for a, keys in able.items() if keys
    }
