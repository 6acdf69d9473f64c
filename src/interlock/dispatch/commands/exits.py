"""What the system tells of children of ours: that one has exited, how, and whether a pipe has something to read.

Guarantee: a process is reaped here and nowhere else, so that its pid stays its own until its tree has ended.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess


def exit_fd(pid: int) -> int:
    """Return a descriptor that is readable once the process has exited; -1 where there is no such thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def is_zombie(pid: int) -> bool:
    """Tell whether our child has exited, without reaping it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def reap(popen: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code, minus the signal's number, or None when somebody else took it away."""
    # not Popen.wait: it would call a lost exit code a success
    try:
        info = os.waitid(os.P_PID, popen.pid, os.WEXITED)
    except ChildProcessError:
        info = None
    code = None
    if info is not None:
        code = info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
    popen.returncode = 0 if code is None else code
    return code


def is_ready(fd: int) -> bool:
    """Tell whether a read would not wait."""
    ready = select.poll()
    ready.register(fd, select.POLLIN)
    return bool(ready.poll(0))


def signal_name(number: int) -> str:
    """Return what people call a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
