"""Model aliases: which exact id an engine is asked for, when somebody says `deep`.

Guarantee: an alias is looked up by engine name, then by agent or API name, then as `*`; what is no alias is an
exact id and passes unchanged. An id that an alias gives is never looked up again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from interlock.errors import Severity
from interlock.plan.config import Config, Engine, Finding, at_origin
from interlock.plan.config_kinds import APIS
from interlock.plan.diagnose import did_you_mean, nearest, shown, suggest

ANY = "*"


def exact_model(config: Config, name: str, engine: Engine) -> str | None:
    """Return the exact id that `name` means for `engine`, None when it is an alias that says nothing for it."""
    alias = config.models.get(name)
    if alias is None:
        return name
    return next((alias[key] for key in (engine.name, engine.driver, ANY) if key in alias), None)


def silent_alias(name: str, engine: Engine) -> tuple[str, str]:
    """Return message and hint for an alias that says nothing for `engine`."""
    message = f"model alias '{shown(name)}' says nothing for engine '{engine.name}' ({engine.driver})"
    return message, f'add {engine.name} = "MODEL-ID" or "*" = "MODEL-ID" below [models.{name}]'


def mistaken_alias(config: Config, name: str) -> str:
    """Return `did you mean ...?` for a word that is no alias, but looks like one rather than like an exact id."""
    like_an_id = any(character.isdigit() or character in "/:" for character in name)
    return "" if name in config.models or like_an_id else did_you_mean(name, config.models)


def check_models(config: Config, agents: Collection[str]) -> Iterator[Finding]:
    """Report engines whose own model is an alias that says nothing for them, and keys of aliases that name nobody.

    Such a key is an error where it is why an alias says nothing for an engine, which then is not told as well.
    """
    known = (*config.engines, *agents, *APIS, ANY)
    unknown = {
        name: {key: nearest(key, known) for key in alias if key not in known} for name, alias in config.models.items()
    }
    silenced: set[tuple[str, str]] = set()
    for engine in config.engines.values():
        if not engine.driver or engine.model is None or exact_model(config, engine.model, engine) is not None:
            continue
        meant = {key for key, near in unknown[engine.model].items() if near in (engine.name, engine.driver)}
        silenced |= {(engine.model, key) for key in meant}
        key = f"engines.{engine.name}.model"
        if not meant and not config.doubts(f"models.{engine.model}"):
            yield at_origin(config, key, "silent-alias", *silent_alias(engine.model, engine))
    for name, keys in unknown.items():
        for key, near in keys.items():
            if config.doubts(f"engines.{key}"):
                continue
            message = f"model alias '{name}' names '{shown(key)}', which is no engine, agent or API"
            hint = f"did you mean '{near}'?" if near else suggest(key, config.engines)
            severity: Severity = "error" if (name, key) in silenced else "warning"
            yield at_origin(config, f"models.{name}.{key}", "unknown-engine", message, hint, severity=severity)
