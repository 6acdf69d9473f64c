"""What the author wrote, checked for form but not yet resolved: no file but the workflow itself was read.

`plan/compile.py` makes a `Workflow` from text; `plan/resolve.py` turns it into a `Plan`. Every value that a
later diagnostic may have to point at has its place. `UNSET` is a setting that the author left out; `None`
where a setting may be `none` means exactly that.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from interlock.model.plan import Budget, Input, Param, Reference, Retry, Route


class Place(msgspec.Struct, frozen=True, order=True):
    """Where something stands: line and column from 1, and the caret's width."""

    line: int
    column: int
    length: int = 1


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a step after step, map and `defaults` were laid over each other (configuration was not)."""

    engine: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    timeout_ms: int | UnsetType | None = UNSET
    idle_timeout_ms: int | UnsetType | None = UNSET
    retry: Retry | UnsetType = UNSET
    on_error: Literal["fail", "continue"] | UnsetType = UNSET
    env: tuple[str, ...] | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    isolation: Literal["none", "worktree"] | UnsetType = UNSET
    worktree_base: Reference | UnsetType = UNSET
    worktree_uncommitted: bool | UnsetType = UNSET
    effects: Literal["internal", "external"] | UnsetType = UNSET
    probe: RunDecl | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    max_tokens: int | UnsetType = UNSET
    extra_params: dict[str, Any] | UnsetType = UNSET
    resources: dict[str, Any] | UnsetType = UNSET


class RunDecl(msgspec.Struct, frozen=True, kw_only=True):
    """A command: `text` for the shell or `argv`."""

    place: Place
    text: str | None = None
    argv: tuple[str, ...] = ()


class UsesDecl(msgspec.Struct, frozen=True, kw_only=True):
    """`uses:` as written. `kind` follows from its form alone."""

    place: Place
    text: str
    kind: Literal["script", "workflow", "python", "library"]


class PromptDecl(msgspec.Struct, frozen=True, kw_only=True):
    """The step's section of the body, byte for byte with LF line ends."""

    place: Place
    text: str


TargetDecl = RunDecl | UsesDecl | PromptDecl


class MapDecl(msgspec.Struct, frozen=True, kw_only=True):
    """`map:` of a step."""

    over: Reference
    concurrency: int | None = None
    reducer: Literal["collect", "vote", "merge"] = "collect"
    item_schema_json: str | None = None


class GateDecl(msgspec.Struct, frozen=True, kw_only=True):
    """`gate:` and the `### gate` rubric of a step."""

    place: Place
    check: RunDecl | None = None
    judge: str | None = None
    judges: int = 1
    approval: bool = False
    max_loops: int | None = None
    each: bool = False
    rubric: str | None = None


class StepDecl(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `steps:`. `target` is None for a route. `places` maps key paths (`map.over`) to places."""

    id: str
    place: Place
    needs: tuple[str, ...]
    """Effective: as written, or the step before."""
    explicit_needs: bool
    routers: tuple[str, ...]
    target: TargetDecl | None
    settings: Settings
    map: MapDecl | None = None
    route: Route | None = None
    inputs: tuple[Input, ...] = ()
    with_: dict[str, Reference | Any] = {}
    output_schema_json: str | None = None
    gate: GateDecl | None = None
    places: dict[str, Place] = {}
    defaulted: frozenset[str] = frozenset()
    """Settings that come from `defaults` alone."""


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow file. `lines` are its source lines, for diagnostics."""

    file: str
    lines: tuple[str, ...]
    source_sha256: str
    name: str
    description: str = ""
    params: tuple[Param, ...] = ()
    steps: tuple[StepDecl, ...]
    budget: Budget = Budget()
    envelope: dict[str, Any] = {}
    notices: tuple[str, ...] = ()
