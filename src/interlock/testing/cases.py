"""The kill matrix's report: one case for each kill, what came of it in words, and the table."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

MOMENTS: Final = ("before", "after")
VERBS: Final = ("run", "fork")
_HEAD: Final = (
    *("of a", "killed", "commits", "kills", "resumed equal", "units done twice", "begun unjournaled"),
    *("changes lost", "astray in git", "processes left"),
)
Verb = Literal["run", "fork"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One kill and what came of it."""

    verb: Verb = "run"
    """What the driver that was killed had been started for."""
    moment: str
    commit: int
    killed: bool = False
    too_late: bool = False
    equal: bool = False
    twice: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()
    ungated: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    astray: tuple[str, ...] = ()
    left: int = 0
    note: str = ""

    @property
    def holds(self) -> bool:
        """Tell whether everything promised held."""
        landed = self.killed or self.too_late
        broken = self.twice or self.unasked or self.ungated or self.lost or self.astray or self.left
        return landed and self.equal and not broken


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole matrix."""

    commits: int
    fork_commits: int
    cases: tuple[Case, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        """Tell whether every case held, and of each kind that was tried some driver died."""
        died = {(case.verb, case.moment) for case in self.cases if case.killed}
        tried = {(case.verb, case.moment) for case in self.cases}
        return died == tried != set() and all(case.holds for case in self.cases)


def describe(case: Case) -> str:
    """Say in one line what did not hold."""
    parts = (
        "" if case.killed or case.too_late else "the driver did not die there",
        "" if case.equal else f"did not end as the undisturbed run ({case.note or 'other artifacts or states'})",
        f"done twice: {', '.join(case.twice)}" if case.twice else "",
        f"ran without a journaled attempt: {', '.join(case.unasked)}" if case.unasked else "",
        f"gates skipped: {', '.join(case.ungated)}" if case.ungated else "",
        f"changes lost: {', '.join(case.lost)}" if case.lost else "",
        f"not as it should be in git: {', '.join(case.astray)}" if case.astray else "",
        f"{case.left} processes left" if case.left else "",
    )
    said = "; ".join(part for part in parts if part)
    return f"{case.verb}, killed {case.moment} commit {case.commit}: {said}"


def table(report: Report) -> str:
    """Draw the report."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for verb in VERBS:
        for moment in MOMENTS:
            cases = [case for case in report.cases if (case.verb, case.moment) == (verb, moment)]
            figures = (
                len(cases),
                sum(case.killed for case in cases),
                sum(case.equal for case in cases),
                sum(len(case.twice) for case in cases),
                sum(len(case.unasked) for case in cases),
                sum(len(case.lost) for case in cases),
                sum(len(case.astray) for case in cases),
                sum(case.left for case in cases),
            )
            rows.append((verb, moment, *map(str, figures)))
    lines = ("  ".join(cell.ljust(len(title)) for cell, title in zip(row, _HEAD, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
