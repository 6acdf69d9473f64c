"""Disks that are full, for processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FILL = """
def fill(folder):
    with (folder / "other").open("wb", buffering=0) as other:
        try:
            while True:
                other.write(bytes(4096))
        except OSError as error:
            print(os.strerror(error.errno))
"""


def on_a_small_disk(folder: Path, size: str, code: str, *more: str) -> list[str]:
    """Run the code, which has `fill`, on a file system that nobody else sees, gone with the process; return what it said.

    Its arguments are the folder and those that follow.
    """
    inside = f'mount -t tmpfs -o size={size} none "$1" && exec "$0" -c "$2" "$1" "${{@:3}}"'
    shell = ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", inside]
    argv = [*shell, sys.executable, str(folder), f"import os, sys\nfrom pathlib import Path\n{FILL}{code}", *more]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no small disk can be had here: {done.stderr.strip()}")
    assert done.stderr == ""
    return done.stdout.splitlines()
