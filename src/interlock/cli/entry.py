"""The program's first lines: `--version` is answered before anything heavy is imported."""

from __future__ import annotations

import gc
import sys

from interlock.version import __version__

_COLLECT_AFTER = 50_000


def main() -> None:
    """Run the command line and exit with its code."""
    # what this program makes, it mostly keeps: looking for garbage at every 700th object cost a tenth of a run
    gc.set_threshold(_COLLECT_AFTER, 10, 10)
    arguments = sys.argv[1:]
    if arguments and arguments[0] in {"--version", "-V"}:
        sys.stdout.write(f"interlock {__version__}\n")
        return
    from interlock.cli.program import run  # noqa: PLC0415 - click would triple the time of --version

    sys.exit(run(arguments))
