"""The program: its commands, loaded when called, and the one place where failures become exit codes."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from interlock.cli import failures
from interlock.cli.called import remember_call
from interlock.cli.interrupts import nothing_left
from interlock.cli.output import discard_output, lose_output, lost_output, note
from interlock.cli.session import Session
from interlock.errors import InterlockError
from interlock.version import __version__

COMMANDS: Final[dict[str, str]] = {
    "run": "Start a workflow, or continue a run.",
    "resume": "Reopen a failed or abandoned run and drive on.",
    "fork": "Start a new run that takes over what an old one did.",
    "status": "Show where a run stands and what to do next.",
    "list": "List runs, newest first.",
    "units": "List the units of a run.",
    "logs": "Show what a run's commands and functions wrote.",
    "events": "Show a run's history.",
    "replay": "Play a recorded run's answers back, as a test.",
    "approve": "Let what waits for a person pass.",
    "reject": "Refuse what waits for a person, with a note.",
    "abandon": "End a run for good, but for `resume`.",
    "resolve": "Answer for a unit whose effect is unknown.",
    "worktrees": "See, apply and drop what units left in worktrees.",
    "lint": "Check workflow files.",
    "plan": "Show what would run, what would be reused and why.",
    "new": "Write a starter workflow.",
    "schema": "Print the JSON Schema of a workflow's front matter.",
    "config": "Show the configuration in force and where it came from.",
    "doctor": "Check this host, this project and its engines.",
    "export": "Write a run into one file, or check such a file.",
    "gc": "Remove old runs and what nothing refers to.",
    "selftest": "Show that what is promised holds on this host.",
    "completion": "Print the completion script of a shell.",
}
"""Command and summary, in the order of help. Each stands in `commands/<name>.py` under its own name."""
ACTING: Final = frozenset({"abandon", "approve", "gc", "new", "reject", "resolve"})
"""Commands that are there for what they do, not for what they show."""
DRIVING: Final = frozenset({"fork", "resume", "run"})
"""Commands that do what a workflow says. All others only look at the project's runs."""
_COLLECT_AFTER: Final = 50_000


class LazyGroup(click.Group):
    """Imports a command's file when the command is called; help needs none of them."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Name the commands in the order of help."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"interlock.cli.commands.{cmd_name}")
        _collect_garbage()
        command: click.Command = module.command
        command.name = cmd_name
        command.help = command.help or COMMANDS[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest one that is spelled nearly so."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from interlock.plan.diagnose import did_you_mean  # noqa: PLC0415 - only a typing slip needs it

            near = did_you_mean(args[0], COMMANDS)
            raise click.UsageError(f"no command '{args[0]}'" + (f"; {near}" if near else ""), ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and not ctx.resilient_parsing:
            _refuse_twice(command, click.Context(command, ctx, name), rest)
        return name, command, rest

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options before the command."""
        _refuse_twice(self, ctx, args)
        return super().parse_args(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401 - click's signature
        """Read the arguments; `--help` is answered here."""
        with _reader_may_leave():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with _reader_may_leave():
            return super().invoke(ctx)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _refuse_twice(command: click.Command, ctx: click.Context, args: Sequence[str]) -> None:
    """Refuse a second value of an option that has one: click would drop the first without a word."""
    try:
        _, _, given = command.make_parser(ctx).parse_args(list(args))
    except click.UsageError:
        # said with the arguments' own reading
        return
    for number, option in enumerate(given):
        takes_one = isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count)
        if takes_one and option in given[:number]:
            raise click.UsageError(f"{option.opts[-1]} is given twice, and takes one value; give it once", ctx)


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Whoever left a listing or a page of help early has seen what he wanted."""
    try:
        yield
    except BrokenPipeError:
        discard_output()
        raise click.exceptions.Exit(0) from None


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:\n  interlock new hello.md\n  interlock run hello.md\n  interlock status last\n\n"
    "A run is named by its id, the beginning of it, or `last`. Completion for your shell: "
    "`interlock completion --help`.",
)
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Work in this project instead of the one around the current folder.",
)
@click.version_option(__version__, "-V", "--version", message="interlock %(version)s")
@click.pass_obj
def cli(session: Session, project: Path | None) -> None:
    """Run durable workflows from Markdown files; nothing finished is lost or done twice."""
    session.project = project
    session.command = click.get_current_context().invoked_subcommand or ""
    remember_call(project, COMMANDS)


def _collect_garbage() -> None:
    """Look for garbage from here on, rarely and not in what is imported: what this program makes, it mostly keeps."""
    gc.set_threshold(_COLLECT_AFTER, 10, 10)
    gc.freeze()
    gc.enable()


def run(arguments: Sequence[str], session: Session | None = None) -> int:
    """Run the command line and return its exit code; whatever goes wrong is told in words."""
    _open_streams()
    _tolerate_any_text()
    session = session or Session()
    remember_call(None, COMMANDS)
    try:
        return _flushed(_invoke(list(arguments) or ["--help"], session), session)
    except KeyboardInterrupt:
        return failures.INTERRUPTED
    finally:
        nothing_left()
        session.close()


def _invoke(arguments: list[str], session: Session) -> int:
    try:
        returned: Any = cli.main(arguments, prog_name="interlock", standalone_mode=False, obj=session)
        return returned if isinstance(returned, int) else 0
    except InterlockError as error:
        return failures.explain(error)
    except click.Abort:
        return failures.INTERRUPTED
    except click.ClickException as error:
        return failures.explain_usage(error)
    except OSError as error:
        return failures.explain_os(error)
    except Exception as error:  # noqa: BLE001 - the last resort of the program: told, kept in a file, exit 1
        return failures.explain_bug(error, session.project, looking=session.command not in ACTING | DRIVING)


def _flushed(code: int, session: Session) -> int:
    """Flush standard output while failures can still be told; what was done stays done where that cannot be shown."""
    try:
        sys.stdout.flush()
    except OSError as error:
        lose_output(error)
    lost = lost_output()
    if lost is not None and session.command in ACTING and code == 0:
        note(f"note: it is done, but what was to be said of it could not be written: {lost.strerror}")
        return 0
    return code if lost is None else code or failures.explain_output(lost)


def _open_streams() -> None:
    """Put nothing in the place of a standard stream that was closed at the start.

    Else the next file to be opened would get its number, and what is meant for a reader would be written into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - open as long as the program


def _tolerate_any_text() -> None:
    """Never fail for a character that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
