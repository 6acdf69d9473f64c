"""From a unit to a request: what a step's units share is built once and kept.

Before the first dispatch of a step the world is checked: the working directory must be the one the plan was
frozen in, and a Python module's file must have the frozen hash.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from interlock.decide.reduce import Artifact, reduce_step
from interlock.decide.work import Shared, idempotency_key, shared
from interlock.dispatch.base import Job, Request
from interlock.errors import DispatchRefusedError
from interlock.model.events import Process
from interlock.model.plan import Plan, PythonFunction, Target
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit


class ModuleChangedError(Exception):
    """A Python module's file differs from the frozen one; the text says which."""


class JobBook:
    """Builds requests; one per driver."""

    def __init__(self, snap: Snapshot) -> None:
        self._snap = snap
        self._plan: Plan = snap.plan
        self._shared: dict[int, Shared] = {}
        self._jobs: dict[tuple[int, str, int, int], Job] = {}
        self._checked: set[tuple[int, str]] = set()
        self._notices: list[str] = []

    def job(self, step: Step, unit: Unit) -> Job:
        """Return the job of a unit. Raises ModuleChangedError, DispatchRefusedError, UnresolvedError."""
        key = (step.index, unit.kind, unit.round, unit.loop)
        found = self._jobs.get(key)
        if found is not None:
            return found
        spec = self._plan.steps[step.index]
        self._check_world(step, spec, unit)
        job = self._build(step, spec, unit)
        if unit.kind == "work" or unit.item is None:
            self._jobs[key] = job
        return job

    def request(self, job: Job, step: Step, unit: Unit, number: int, dispatch: str, process: Process | None) -> Request:
        """Return the request of the unit's next attempt."""
        asked = unit if unit.kind != "probe" else step.units[int(unit.subject or 0)]
        return Request(
            job=job,
            dispatch=dispatch,
            unit_id=unit.id,
            attempt=number,
            idempotency_key=idempotency_key(self._snap.run.id, asked.id),
            item_json=unit.item,
            index=unit.index,
            process=process,
        )

    def take_notices(self) -> list[str]:
        """Return what a person should know about the world, once."""
        notices, self._notices = self._notices, []
        return notices

    def _build(self, step: Step, spec: PlanStep, unit: Unit) -> Job:
        context = self._shared.get(step.index)
        if context is None:
            context = self._shared[step.index] = shared(self._snap, spec)
        asking = unit.kind != "work"
        return Job(
            key=f"{spec.id}/{unit.kind}/r{unit.round}/l{unit.loop}" + (f"/{unit.ordinal}" if asking else ""),
            run_id=self._snap.run.id,
            step_id=spec.id,
            step=step.index,
            target=_target(spec, unit),
            shell=self._plan.shell.argv if self._plan.shell else (),
            params_json=context.params_json,
            inputs_json=context.inputs_json,
            artifact_json=self._artifact(step, spec, unit) if unit.kind == "gate" else None,
            env=spec.env,
            cwd=str(Path(self._plan.project.root, spec.cwd)),
            timeout_ms=spec.timeout_ms,
            idle_timeout_ms=spec.idle_timeout_ms,
            max_result_bytes=self._plan.limits.max_result_bytes,
            max_log_bytes=self._plan.limits.max_log_bytes,
            accepts_any_exit=asking,
        )

    def _artifact(self, step: Step, spec: PlanStep, unit: Unit) -> bytes:
        if unit.item is not None:
            return step.work[unit.index or 0].result or b"null"
        made = reduce_step(spec, step, self._plan.limits.max_artifact_bytes)
        return (made.json if isinstance(made, Artifact) else None) or b"null"

    def _check_world(self, step: Step, spec: PlanStep, unit: Unit) -> None:
        if (step.index, unit.kind) in self._checked:
            return
        self._check_directory()
        if unit.kind == "work" and isinstance(spec.target, PythonFunction):
            self._check_module(spec.target)
        self._checked.add((step.index, unit.kind))

    def _check_directory(self) -> None:
        project = self._plan.project
        root = Path(project.root)
        if not root.is_dir() or str(root.resolve()) != project.root:
            raise DispatchRefusedError(
                "directory-changed",
                f"run {self._snap.run.id} was frozen in {project.root}, which is gone or leads elsewhere now",
                f"put the directory back, or start anew: interlock run {self._plan.source}",
            )
        stat = root.stat()
        if (stat.st_dev, stat.st_ino) != (project.device, project.inode):
            self._notices.append(f"{project.root} is another directory of the same name (device or inode changed)")

    def _check_module(self, target: PythonFunction) -> None:
        accepted = self._snap.accepted.get(target.file, target.sha256)
        try:
            found = module_hash(target.file)
        except OSError as error:
            raise ModuleChangedError(
                f"module {target.module} ({target.file}) cannot be read: {error.strerror}"
            ) from error
        if found != accepted:
            raise ModuleChangedError(f"module {target.module} ({target.file}) changed since the run began")


def module_hash(file: str) -> str:
    """Return the tagged hash of a module's file. Raises OSError."""
    return "sha256:" + hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _target(spec: PlanStep, unit: Unit) -> Target:
    found: Target | None
    if unit.kind == "gate":
        found = spec.gate.check if spec.gate else None
    elif unit.kind == "probe":
        found = spec.probe
    else:
        found = spec.target
    if found is None:
        raise RuntimeError(f"unit {unit.id} has nothing to dispatch")
    return found
