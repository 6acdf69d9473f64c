"""Configuration as values: what `interlock.toml` and the user's file may say, and how one lies over the other.

Guarantees: no secret's value is ever held, only names of variables, files and commands; every value that was
written has its origin, so that `interlock config` and later diagnostics can point at it.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from interlock.errors import Diagnostic, Severity
from interlock.model.plan import EnvGroup, Limits
from interlock.model.workflow import Place
from interlock.plan.diagnose import Source

DEFAULT_TIMEOUT_MS: Final = 600_000
"""Of a unit, where nobody says otherwise."""
DEFAULT_JUDGE_CLIP_CHARS: Final = 4_000
"""How much of an artifact a judge sees, where nobody says otherwise."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a configured value was written. `source_line` has no secrets in it."""

    file: str
    place: Place
    source_line: str = ""


_NOWHERE: Final = Origin(file="interlock.toml", place=Place(line=1, column=1))


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One `[engines.X]`. `api_key` is the name of a variable."""

    name: str
    kind: Literal["llm", "agent"]
    api: str | None = None
    agent: str | None = None
    base_url: str | None = None
    model: str | None = None
    api_key: str | None = None
    concurrency: int | None = None
    args: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    output: Literal["text", "json"] = "text"
    reserve_tokens: int = 20_000

    @property
    def driver(self) -> str:
        """Who is behind it: the API or the agent."""
        return self.api or self.agent or ""


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[run]`: what holds for every run here unless a workflow says otherwise."""

    engine: str | UnsetType = UNSET
    judge: str | UnsetType = UNSET
    max_concurrency: int | UnsetType = UNSET
    journal: str | UnsetType = UNSET
    executor: str | UnsetType = UNSET
    python: tuple[str, ...] | UnsetType = UNSET
    """argv prefix; a program with a slash is relative to the project's root."""
    timeout_ms: int | UnsetType | None = UNSET
    idle_timeout_ms: int | UnsetType | None = UNSET
    judge_clip_chars: int | UnsetType = UNSET


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """One file's configuration, or several laid over each other. `origins` is keyed by path: `run.engine`.

    `faulty` are the paths at which something was reported; the empty one is the whole file.
    """

    run: RunSettings = RunSettings()
    engines: dict[str, Engine] = {}
    models: dict[str, dict[str, str]] = {}
    env: dict[str, EnvGroup] = {}
    limits: dict[str, int] = {}
    origins: dict[str, Origin] = {}
    faulty: frozenset[str] = frozenset()

    def doubts(self, path: str) -> bool:
        """Tell whether a fault that was reported may be why nothing, or not the right thing, is known of `path`."""
        return any(not at or f"{path}.".startswith(f"{at}.") or at.startswith(f"{path}.") for at in self.faulty)

    def plan_limits(self) -> Limits:
        """Return the limits that a plan freezes."""
        capped = self.run.max_concurrency
        return Limits(max_concurrency=None if capped is UNSET else capped, **self.limits)


def merge_config(user: Config, project: Config) -> Config:
    """Lay the project's configuration over the user's: `[run]` and `[limits]` key by key, named tables whole."""
    run = {
        key: value
        for part in (user, project)
        for key, value in msgspec.structs.asdict(part.run).items()
        if value is not UNSET
    }
    replaced = tuple(f"{table}.{name}." for table in ("engines", "models", "env") for name in getattr(project, table))
    kept = {key: origin for key, origin in user.origins.items() if not f"{key}.".startswith(replaced)}
    return Config(
        run=RunSettings(**run),
        engines=user.engines | project.engines,
        models=user.models | project.models,
        env=user.env | project.env,
        limits=user.limits | project.limits,
        origins=kept | project.origins,
        faulty=user.faulty | project.faulty,
    )


Finding = tuple[str, Diagnostic]
"""What is wrong with a setting, beside its path."""


def at_origin(
    config: Config, key: str, code: str, message: str, hint: str = "", severity: Severity = "error"
) -> Finding:
    """Return one finding at the place where the setting `key` was written, else at the start of the project's file."""
    origin = config.origins.get(key, _NOWHERE)
    source = Source(origin.file, ("",) * (origin.place.line - 1) + (origin.source_line,))
    report = source.error if severity == "error" else source.warning
    report(origin.place, code, message, hint)
    (found,) = source.diagnostics()
    return key, found
