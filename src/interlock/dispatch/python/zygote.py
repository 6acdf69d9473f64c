"""The program that forks workers for `python:` units, so that one more costs milliseconds and not a start of Python.

Run by path under the project's own interpreter (any Python from 3.8 on, interlock not installed), so it uses the
standard library only. Each message on its control socket brings a new worker's descriptors (two sockets, stdout, stderr);
it answers with pids and, later, with ends. Guarantees: a worker leads a group of its own, the group is ended with its
leader, and when the control socket closes no group is left.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # a script's own folder comes first on the path, where its siblings would shadow the standard library
    del sys.path[0]

import array
import gc
import importlib
import io
import os
import select
import signal
import socket
import struct
from types import ModuleType

NEWS = struct.Struct("<Bii")
READY, FORKED, NO_FORK, ENDED = b"RPEX"
CHUNK = 65_536
_PACKAGE = "interlock_worker"


class Zygote:
    """Forks workers on demand and tells of their ends."""

    def __init__(self, control: socket.socket, program: ModuleType) -> None:
        self.control = control
        self.program = program
        self.workers: set[int] = set()
        self.woken, self.wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(self.wake, False)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Serve until the driver is gone, then leave no worker."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.woken, select.POLLIN)
        self.tell(READY, os.getpid(), sys.version_info[1])
        try:
            while True:
                ready = {fd for fd, _ in poll.poll()}
                if self.woken in ready:
                    os.read(self.woken, CHUNK)
                    self.reap()
                if self.control.fileno() in ready and not self.take():
                    return
        except (BrokenPipeError, ConnectionResetError):
            return
        finally:
            self.end_all()

    def end_all(self) -> None:
        """Kill and reap every worker: an init that does not reap would keep them as zombies."""
        for pid in self.workers:
            _kill_group(pid)
        for pid in self.workers:
            os.waitpid(pid, 0)

    def tell(self, kind: int, pid: int, value: int) -> None:
        """Send one piece of news."""
        self.control.send(NEWS.pack(kind, pid, value))

    def take(self) -> bool:
        """Fork one worker as asked; False when the driver closed its end."""
        fds = array.array("i")
        data, ancillary, _, _ = self.control.recvmsg(16, socket.CMSG_SPACE(4 * fds.itemsize))
        if not data:
            return False
        for _, _, raw in ancillary:
            fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
        try:
            pid = os.fork()
        except OSError as error:
            self.tell(NO_FORK, 0, error.errno or 0)
        else:
            if pid == 0:
                self.become_worker(list(fds))
            _lead_group(pid)
            self.workers.add(pid)
            self.tell(FORKED, pid, 0)
        for fd in fds:
            os.close(fd)
        return True

    def become_worker(self, fds: list[int]) -> None:
        """Never returns: the child of a fork ends here."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _lead_group(0)
            self.control.close()
            os.close(self.woken)
            os.close(self.wake)
            answers, ahead, out, err = fds
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.close(out)
            os.close(err)
            for fd in (answers, ahead):
                os.set_inheritable(fd, False)  # noqa: FBT003 - os takes it by place only
            self.program.Worker(answers, ahead).serve()
        finally:
            self.program.flush()
            os._exit(0)

    def reap(self) -> None:
        """Tell each worker's end, after ending what is left of its group: its pid cannot be another's before that."""
        while self.workers:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return
            _kill_group(found.si_pid)
            _, status = os.waitpid(found.si_pid, 0)
            self.workers.discard(found.si_pid)
            self.tell(ENDED, found.si_pid, status)


def _lead_group(pid: int) -> None:
    try:
        os.setpgid(pid, pid)
    except OSError:
        # the other side of the fork was faster, or the child is gone
        return


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        return


def _load(folder: str) -> ModuleType:
    """Import the worker as of a package of its own, whatever lies on the path under the names of its files."""
    package = ModuleType(_PACKAGE)
    package.__path__ = [folder]
    sys.modules[_PACKAGE] = package
    return importlib.import_module(_PACKAGE + ".worker")


def main() -> None:
    """Become the zygote: `zygote.py CONTROL_FD [FOLDER...]`."""
    program = _load(os.path.dirname(__file__))  # noqa: PTH120 - pathlib is slow to load
    control = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)  # noqa: FBT003 - os takes it by place only
    sys.path[0:0] = sys.argv[2:]
    sys.argv[1:] = []
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False, errors="backslashreplace")
    gc.freeze()
    Zygote(control, program).serve()


if __name__ == "__main__":
    main()
