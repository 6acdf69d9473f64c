"""`interlock run`: start a workflow, or continue a run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Literal, cast

import click

from interlock.app import App
from interlock.cli.driving import drive
from interlock.cli.findings import warn
from interlock.cli.options import Duration, Money, RunOrFile, Text, example, json_option, params_options
from interlock.cli.output import note
from interlock.cli.session import Session
from interlock.driver.loop import Observer
from interlock.driver.params import NO_PARAMS, ParamsInput
from interlock.driver.result import Result
from interlock.errors import UsageError
from interlock.model.states import RunState

_FILE_ONLY = {"params": "-p", "params_file": "--params-file", "key": "--key", "if_running": "--if-running"}


@click.command(
    epilog=example(
        "interlock run review.md -p base=main",
        "interlock run last",
        "interlock run review.md --confirm-over 5usd",
        "interlock run nightly.md --key 2026-11-30 --if-running skip --json",
    )
    + "\n\n\b\nExit codes: 0 done, 1 failed, 2 wrong usage or invalid workflow, 3 a gate rejected a step\n"
    "or couldn't judge it, 4 waiting for a person, 5 another driver holds the run, 6 done but degraded,\n"
    "75 try again later, 78 configuration wrong, 130 interrupted (the run can be continued)."
)
@click.argument("target", type=RunOrFile(), metavar="FILE|RUN")
@params_options
@click.option(
    "--key",
    type=Text(),
    metavar="KEY",
    help="Continue the unfinished run of this key, plan and params, or give its finished outcome.",
)
@click.option(
    "--if-running", type=click.Choice(["fail", "skip"]), help="What to do while another run of FILE is driven."
)
@click.option("--wait", is_flag=True, help="Sleep until a waiting run is due, and go on.")
@click.option(
    "--timeout", type=Duration(), metavar="TIME", help="Interrupt the run after this long; it can be continued."
)
@click.option(
    "--confirm-over",
    type=Money(),
    metavar="SUM",
    help="Show what it may cost and ask first if that is more than SUM or unknown; without a terminal, refuse.",
)
@json_option("Print NDJSON: one event a line, the status last.")
@click.pass_obj
def command(session: Session, /, target: str, **options: Any) -> int:  # noqa: ANN401 - one value per option above
    """Start a new run of a workflow FILE, or continue the RUN of that id.

    Nothing resumes silently: a FILE always starts a new run unless --key says otherwise.
    """
    if not target.strip():
        raise UsageError(
            "blank-target", "the workflow or run id is blank", "give a FILE or a RUN; see `interlock list`"
        )
    if options["key"] is not None and not options["key"].strip():
        # what was to make it has failed: without a key this would start the run once more
        raise UsageError("blank-key", "--key is blank", "give the key that says which run is meant, or leave it out")
    timeout_s = None if options["timeout"] is None else options["timeout"] / 1000
    path = Path(target)
    app = session.app
    if not _is_file(path, target):
        _refuse_file_options(options)
        run_id = session.find(target)
        _confirm(app, run_id, NO_PARAMS, options)
        return drive(
            app,
            lambda on_event: app.run_id(run_id, wait=options["wait"], timeout_s=timeout_s, on_event=on_event),
            as_json=options["as_json"],
        )
    if options["key"] is None:
        _mention_unfinished(app, path)
    _confirm(app, path, _params(options), options)
    return drive(app, lambda on_event: _run_file(app, path, options, timeout_s, on_event), as_json=options["as_json"])


def _is_file(path: Path, text: str) -> bool:
    return path.suffix == ".md" or "/" in text or path.is_file()


def _run_file(app: App, path: Path, options: dict[str, Any], timeout_s: float | None, on_event: Observer) -> Result:
    began = time.monotonic()
    result = app.run_file(
        path,
        _params(options),
        key=options["key"],
        if_running=cast("Literal['fail', 'skip'] | None", options["if_running"]),
        timeout_s=timeout_s,
        on_event=on_event,
        on_warning=warn,
    )
    if options["wait"] and result.state == RunState.WAITING:
        left_s = None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - began))
        return app.run_id(result.run_id, wait=True, timeout_s=left_s, on_event=on_event)
    return result


def _params(options: dict[str, Any]) -> ParamsInput:
    return ParamsInput(cli=list(options["params"]), file=options["params_file"])


def _confirm(app: App, target: str | Path, params: ParamsInput, options: dict[str, Any]) -> None:
    if options["confirm_over"] is None:
        return
    from interlock.cli.confirm import confirm_over  # noqa: PLC0415 - only where it was asked for

    confirm_over(app, target, params, options["confirm_over"])


def _refuse_file_options(options: dict[str, Any]) -> None:
    for name, flag in _FILE_ONLY.items():
        if options[name]:
            raise UsageError(
                "option-of-file",
                f"{flag} goes with a workflow file; a run keeps what it was started with",
                "leave it out to continue the run, or give the file to start a new one",
            )


def _mention_unfinished(app: App, path: Path) -> None:
    """Say that a run of the same file has not ended, the newest of them, and how to continue it."""
    if not app.project.journal.exists():
        return
    root = app.project.root
    real = Path(os.path.realpath(path))
    name = str(real.relative_to(root)) if real.is_relative_to(root) else str(real)
    for run in app.store.runs(limit=1, workflow=name, unfinished=True):
        if app.driven(run.id):
            advice = f"under way; watch it with `interlock events {run.id} --follow`"
        else:
            verb = "see what it needs" if run.state == RunState.BLOCKED else "continue it"
            command = "status" if run.state == RunState.BLOCKED else "run"
            advice = f"{run.state}; {verb} with `interlock {command} {run.id}`"
        note(f"note: run {run.id} of this file is {advice}")
