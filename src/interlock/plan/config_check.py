"""What can be said of a configuration only when all its files are laid over each other: names that lead nowhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec

from interlock.errors import Diagnostic
from interlock.plan.config import Config, Finding, at_origin
from interlock.plan.diagnose import did_you_mean, listed, shown, suggest
from interlock.plan.models import check_models


def check_config(config: Config, agents: Callable[[], Collection[str]]) -> tuple[Config, tuple[Diagnostic, ...]]:
    """Report what names something that is not there: engines of `[run]`, agents and env groups of engines, model aliases.

    `agents` gives the agents that there are; it is asked only where some engine or alias may name one. The
    configuration comes back with what is at fault in it marked as such.
    """
    named = config.models or any(engine.kind == "agent" for engine in config.engines.values())
    known = agents() if named else ()
    found = [*_run_engines(config), *_agents(config, known), *_engine_groups(config), *check_models(config, known)]
    faulty = {key for key, diagnostic in found if diagnostic.severity == "error"}
    marked = msgspec.structs.replace(config, faulty=config.faulty | faulty)
    return marked, tuple(sorted(diagnostic for _, diagnostic in found))


def _agents(config: Config, known: Collection[str]) -> Iterator[Finding]:
    for engine in config.engines.values():
        # one that names none is told of where it is read
        if engine.kind == "agent" and engine.driver and engine.driver not in known:
            message = f"'agent' must be {listed(sorted(known))}, not '{shown(engine.driver)}'"
            hint = did_you_mean(engine.driver, known)
            yield at_origin(config, f"engines.{engine.name}.agent", "unknown-agent", message, hint)


def _run_engines(config: Config) -> Iterator[Finding]:
    for key in ("engine", "judge"):
        name = getattr(config.run, key)
        if isinstance(name, str) and name not in config.engines and not config.doubts(f"engines.{name}"):
            hint = suggest(name, config.engines) or f"add [engines.{name}]"
            yield at_origin(config, f"run.{key}", "unknown-engine", f"no engine is named '{name}'", hint)


def _engine_groups(config: Config) -> Iterator[Finding]:
    for engine in config.engines.values():
        for group in engine.env:
            if group not in config.env and not config.doubts(f"env.{group}"):
                hint = suggest(group, config.env) or f"add [env.{group}]"
                message = f"no env group is named '{group}'"
                yield at_origin(config, f"engines.{engine.name}.env", "unknown-env", message, hint)
