"""`interlock doctor`: what this host and project allow."""

from __future__ import annotations

import click

from interlock.app import App
from interlock.cli.called import spelled
from interlock.cli.marks import mark
from interlock.cli.options import example, json_option
from interlock.cli.output import say, style, write_json_list
from interlock.cli.session import Session
from interlock.cli.text import count, safe
from interlock.driver.configuration import is_faulty
from interlock.driver.doctor.checks import Check, check_host
from interlock.errors import ConfigError, StoreError
from interlock.model.states import RunState
from interlock.plan.config import Config


@click.command(epilog=example("interlock doctor"))
@json_option("Print a JSON list of checks.")
@click.pass_obj
def command(session: Session, *, as_json: bool) -> int:
    """Check this host, this project and its engines.

    Of each engine it says whether it is there, which version, whether its key is set, and what it can't do; no prompt
    is sent. Of each env group it says whether its variables, files and programs are there; no secret is read. Exits 1
    if something that interlock promises, or that is configured, is not to be had here. Faults of the configuration are
    told last, with exit 78; what doesn't depend on them is checked.
    """
    app = session.app
    config, faults = app.config_as_read
    wrong = ConfigError(faults) if is_faulty(faults) else None
    checks = [*_host(app), *_interpreter(app, config), _journal(app), *_groups(app, config), *_engines(app, config)]
    if wrong:
        hint = "mend what is told of it; what depends on it was not checked"
        checks.append(Check(name="configuration", ok=False, detail=wrong.message, hint=hint))
    if as_json:
        write_json_list(
            {
                "name": check.name,
                "ok": check.ok,
                "detail": check.detail,
                "hint": check.hint,
                "notes": check.notes,
            }
            for check in checks
        )
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            sign = mark("completed" if check.ok else "failed")
            say(f"{style(sign.sign, fg=sign.colour)} {check.name:<{width}}  {safe(check.detail)}")
            for text in check.notes:
                say(f"  {'':<{width}}  note: {safe(text)}")
            if check.hint:
                say(f"  {'':<{width}}  hint: {safe(spelled(check.hint))}")
    if wrong:
        raise wrong
    return 0 if all(check.ok for check in checks) else 1


def _host(app: App) -> list[Check]:
    from interlock.driver.doctor.project import check_state  # noqa: PLC0415 - `--help` needs none of it

    blocked = check_state(app.project)
    return [
        blocked if blocked and blocked.name == check.name else check
        for check in check_host(app.project.root, app.project.state_dir)
    ]


def _interpreter(app: App, config: Config) -> list[Check]:
    if config.doubts("run.python"):
        return []
    from interlock.driver.doctor.project import check_interpreter  # noqa: PLC0415 - as above

    configured = config.run.python
    return [check_interpreter(app.project, configured if isinstance(configured, tuple) else ())]


def _groups(app: App, config: Config) -> list[Check]:
    groups = [group for name, group in config.env.items() if not config.doubts(f"env.{name}")]
    if not groups:
        return []
    from interlock.driver.doctor.env import check_groups  # noqa: PLC0415 - only where env groups are configured

    return check_groups(groups, app.project.root)


def _engines(app: App, config: Config) -> list[Check]:
    engines = [engine for name, engine in config.engines.items() if not config.doubts(f"engines.{name}")]
    if not engines:
        return []
    from interlock.driver.doctor.engines import check_engines  # noqa: PLC0415 - only where engines are configured

    return check_engines(engines, app.project.root, config.env)


def _journal(app: App) -> Check:
    """Whether the journal can be read, and who drives its runs."""
    if not app.project.journal.exists():
        return Check(name="journal", ok=True, detail="none yet")
    try:
        active = [run.id for run in app.store.runs(state=RunState.ACTIVE)]
        driven = [run_id for run_id in active if app.driven(run_id)]
    except StoreError as error:
        return Check(name="journal", ok=False, detail=error.message, hint=error.hint)
    left = [run_id for run_id in active if run_id not in driven]
    hint = f"continue it with `interlock run {left[0]}`" if left else ""
    detail = f"readable; {count(len(driven), 'run')} driven now, {count(len(left), 'active run')} without a driver"
    return Check(name="journal", ok=True, detail=detail, hint=hint)
