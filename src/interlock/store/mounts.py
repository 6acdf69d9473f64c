"""Which file system a path lies on: SQLite's WAL needs shared memory, which network file systems do not give."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_NETWORK: Final = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
    }
)
_NETWORK_FUSE: Final = frozenset(
    {"ceph", "davfs", "gcsfuse", "glusterfs", "juicefs", "rclone", "s3fs", "smbnetfs", "sshfs"}
)
_FIELDS: Final = 3
"""A line begins with device, place and type."""


def mount_table() -> str:
    """The kernel's table of mounts; empty where there is none."""
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def network_filesystem(path: Path, mounts: str) -> str:
    """The type of the network file system that `path` lies on, by a mount table; empty for a local one."""
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < _FIELDS:
            continue
        place = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = real == place or real.startswith(place.rstrip("/") + "/")
        # of several mounts on one place the last one is seen
        if inside and len(place) >= len(best):
            best, kind = place, fields[2]
    return kind if kind in _NETWORK or kind.removeprefix("fuse.") in _NETWORK_FUSE else ""
