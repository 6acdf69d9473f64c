"""What `approve` and `reject` share: whose gate is meant, and what came of it."""

from __future__ import annotations

from interlock.app import App
from interlock.cli.acted import show_done
from interlock.cli.text import safe
from interlock.errors import UsageError


def target_of(app: App, run_id: str, target: str | None) -> str | None:
    """Return what of the run is meant, a step, a gate or a gate's unit; the engine decides whether it waits for anybody."""
    if target is None:
        return None
    steps = [row.id for row in app.store.steps(run_id)]
    step, dot, _ = target.partition(".gate")
    if step in steps and not dot:
        return target
    if step in steps and (found := _gate_unit(app, run_id, steps.index(step), target)):
        return found
    from interlock.plan.diagnose import suggest  # noqa: PLC0415 - only a typing slip needs it

    hint = suggest(target, steps) or f"see what waits: interlock status {run_id}"
    raise UsageError("unknown-gate", f"run {run_id} has no step or gate unit '{target}'", hint)


def _gate_unit(app: App, run_id: str, step: int, name: str) -> str | None:
    """Return the id of the unit that `name` is, or whose gate it is: then the person's own."""
    asked = {unit.id for unit in app.store.units(run_id, step=step) if unit.kind != "work"}
    return next((known for known in (name, f"{name}.approval") if known in asked), None)


def show_verdict(app: App, run_id: str, verdict: str, target: str | None, *, as_json: bool) -> None:
    """Say what was journaled and what to type next."""
    text = f"{verdict}{f' {safe(target)}' if target else ''}; run {run_id}"
    show_done(app, run_id, verdict, text, as_json=as_json, target=target)
