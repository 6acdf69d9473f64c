"""The program's first lines and its last: `--version` is answered before anything heavy is imported.

Guarantee: when the process ends, all that was written to standard output and error has left it.
"""

from __future__ import annotations

import gc
import os
import sys

from interlock.version import __version__


def main() -> None:
    """Run the command line and exit with its code."""
    # what is imported stays: to look through it for garbage would cost a tenth of a short run
    gc.disable()
    arguments = sys.argv[1:]
    if arguments and arguments[0] in {"--version", "-V"}:
        try:
            sys.stdout.write(f"interlock {__version__}\n")
            sys.stdout.flush()
        except OSError:
            # told in words below
            pass
        else:
            return
    import signal  # noqa: PLC0415 - heavy for --version

    # while there is nobody to tell it in words, Ctrl-C ends the program without a traceback
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from interlock.cli.interrupts import take_over  # noqa: PLC0415 - as above
    from interlock.cli.program import run  # noqa: PLC0415 - click would triple the time of --version

    take_over(handler)
    _leave(run(arguments))


def _leave(code: int) -> None:
    """End at once: all is closed, and taking a big run apart object by object would only keep the caller waiting."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code)
