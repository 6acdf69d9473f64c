"""Small disks, which a test can fill up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """Make a disk of its own where one can be mounted, else only a folder."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "small", str(place)]
    mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    try:
        yield place
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", place], check=True)
