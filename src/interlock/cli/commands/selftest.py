"""`interlock selftest`: a look at whether what is promised holds on this host."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import click

from interlock.cli.options import example, json_option

_MATRIX: Final = "interlock.testing.kill_matrix"
_QUICK_EVERY: Final = 9


@click.command(epilog=example("interlock selftest", "interlock selftest --kill-matrix"))
@click.option("--kill-matrix", is_flag=True, help="Kill a driver before and after every journal commit, and resume.")
@json_option()
def command(*, kill_matrix: bool, as_json: bool) -> int:
    """Kill drivers of a sample run of every shape, resume them, and exit 1 if something promised does not hold.

    Without --kill-matrix only each ninth kill is tried, in a few seconds. A table tells what held; the folder of
    the runs stays if something did not.
    """
    # the matrix kills processes by mark: it runs in one of its own
    every = [] if kill_matrix else ["--every", str(_QUICK_EVERY)]
    argv = [sys.executable, "-m", _MATRIX, *every, *(["--json"] if as_json else [])]
    return subprocess.run(argv, check=False).returncode
