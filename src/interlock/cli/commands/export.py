"""`interlock export`: a run in one file, for keeping and for showing elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interlock.cli.options import RunId, example, json_option
from interlock.cli.output import discard_output, note, say, write_json
from interlock.cli.session import Session
from interlock.cli.text import count, safe
from interlock.errors import StoreError, UsageError
from interlock.views.values import SCHEMA

if TYPE_CHECKING:
    from interlock.driver.export.exporting import Exported

_STDOUT = Path("-")


@click.command(
    epilog=example(
        "interlock export last",
        "interlock export last -o run.export.gz",
        "interlock export --verify run.export.gz",
        "interlock status --from run.export.gz",
    )
)
@click.argument("run", type=RunId(), metavar="[RUN]", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write here; `-` is standard output. Default: RUN.export.gz in the current folder.",
)
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.option("--verify", type=click.Path(path_type=Path), metavar="FILE", help="Check this export instead.")
@json_option()
@click.pass_obj
def command(session: Session, /, run: str | None, **options: Any) -> None:  # noqa: ANN401 - one value per option above
    """Write a run into one portable file, or check such a file.

    The file holds plan, journal, artifacts and logs of the run and of its child runs, chained line by line by hashes.
    What params that look like secrets hold is left out. Read it anywhere: `interlock status --from FILE`, and so with
    `units`, `logs`, `events`, `list` and `plan`.
    """
    if options["verify"] is not None:
        if run is not None or options["output"] is not None or options["force"]:
            raise UsageError("verify-alone", "--verify takes a file and nothing else", "see `interlock export --help`")
        _verify(options["verify"], as_json=options["as_json"])
        return
    if run is None:
        raise UsageError("no-run", "name a RUN to export, or a file to --verify", "see `interlock list`")
    _export(session, session.find(run), options["output"], force=options["force"], as_json=options["as_json"])


def _export(session: Session, run_id: str, output: Path | None, *, force: bool, as_json: bool) -> None:
    from interlock.driver.export.exporting import export_run, new_file  # noqa: PLC0415 - `--help` needs none of it

    places = session.app.project
    if output == _STDOUT:
        if sys.stdout.isatty():
            raise UsageError("export-to-terminal", "an export is no text for a terminal", "write it to a file: -o FILE")
        try:
            done = export_run(places.journal, places.logs, run_id, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        except BrokenPipeError as error:
            discard_output()
            raise StoreError(
                "export-cut", "who read the export left before it was whole", "write it to a file: -o FILE"
            ) from error
    else:
        output = output or Path(f"{run_id}.export.gz")
        with new_file(output, force=force) as out:
            done = export_run(places.journal, places.logs, run_id, out)
    to_stdout = output == _STDOUT
    for warning in _warnings(done):
        note(warning)
    if as_json and not to_stdout:
        write_json(_view(done, output))
    else:
        (note if to_stdout else say)(f"{_summary(done)}{'' if to_stdout else f', in {safe(str(output))}'}")


def _summary(done: Exported) -> str:
    children = f" and {count(len(done.runs) - 1, 'child run')}" if len(done.runs) > 1 else ""
    return f"exported run {safe(done.run)}{children}: {count(done.lines, 'line')}, {done.bytes:,} bytes, {done.hash}"


def _warnings(done: Exported) -> list[str]:
    found = []
    if done.redacted:
        found.append(f"note: redacted the params {', '.join(done.redacted)} and every hash that could give them away")
    if done.too_short:
        found.append(
            f"warning: the params {', '.join(done.too_short)} hold values of under 6 characters, which were blanked in "
            "the params and in the plan alone: look whether something else in the run repeats them"
        )
    if done.redacted_plans:
        found.append("note: a default of a secret param was blanked, so the plan in the file has another hash")
    return found


def _view(done: Exported, output: Path) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "file": str(output),
        "run": done.run,
        "runs": done.runs,
        "lines": done.lines,
        "bytes": done.bytes,
        "hash": done.hash,
        "redacted": {"params": done.redacted, "plans": done.redacted_plans, "too_short": done.too_short},
    }


def _verify(path: Path, *, as_json: bool) -> None:
    from interlock.driver.export.importing import verify_export  # noqa: PLC0415 - `--help` needs none of it

    found = verify_export(path)
    if as_json:
        view = {"run": found.header.run, "runs": found.header.runs, "lines": found.lines, "hash": found.hash}
        write_json({"schema": SCHEMA, "file": str(path), **view, "interlock": found.header.interlock})
        return
    made = f"run {safe(found.header.run)}, made by interlock {safe(found.header.interlock)}"
    say(f"{safe(str(path))} is whole: {made}, {count(found.lines, 'line')}, {found.hash}")
