"""`interlock gc`: remove old runs, and what nothing refers to."""

from __future__ import annotations

import click

from interlock.cli.options import Duration, example, json_option
from interlock.cli.output import say, write_json
from interlock.cli.session import Session
from interlock.cli.text import count, safe, size
from interlock.driver.gc import GcReport
from interlock.store.room import Room
from interlock.views.values import SCHEMA


@click.command(epilog=example("interlock gc --older-than 30d --dry-run", "interlock gc --older-than 90d"))
@click.option(
    "--older-than",
    type=Duration(),
    default="30d",
    show_default=True,
    metavar="TIME",
    help="Runs that ended longer ago than this.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option()
@click.pass_obj
def command(session: Session, older_than: int, *, dry_run: bool, as_json: bool) -> None:
    """Remove runs that ended long ago, with their logs, artifacts that no run refers to, and unchanged worktrees.

    A worktree that holds something is never removed: see `interlock worktrees`. A run that can still go on by itself (active, waiting, blocked), that is driven at this moment, or that a fork may take more from is never removed.
    """
    app = session.app
    there = app.project.journal.exists()
    report = app.gc(older_than_ms=older_than, dry_run=dry_run) if there else GcReport(runs=(), artifacts=0)
    if as_json:
        view = {"schema": SCHEMA, "runs": report.runs, "kept": report.kept}
        write_json({**view, "artifacts": report.artifacts, "worktrees": report.worktrees, "journal": report.journal})
        return
    verb = "would remove" if dry_run else "removed"
    for run in report.runs:
        say(f"{verb} run {safe(run)}")
    for one in report.kept:
        say(f"kept: {safe(one.why)}")
    for path in report.worktrees:
        say(f"{verb} unchanged worktree {safe(path)}")
    if report.journal is not None:
        _say_room(report.journal)
    say(f"{verb} {count(len(report.runs), 'run')} and {count(report.artifacts, 'artifact')}")


def _say_room(room: Room) -> None:
    if room.given_back_bytes:
        say(f"gave {size(room.given_back_bytes)} of the journal back to the disk")
    if room.why and not room.free_bytes:
        say(f"the journal's file gets smaller later: {room.why}")
    elif room.why:
        say(f"kept {size(room.free_bytes)} in the journal for later runs: {room.why}")
