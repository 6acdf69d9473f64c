"""Ends what should not run any more: leftovers of an earlier driver, and strays of a step that is over.

Guarantee: a process is killed only if its recorded pid, start time and boot all match, or if it (or something above
it) carries the mark asked for, or did when the lookout saw it. Neither this process nor anything above it is ever touched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from interlock.dispatch.processes import identity
from interlock.dispatch.processes.lookout import remembered
from interlock.dispatch.processes.markers import Marker, parse
from interlock.dispatch.processes.reaper_main import ancestors, sweep
from interlock.dispatch.processes.tree import Tree
from interlock.model.events import Process


def end_leftovers(run_id: str, processes: Collection[Process], term: int) -> int:
    """Kill what drivers of the run before that of `term` left: recorded processes and all that carry their marks.

    What carries a later one's is his who has taken over meanwhile. Return how many marked processes and recorded leaders
    were found.
    """
    recorded = sum(_end_recorded(process) for process in processes)
    earlier = frozenset(map(str, range(term)))

    def wanted(value: bytes) -> bool:
        marks = parse(value.decode("utf-8", "surrogateescape"))
        return any(mark.run_id == run_id and mark.term in earlier for mark in marks)

    return recorded + sweep(wanted)


def _end_recorded(process: Process) -> bool:
    """Kill the tree of a recorded process; its pid cannot be reused unnoticed while it is looked at and alive."""
    if not identity.alive(process) or process.pid in ancestors(os.getpid()):
        return False
    Tree(process.pid, b"").kill()
    return True


def end_strays(marker: Marker, ended: Callable[[str], bool], give_up_s: float = 1.0) -> int:
    """Kill what those attempts of this driver left behind whose dispatch id has `ended`; return how many there were."""

    def wanted(value: bytes) -> bool:
        marks = parse(value.decode("utf-8", "surrogateescape"))
        return any(
            (mark.run_id, mark.holder, mark.term) == (marker.run_id, marker.holder, str(marker.term))
            and ended(mark.dispatch)
            for mark in marks
        )

    prefix = marker.prefix.encode()
    known = remembered(
        lambda mark: mark.startswith(prefix) and ended(mark[len(prefix) :].decode("utf-8", "surrogateescape"))
    )
    # their leaders have all been reaped, so none can be caught between fork and exec: no need to wait between scans
    return sweep(wanted, give_up_s, 0.0, known)
