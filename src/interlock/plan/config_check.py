"""What can be said of a configuration only when all its files are laid over each other: names that lead nowhere."""

from __future__ import annotations

from interlock.errors import Diagnostic
from interlock.plan.config import Config, at_origin
from interlock.plan.diagnose import suggest
from interlock.plan.models import check_models


def check_config(config: Config) -> tuple[Diagnostic, ...]:
    """Report engines of `[run]`, env groups of engines and model aliases that name what is not configured."""
    return tuple(sorted((*_run_engines(config), *_engine_groups(config), *check_models(config))))


def _run_engines(config: Config) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for key in ("engine", "judge"):
        name = getattr(config.run, key)
        if isinstance(name, str) and name not in config.engines:
            hint = suggest(name, config.engines) or f"add [engines.{name}]"
            found += at_origin(config, f"run.{key}", "unknown-engine", f"no engine is named '{name}'", hint)
    return found


def _engine_groups(config: Config) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for engine in config.engines.values():
        for group in engine.env:
            if group not in config.env:
                hint = suggest(group, config.env) or f"add [env.{group}]"
                message = f"no env group is named '{group}'"
                found += at_origin(config, f"engines.{engine.name}.env", "unknown-env", message, hint)
    return found
