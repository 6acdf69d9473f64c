"""The program on the other side of `python:` units: a zygote that forks workers, and the workers.

Run by path under the project's own interpreter (any Python from 3.8 on, interlock not installed), so it uses the
standard library only. The zygote forks a worker for each message that brings its three descriptors (socket, stdout,
stderr) and tells pids and ends; when its control socket closes it kills every worker's group. A worker carries out
one unit at a time; it ends when its socket closes. Frames are a kind byte, a little-endian length and JSON.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # a script's own folder is put first on the path, where our siblings would shadow the standard library
    del sys.path[0]

import array  # noqa: E402 - the path above must be mended before anything else is imported
import gc  # noqa: E402 - as above
import importlib  # noqa: E402 - as above
import json  # noqa: E402 - as above
import marshal  # noqa: E402 - as above
import os  # noqa: E402 - as above
import select  # noqa: E402 - as above
import signal  # noqa: E402 - as above
import socket  # noqa: E402 - as above
import struct  # noqa: E402 - as above

HEAD = struct.Struct("<BI")
NEWS = struct.Struct("<Bii")
JOB, UNIT, FORGET, RESULT, FAILURE = b"JUCRF"
READY, FORKED, NO_FORK, ENDED = b"RPEX"
COPY_LIMIT = 262_144
"""Shared values up to this size are fresh for each unit; larger ones are handed out as they are, never to be changed."""
MAX_TEXT = 2_000
MAX_DEPTH = 64

_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_encode_unsorted = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class Failure(Exception):  # noqa: N818 - it is an answer, not a fault of this program
    """The unit's answer is that it failed: reason, error text, exit code."""

    def __init__(self, reason, text, exit_code=None):  # type: ignore[no-untyped-def]
        super().__init__(text)
        self.answer = [reason, text, exit_code]
