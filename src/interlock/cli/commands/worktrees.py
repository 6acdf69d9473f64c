"""`interlock worktrees`: what units left in worktrees of their own, to be seen, taken over or dropped."""

from __future__ import annotations

import os
import sys

import click
import msgspec

from interlock.cli.options import RunId, example, json_option
from interlock.cli.output import say, table, write_json, write_json_list
from interlock.cli.session import Session
from interlock.cli.text import compact, count, safe
from interlock.cli.tree_units import named, units_of
from interlock.decide.worktrees import safe_name
from interlock.driver.worktrees import KeptTree, Worktrees
from interlock.errors import UsageError
from interlock.store.base import UnitRow
from interlock.views.values import SCHEMA

_RUN = click.argument("run", type=RunId(), metavar="[RUN]", required=False)
_UNIT = click.argument("unit", metavar="[UNIT]", required=False)


@click.group(epilog=example("interlock worktrees list last", "interlock worktrees diff last fix:4e07408562bedb8b"))
def command() -> None:
    """See, apply and drop what units with `isolation: worktree` left.

    RUN is an id, its beginning or `last`; UNIT is a unit as `interlock units` or `list` shows it, the beginning of one, or
    UNIT/ATTEMPT. It is read from git and from the folders, so it is there even when the journal is gone; that is only
    asked for the items.
    """


@command.command("list", epilog=example("interlock worktrees list", "interlock worktrees list last --json"))
@_RUN
@_UNIT
@json_option("Print a JSON list.")
@click.pass_obj
def list_(session: Session, run: str | None, unit: str | None, *, as_json: bool) -> None:
    """List what is kept, and worktrees that are in use or were left by a crash."""
    _, trees = _selected(session, run, unit)
    if as_json:
        known = units_of(session.app, {tree.run for tree in trees})
        write_json_list({"schema": SCHEMA, **_view(tree), **named(known.get((tree.run, tree.unit)))} for tree in trees)
    elif trees:
        known = units_of(session.app, {tree.run for tree in trees})
        rows = [_row(tree, known.get((tree.run, tree.unit))) for tree in trees]
        widths = [max(len(safe(row[at])) for row in rows) for at in range(5)]
        table(
            ("RUN", "UNIT", "ITEM", "COMMIT", "FILES", "FOLDER"),
            (tuple(map(safe, row)) for row in rows),
            [max(width, least) for width, least in zip(widths, (3, 4, 4, 12, 8), strict=True)],
        )
    else:
        say("nothing is kept; units with `isolation: worktree` that change something leave it here")


@command.command(
    epilog=example("interlock worktrees diff last fix:4e07408562bedb8b", "interlock worktrees diff last > all.patch")
)
@_RUN
@_UNIT
@json_option("Print a JSON list of commits and patches.")
@click.pass_obj
def diff(session: Session, run: str | None, unit: str | None, *, as_json: bool) -> None:
    """Show what was changed since the worktree began, as a patch."""
    worktrees, trees = _selected(session, run, unit, newest=True)
    settled = [tree for tree in trees if tree.commit is not None] if unit is None else trees
    patches = ((tree, worktrees.diff(tree)) for tree in settled)
    if as_json:
        write_json_list(
            {"schema": SCHEMA, **_view(tree), "patch": patch.decode("utf-8", "replace")} for tree, patch in patches
        )
        return
    for tree, patch in patches:
        if len(trees) > 1:
            say(f"# {safe(tree.name)}")
        sys.stdout.flush()
        sys.stdout.buffer.write(patch)
        sys.stdout.buffer.flush()


@command.command(epilog=example("interlock worktrees apply last fix:4e07408562bedb8b"))
@_RUN
@_UNIT
@json_option("Print what was applied as JSON.")
@click.pass_obj
def apply(session: Session, run: str | None, unit: str | None, *, as_json: bool) -> None:
    """Bring one unit's changes into your checkout: files only, nothing is staged or committed.

    It is merged with what your checkout holds now. What does not fit, or would overwrite changes of yours that are not
    committed, changes nothing and is told.
    """
    worktrees, trees = _selected(session, run, unit, newest=True)
    tree = _one(trees)
    paths = worktrees.apply(tree)
    if as_json:
        write_json({"schema": SCHEMA, **_view(tree), "applied": [safe(path) for path in paths]})
        return
    for path in paths:
        say(safe(path))
    say(f"applied {count(len(paths), 'file')} of {safe(tree.name)}; see them with `git status` and `git diff`")


@command.command(
    epilog=example("interlock worktrees drop last fix:4e07408562bedb8b", "interlock worktrees drop last --yes")
)
@_RUN
@_UNIT
@click.option("--yes", is_flag=True, help="Drop several without naming each.")
@json_option("Print what was dropped as a JSON list.")
@click.pass_obj
def drop(session: Session, run: str | None, unit: str | None, *, yes: bool, as_json: bool) -> None:
    """Remove folder, registration and refs of what is kept. What was only there is gone then."""
    if unit is None and not yes:
        raise UsageError("needs-confirmation", "dropped nothing: no unit was named", "name one, or say --yes for all")
    worktrees, trees = _selected(session, run, unit)
    busy = sorted({tree.run for tree in trees if _driven(session, tree.run)})
    if busy:
        raise UsageError("run-driven", f"dropped nothing: run {busy[0]} is under way", "wait until it has ended")
    units = {tree.unit for tree in trees}
    if unit is not None and not yes and (len(units) > 1 or (len(trees) > 1 and units != {safe_name(unit)})):
        names = ", ".join(f"{tree.unit}/{tree.attempt}" for tree in trees[:5])
        raise UsageError(
            "needs-confirmation",
            f"dropped nothing: '{safe(unit)}' is the beginning of {len(trees)}: {names}",
            "name one, or say --yes for all of them",
        )
    worktrees.refuse_drop(trees)
    for tree in trees:
        worktrees.drop(tree)
    if as_json:
        write_json_list({"schema": SCHEMA, **_view(tree)} for tree in trees)
    else:
        say(f"dropped {count(len(trees), 'worktree')}")


def _folder(tree: KeptTree) -> str:
    """A folder that was deleted, or that another run's unit worked in, is none to look into."""
    return tree.path if os.path.lexists(tree.path) else "-"


def _selected(
    session: Session, run: str | None, unit: str | None, *, newest: bool = False
) -> tuple[Worktrees, list[KeptTree]]:
    project = session.app.project
    worktrees = Worktrees(project.root, project.state_dir)
    select = worktrees.newest if newest else worktrees.select
    return worktrees, select(session.find(run) if run == "last" else run, unit)


def _row(tree: KeptTree, unit: UnitRow | None) -> tuple[str, ...]:
    item = "-" if unit is None or unit.item is None else compact(unit.item.decode("utf-8", "replace"), 28)
    return (tree.run, f"{tree.unit}/{tree.attempt}", item, _state(tree), _files(tree), _folder(tree))


def _one(trees: list[KeptTree]) -> KeptTree:
    settled = [tree for tree in trees if tree.commit is not None]
    if len(settled) == 1:
        return settled[0]
    if not settled:
        raise UsageError("nothing-kept", "nothing is kept to apply", "see: interlock worktrees list")
    names = ", ".join(f"{tree.unit}/{tree.attempt}" for tree in settled[:5])
    raise UsageError("several-kept", f"several are kept: {names}", "name one: interlock worktrees apply RUN UNIT")


def _driven(session: Session, run: str) -> bool:
    app = session.app
    return app.project.journal.exists() and run in app.store.match(run) and app.driven(run)


def _state(tree: KeptTree) -> str:
    return tree.commit[:12] if tree.commit else "not settled"


def _files(tree: KeptTree) -> str:
    extra = f" +{len(tree.beside)}" if tree.beside else ""
    return f"{tree.files}{extra}" if tree.commit else "-"


def _view(tree: KeptTree) -> dict[str, object]:
    return {name: safe(value) if isinstance(value, str) else value for name, value in msgspec.to_builtins(tree).items()}
