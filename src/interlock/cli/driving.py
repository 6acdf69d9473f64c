"""What `run` and `resume` share: progress while the engine drives, and the summary afterwards."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from typing import Any, Final, Literal

from interlock.app import App
from interlock.cli.interrupts import nothing_left
from interlock.cli.output import discard_output, is_stalled, note, raising_output
from interlock.cli.progress.feed import Feed, Renderer
from interlock.cli.summary import show_summary
from interlock.dispatch.processes.open_files import raise_limit
from interlock.driver.load import run_info
from interlock.driver.loop import Observer
from interlock.driver.result import Result, result_of
from interlock.driver.signals import stopping
from interlock.views.values import SCHEMA

_UNREAD: Final = OSError(errno.EAGAIN, "nobody reads it")


def drive(app: App, start: Callable[[Observer], Result], *, as_json: bool) -> int:
    """Drive through `start` with progress shown, tell how it ended, and return the exit code.

    The exit code is the run's own, whatever becomes of the output and whoever asks to stop when it is known: that only
    gives up output which nobody takes. What asks before there is a run raises KeyboardInterrupt.
    """
    raise_limit()
    feed = Feed(_ndjson if as_json else _for_people)
    listener = _Listener()
    with contextlib.ExitStack() as handling:
        handling.enter_context(stopping(listener))
        try:
            result = start(feed)
        except KeyboardInterrupt:
            # asked when the loop had already stopped: what it came to is in the journal
            if feed.run_id is None:
                raise
            result = result_of(run_info(app.store.run(feed.run_id)))
        finally:
            listener.hears = "unread"
            _show_rest(feed)
        _tell(app, result, did=result.instead or ("nothing" if feed.run_id is None else "drove"), as_json=as_json)
        listener.hears = "nothing"
        nothing_left(handling)
    return result.exit_code


class _Listener:
    """Hears what asks to stop. Raises KeyboardInterrupt for what there is still to be stopped."""

    def __init__(self) -> None:
        self.hears: Literal["all", "unread", "nothing"] = "all"
        """`unread`: only where output waits for its reader."""

    def __call__(self) -> None:
        if self.hears == "all" or (self.hears == "unread" and (is_stalled(sys.stdout) or is_stalled(sys.stderr))):
            self.hears = "unread"
            raise KeyboardInterrupt


def _show_rest(feed: Feed) -> None:
    try:
        feed.close()
    except KeyboardInterrupt:
        _give_up_output(_UNREAD, feed.run_id)


def _tell(app: App, result: Result, *, did: str, as_json: bool) -> None:
    try:
        if as_json:
            _write(_encode(_last_line(app, result, did)))
        else:
            with raising_output():
                show_summary(app, result)
                sys.stdout.flush()
    except OSError as error:
        _give_up_output(error, result.run_id)
    except KeyboardInterrupt:
        _give_up_output(_UNREAD, result.run_id)


def _give_up_output(error: OSError, run_id: str | None) -> None:
    """Go on without a reader; say so where somebody may still read it and did not leave by himself."""
    discard_output()
    if not isinstance(error, BrokenPipeError) and not is_stalled(sys.stderr):
        with contextlib.suppress(OSError):
            told = f"how run {run_id} ended could not be written: {error.strerror}"
            note(f"note: {told}; see it with `interlock status {run_id}`")


def _last_line(app: App, result: Result, did: str) -> dict[str, Any]:
    from interlock.cli.reading import read_status  # noqa: PLC0415 - only after the run, and only for programs

    return {
        "type": "run_ended",
        **read_status(app.store, result.run_id),
        "schema": SCHEMA,
        "did": did,
        "exit_code": result.exit_code,
    }


def _encode(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    import msgspec  # noqa: PLC0415 - beside its only use

    return msgspec.json.encode(value) + b"\n"


def _ndjson() -> Renderer:
    from interlock.cli.progress.ndjson import NdjsonRenderer  # noqa: PLC0415 - one renderer a run

    return NdjsonRenderer(_write)


def _for_people() -> Renderer:
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from interlock.cli.progress.live import LiveRenderer  # noqa: PLC0415 - rich is slow to import

        return LiveRenderer()
    from interlock.cli.progress.plain import PlainRenderer  # noqa: PLC0415 - one renderer a run

    return PlainRenderer(_write_text)


def _write_text(text: str, _tone: str) -> None:
    _write(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))


def _write(data: bytes) -> None:
    """Write past Python's buffer, whose lock a stalled reader would leave held."""
    descriptor = sys.stdout.fileno()
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
