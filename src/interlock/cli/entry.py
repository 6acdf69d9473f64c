"""The program's first lines: `--version` is answered before anything heavy is imported."""

from __future__ import annotations

import sys

from interlock.version import __version__


def main() -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in {"--version", "-V"}:
        sys.stdout.write(f"interlock {__version__}\n")
        return
    import signal  # noqa: PLC0415 - heavy for --version

    # while there is nobody to tell it in words, Ctrl-C ends the program without a traceback
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from interlock.cli.program import run  # noqa: PLC0415 - click would triple the time of --version

    signal.signal(signal.SIGINT, handler)
    sys.exit(run(arguments))
