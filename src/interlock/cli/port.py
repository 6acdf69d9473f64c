"""What the command line asks of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from interlock.errors import Diagnostic
from interlock.model.events import Event
from interlock.model.run import Snapshot
from interlock.store.base import Store

OnEvent = Callable[[Sequence[Event], Snapshot], None]


class ParamsInput(msgspec.Struct, frozen=True, kw_only=True):
    cli: list[tuple[str, str]] = []
    file: Path | None = None
    values: Mapping[str, Any] | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    state: str
    outcome: str | None
    exit_code: int
    reason: str | None
    detail: str


class Check(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ok: bool
    detail: str
    hint: str = ""


class App(Protocol):
    store: Store
    project: Any
    config: Any

    def close(self) -> None: ...
    def driven(self, run_id: str) -> bool: ...

    def lint(self, paths: Sequence[Path]) -> list[Diagnostic]: ...
    def preview(self, target: str, params: ParamsInput) -> Any: ...
    def run_file(
        self,
        path: Path,
        params: ParamsInput,
        *,
        key: str | None = None,
        if_running: Literal["fail", "skip"] | None = None,
        timeout_s: float | None = None,
        on_event: OnEvent | None = None,
    ) -> Result: ...
    def run_id(
        self, run_id: str, *, wait: bool = False, timeout_s: float | None = None, on_event: OnEvent | None = None
    ) -> Result: ...
    def resume(
        self,
        run_id: str,
        *,
        raises: Mapping[str, float] = {},
        loops: int = 0,
        accept_changes: bool = False,
        on_event: OnEvent | None = None,
    ) -> Result: ...
    def abandon(self, run_id: str) -> Result: ...
    def resolve(self, run_id: str, unit_id: str, *, done: bool, result_json: str | None) -> Result: ...
    def find(self, text: str) -> str: ...
    def gc(self, *, older_than_ms: int, dry_run: bool) -> Any: ...
    def doctor(self) -> list[Check]: ...
