"""`interlock doctor`: what this host and project allow."""

from __future__ import annotations

import click

from interlock.cli.marks import mark
from interlock.cli.options import example, json_option
from interlock.cli.output import say, style, write_json_list
from interlock.cli.session import Session
from interlock.cli.text import safe


@click.command(epilog=example("interlock doctor"))
@json_option("Print a JSON list of checks.")
@click.pass_obj
def command(session: Session, *, as_json: bool) -> int:
    """Check this host and project; exits 1 if something that interlock promises does not hold here."""
    checks = session.app.doctor()
    if as_json:
        write_json_list(
            {"name": check.name, "ok": check.ok, "detail": check.detail, "hint": check.hint} for check in checks
        )
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            sign = mark("completed" if check.ok else "failed")
            say(f"{style(sign.sign, fg=sign.colour)} {check.name:<{width}}  {safe(check.detail)}")
            if check.hint:
                say(f"  {'':<{width}}  hint: {safe(check.hint)}")
    return 0 if all(check.ok for check in checks) else 1
