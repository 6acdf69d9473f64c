"""`interlock config`: the configuration in force, and where each value came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from interlock.cli.options import example, json_option
from interlock.cli.output import say, style, write_json_list
from interlock.cli.session import Session
from interlock.cli.text import compact, safe
from interlock.driver.configuration import in_force
from interlock.errors import UsageError
from interlock.plan.config import Config
from interlock.plan.config_shown import Entry, known_keys
from interlock.plan.diagnose import did_you_mean


@click.command(epilog=example("interlock config", "interlock config run --json"))
@click.argument("prefix", default="", metavar="[KEY]")
@json_option("Print a JSON list of `{key, value, file, line}`.")
@click.pass_obj
def command(session: Session, prefix: str, *, as_json: bool) -> None:
    """Show the configuration in force and where each value came from.

    With KEY, only that key and those below it. Secrets are names of variables or commands here, never values.
    """
    app = session.app
    if prefix:
        _check(prefix, app.config)
    entries = in_force(app.config, app.project)
    entries = [entry for entry in entries if not prefix or f"{entry.key}.".startswith(f"{prefix}.")]
    if as_json:
        write_json_list(_view(entry) for entry in entries)
        return
    say(style(f"project {app.project.root}", dim=True))
    _show(entries)


def _check(name: str, config: Config) -> None:
    """Refuse a name that no file could have."""
    known = known_keys(config)
    if name not in known:
        hint = did_you_mean(name, sorted(known)) or "see them all: interlock config"
        raise UsageError("unknown-key", f"there is no setting or table '{name}'", hint)


def _view(entry: Entry) -> dict[str, Any]:
    origin = entry.origin
    place = (origin.file, origin.place.line) if origin else (None, None)
    return {"key": entry.key, "value": entry.value, "file": place[0], "line": place[1]}


def _show(entries: Sequence[Entry]) -> None:
    if not entries:
        say("nothing is configured there, and there is no default")
        return
    width = max(len(entry.key) for entry in entries)
    values = {entry.key: compact(entry.value) for entry in entries}
    value_width = min(32, max(map(len, values.values())))
    for entry in entries:
        origin = f"{entry.origin.file}:{entry.origin.place.line}" if entry.origin else "default"
        say(f"{entry.key:<{width}}  {values[entry.key]:<{value_width}}  {style(safe(origin), dim=True)}")
