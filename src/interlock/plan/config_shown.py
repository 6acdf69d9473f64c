"""The configuration as `interlock config` shows it: every setting that holds, named and spelled as a file has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET

from interlock.model.durations import spelled_duration
from interlock.model.plan import EnvGroup
from interlock.plan.config import DEFAULT_JUDGE_CLIP_CHARS, DEFAULT_TIMEOUT_MS, Config, Engine, Origin
from interlock.plan.config_kinds import AGENT, ENV, LIMITS, LLM, RUN, SECTIONS

DEFAULT_MAX_CONCURRENCY: Final = 256
"""Units of a run, with its child runs, that are at work at the same time, where nobody says otherwise."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One effective setting as `interlock config` shows it; `origin` is None for a built-in default."""

    key: str
    value: Any
    origin: Origin | None = None


def effective(config: Config) -> tuple[Entry, ...]:
    """Return every setting that holds, defaults included, sorted by key; names and values as a file has them.

    The default of `run.python` is not known here: it depends on what is there.
    """
    values: dict[str, Any] = {
        "run.journal": "sqlite",
        "run.executor": "local",
        "run.max_concurrency": DEFAULT_MAX_CONCURRENCY,
        "run.timeout": spelled_duration(DEFAULT_TIMEOUT_MS),
        "run.idle_timeout": spelled_duration(None),
        "run.judge_clip_chars": DEFAULT_JUDGE_CLIP_CHARS,
    }
    given = {key: value for key, value in msgspec.structs.asdict(config.run).items() if value is not UNSET}
    for key in ("timeout", "idle_timeout"):
        if f"{key}_ms" in given:
            given[key] = spelled_duration(given.pop(f"{key}_ms"))
    limits = {key: value for key, value in msgspec.structs.asdict(config.plan_limits()).items() if key in LIMITS}
    values |= _flat("run", given) | _flat("limits", limits)
    for name, engine in config.engines.items():
        values |= _flat(f"engines.{name}", _engine(engine, config))
    for name, group in config.env.items():
        values |= _flat(f"env.{name}", _group(group))
    for name, alias in config.models.items():
        values |= _flat(f"models.{name}", alias)
    return tuple(Entry(key=key, value=values[key], origin=config.origins.get(key)) for key in sorted(values))


def known_keys(config: Config) -> set[str]:
    """Return the name of every setting and table that there is: those of any file, and what this one names."""
    engines = {f"engines.{name}.{key}" for name, one in config.engines.items() for key in _keys_of(one)}
    groups = {f"env.{name}.{key}" for name in config.env for key in ENV}
    fixed = {f"run.{key}" for key in RUN} | {f"limits.{key}" for key in LIMITS}
    models = {f"models.{name}.{key}" for name, alias in config.models.items() for key in alias}
    settings = {*SECTIONS, *fixed, *engines, *groups, *models}
    return settings | {key.rpartition(".")[0] for key in settings if "." in key}


def _keys_of(engine: Engine) -> Iterable[str]:
    if engine.kind == "llm":
        return LLM
    # of any other agent it is known what it prints
    return AGENT if engine.agent == "command" else AGENT.keys() - {"output"}


def _engine(engine: Engine, config: Config) -> dict[str, Any]:
    fields = msgspec.structs.asdict(engine)
    written = {key for key in fields if f"engines.{engine.name}.{key}" in config.origins}
    found = {key: fields[key] for key in _keys_of(engine) if key in written or fields[key] not in (None, ())}
    if engine.api_key is not None:
        found["api_key"] = f"${engine.api_key}"
    return found


def _group(group: EnvGroup) -> dict[str, Any]:
    secrets = {
        source.name: {"command": source.command} if source.command else {"var": source.var} for source in group.secrets
    }
    found = {"vars": group.vars, "dotenv": group.dotenv, "secrets": secrets}
    return {key: value for key, value in found.items() if value}


def _flat(table: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{table}.{key}": msgspec.to_builtins(value) for key, value in fields.items()}
