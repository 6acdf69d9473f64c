"""Where the engines of a frozen plan are reached now: settings are read from the configuration at dispatch.

Guarantees: an engine that is gone, or that is something else than what was frozen, is a ConfigError that names it;
nothing is asked of another one in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from interlock.dispatch.base import EngineSettings
from interlock.dispatch.prompts.env import key_name
from interlock.errors import ConfigError
from interlock.model.plan import Engine as Frozen
from interlock.plan.config import Config, Engine, at_origin
from interlock.plan.diagnose import did_you_mean

_ANEW: Final = "or start a new run of the workflow"


def settings_of(config: Config, frozen: Iterable[Frozen] = ()) -> Callable[[str], EngineSettings]:
    """Return the settings of an engine by its name; asking raises ConfigError when it is not the frozen one."""
    known = {engine.name: engine for engine in frozen}

    def settings(name: str) -> EngineSettings:
        found = config.engines.get(name)
        if found is None:
            raise _gone(config, name)
        was = known.get(name)
        if was is not None and (was.kind, was.driver) != (found.kind, found.driver):
            raise _changed(config, was, found)
        return _settings(found)

    return settings


def key_names(config: Config) -> tuple[str, ...]:
    """Return the variables that hold the keys of all engines."""
    names = (key_name(_settings(engine)) for engine in config.engines.values())
    return tuple(dict.fromkeys(name for name in names if name is not None))


def _settings(engine: Engine) -> EngineSettings:
    return EngineSettings(
        name=engine.name,
        kind=engine.kind,
        driver=engine.driver,
        base_url=engine.base_url,
        api_key=engine.api_key,
        concurrency=engine.concurrency,
        args=engine.args,
        command=engine.command,
        output=engine.output,
    )


def _gone(config: Config, name: str) -> ConfigError:
    near = did_you_mean(name, config.engines)
    hint = f"add [engines.{name}] again, {_ANEW}" + (f" ({near})" if near else "")
    message = f"the plan asks engine '{name}', which is configured no longer"
    _, found = at_origin(config, f"engines.{name}", "engine-gone", message, hint)
    return ConfigError((found,))


def _changed(config: Config, was: Frozen, found: Engine) -> ConfigError:
    message = (
        f"engine '{was.name}' was {_called(was.kind, was.driver)} when the plan was frozen, "
        f"and is {_called(found.kind, found.driver)} now"
    )
    key = f"engines.{was.name}.{'api' if found.kind == 'llm' else 'agent'}"
    _, changed = at_origin(config, key, "engine-changed", message, f"change it back, {_ANEW}")
    return ConfigError((changed,))


def _called(kind: str, driver: str) -> str:
    return f"the {driver} API" if kind == "llm" else f"agent {driver}"
