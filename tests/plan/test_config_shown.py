"""Every setting that holds, spelled as a file may spell it."""

from __future__ import annotations

import json

import msgspec
from tests.plan.configurations import WHOLE

from interlock.decide.schedule import MAX_CONCURRENCY
from interlock.plan.config import Config
from interlock.plan.config_parse import parse_config
from interlock.plan.config_shown import DEFAULT_MAX_CONCURRENCY, effective, known_keys


def test_effective_settings_have_an_origin_or_are_defaults() -> None:
    config, _ = parse_config(WHOLE, "interlock.toml")
    found = {entry.key: entry for entry in effective(config)}
    assert found["run.timeout"].value == "90s"
    assert found["run.timeout"].origin is not None
    assert found["run.idle_timeout"].value == "none"
    assert found["limits.max_items"].value == 100_000
    assert found["limits.max_items"].origin is None
    assert found["engines.fast.api_key"].value == "$FAST_KEY"
    secrets = {"DEPLOY_TOKEN": {"command": ("pass", "show", "deploy")}, "API_KEY": {"var": "STAGING_API_KEY"}}
    assert found["env.staging.secrets"].value == secrets
    assert found["models.deep.*"].value == "big-1"
    assert [entry.key for entry in effective(Config())] == [
        "limits.max_artifact_bytes",
        "limits.max_items",
        "limits.max_log_bytes",
        "limits.max_result_bytes",
        "run.executor",
        "run.idle_timeout",
        "run.journal",
        "run.judge_clip_chars",
        "run.max_concurrency",
        "run.timeout",
    ]


def test_the_concurrency_that_is_shown_is_the_one_that_is_kept_to() -> None:
    assert DEFAULT_MAX_CONCURRENCY == MAX_CONCURRENCY


def test_what_is_shown_is_what_a_file_may_say() -> None:
    config, _ = parse_config(WHOLE, "interlock.toml")
    lines: dict[str, list[str]] = {}
    for entry in effective(config):
        table, _, key = entry.key.rpartition(".")
        lines.setdefault(table, []).append(f"{json.dumps(key)} = {_toml(entry.value)}\n")
    text = "".join(f"[{table}]\n{''.join(of)}" for table, of in lines.items())
    again, diagnostics = parse_config(text.encode(), "interlock.toml")
    assert diagnostics == ()
    assert effective(again) == tuple(
        msgspec.structs.replace(entry, origin=again.origins.get(entry.key)) for entry in effective(config)
    )
    assert {entry.key for entry in effective(config)} <= known_keys(config)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)
