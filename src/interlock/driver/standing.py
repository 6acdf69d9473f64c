"""Whether a run is of the folder that one stands in: projects are moved and copied, and their journals with them.

Guarantee: of a copy nothing is driven that the original may drive, and nothing that the original made is touched.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol

from interlock.driver.project import STATE_NAME, project_id_in
from interlock.errors import DispatchRefusedError, StartAnewError, UsageError
from interlock.model.plan import Plan
from interlock.model.states import StepState
from interlock.store.base import Loaded

Standing = Literal["here", "moved", "copied", "beside"]
"""`moved`: the folder that the run began in holds this project no more. `copied`: it does, with a journal of its own.
`beside`: it does, and shares the journal."""
_DONE: Final = frozenset({StepState.COMPLETED.value, StepState.SKIPPED.value})


class Stepped(Protocol):
    """A step's row, or a step of a snapshot."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def state(self) -> str:
        """Its state."""
        ...


def standing(root: Path, frozen_root: str, project_id: str) -> Standing:
    """Say how the project at `root` stands to the one that a run of its journal was frozen in."""
    if str(root) == frozen_root:
        return "here"
    there = Path(frozen_root)
    if not project_id or project_id_in(there) != project_id or str(there.resolve()) != frozen_root:
        return "moved"
    return "beside" if (there / STATE_NAME).samefile(root / STATE_NAME) else "copied"


def refuse_elsewhere(root: Path, plan: Plan, loaded: Loaded) -> None:
    """Raise DispatchRefusedError where the run is another folder's, or what it left can't be judged from this one."""
    frozen, run_id = plan.project.root, loaded.run.id
    found = standing(root, frozen, plan.project.id)
    if found == "moved" and loaded.open:
        raise gone(run_id, frozen, loaded.steps)
    if found in ("here", "moved"):
        return
    go_on = f"go on there: interlock --project {shlex.quote(frozen)} run {run_id}"
    if found == "beside":
        raise DispatchRefusedError("other-directory", f"run {run_id} belongs to {frozen}, and this is {root}", go_on)
    raise StartAnewError("project-copied", _copied(run_id, frozen, root), f"{go_on}{_taken_over(run_id, loaded.steps)}")


def refuse_answer(root: Path, plan: Plan, run_id: str) -> None:
    """Raise UsageError where an answer to the run would change a copy of it only, and the original would not hear of it."""
    frozen = plan.project.root
    if standing(root, frozen, plan.project.id) == "copied":
        there = f"answer it there: interlock --project {shlex.quote(frozen)} status {run_id}"
        raise UsageError("project-copied", _copied(run_id, frozen, root), there)


def _copied(run_id: str, frozen: str, root: Path) -> str:
    return f"run {run_id} belongs to {frozen}, and this project, {root}, is a copy of it"


def gone(run_id: str, frozen: str, steps: Iterable[Stepped]) -> StartAnewError:
    """Return the error for a run whose folder is not there any more."""
    return StartAnewError(
        "directory-changed",
        f"run {run_id} was frozen in {frozen}, which is gone or leads elsewhere now",
        f"put the directory back at {frozen}{_taken_over(run_id, [*steps])}",
    )


def _taken_over(run_id: str, steps: Sequence[Stepped]) -> str:
    first = first_open(steps)
    return "" if first is None else f", or take over here what is done: interlock fork {run_id} --from {first}"


def first_open(steps: Sequence[Stepped]) -> str | None:
    """Return the step from which a fork would do the work; None where no step before it is done."""
    first = next((index for index, step in enumerate(steps) if step.state not in _DONE), 0)
    return steps[first].id if first else None
