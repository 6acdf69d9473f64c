"""From a unit to a request: what a step's units share is built once and kept.

Before the first dispatch of a step the world is checked: the working directory must be the one the plan was
frozen in, and a Python module's file must have the frozen hash. A worker that loads it later is told that hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from interlock.decide.answers import JUDGE_SCHEMA
from interlock.decide.fate import MISSES
from interlock.decide.prompt import compose, correction, judge_prompt
from interlock.decide.reduce import Artifact, reduce_step
from interlock.decide.work import Shared, idempotency_key, shared
from interlock.dispatch.base import EngineCall, FrozenModule, Job, Request
from interlock.dispatch.env.growing import GrowingRedactor
from interlock.driver.project import project_id_in
from interlock.driver.standing import gone
from interlock.driver.trees import TreeBook
from interlock.errors import StartAnewError
from interlock.model import canon
from interlock.model.events import Process
from interlock.model.plan import Child, Command, Engine, Plan, Prompt, PythonFunction, Target, Work
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.secret import secret_texts
from interlock.model.states import UnitState


class ModuleChangedError(Exception):
    """A Python module's file differs from the frozen one; the text says which."""


class JobBook:
    """Builds requests of one run; `first` is the executor's number of its first step."""

    def __init__(self, snap: Snapshot, *, first: int = 0, examine: bool = True) -> None:
        self._snap = snap
        self._first = first
        self._examine = examine
        self._plan: Plan = snap.plan
        self._shared: dict[int, Shared] = {}
        self._jobs: dict[tuple[int, str, int, int], Job] = {}
        self._checked: set[tuple[int, str]] = set()
        self._notices: list[str] = []
        self._trees = TreeBook(snap)
        self._prefix = "" if snap.above is None else f"{snap.run.id}/"
        texts = dict.fromkeys(text for level in snap.levels for text in _secrets(level))
        secrets = tuple(texts)
        self._hidden = secrets if snap.above is not None else ()
        self._hide: Callable[[bytes], bytes] = GrowingRedactor(secrets, ()).json if secrets else bytes

    def job(self, step: Step, unit: Unit) -> Job:
        """Return the job of a unit. Raises ModuleChangedError, StartAnewError, UnresolvedError."""
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

    def request(
        self,
        job: Job,
        step: Step,
        unit: Unit,
        number: int,
        dispatch: str,
        process: Process | None,
        *,
        ahead: bool = False,
    ) -> Request:
        """Return the request of the unit's next attempt."""
        asked = unit if unit.kind != "probe" else step.units[int(unit.subject or 0)]
        session = self._session(step, unit)
        text = None if job.call is None else self._prompt(step, unit, job)
        worktree = self._trees.worktree(step, unit, number, session)
        cold = text
        if text is not None and _corrects(unit):
            cold = correction(unit.error, text)
            text = cold if session is None else correction(unit.error, None)
        return Request(
            job=job,
            dispatch=dispatch,
            unit_id=unit.id,
            attempt=number,
            idempotency_key=idempotency_key(self._snap.run.id, asked.id),
            item_json=unit.item,
            index=unit.index,
            process=process,
            ahead=ahead,
            prompt=text,
            cold_prompt=None if cold == text else cold,
            session=session,
            session_usage=None if session is None else self._snap.sessions.get(session),
            worktree=worktree,
            cwd=self._trees.folder(step, unit),
        )

    def _session(self, step: Step, unit: Unit) -> str | None:
        """Return the agent session to go on in: a correction's, a warm loop's, a warm retry's."""
        continued = self._plan.steps[step.index].retry.session == "continue"
        return unit.session if _corrects(unit) or continued else None

    def _prompt(self, step: Step, unit: Unit, job: Job) -> str:
        spec = self._plan.steps[step.index]
        if unit.kind == "judge":
            return self._judge_prompt(step, spec, unit, job)
        return compose(
            spec.target.text if isinstance(spec.target, Prompt) else "",
            params_json=self._hide(job.params_json),
            inputs_json=self._hide(job.inputs_json),
            item_json=None if unit.item is None else self._hide(unit.item),
            index=unit.index,
            feedback_json=unit.feedback,
        )

    def _judge_prompt(self, step: Step, spec: PlanStep, unit: Unit, job: Job) -> str:
        judge = spec.gate.judge if spec.gate else None
        if judge is None:
            raise RuntimeError(f"unit {unit.id} has no judge")
        artifact = self._hide(job.artifact_json or b"null")
        item = None if unit.item is None else self._hide(unit.item)
        return judge_prompt(judge.rubric, _counts(step, unit), artifact, judge.clip_chars, item_json=item)

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
            key=self._prefix
            + f"{spec.id}/{unit.kind}/r{unit.round}/l{unit.loop}"
            + (f"/{unit.ordinal}" if asking else ""),
            run_id=self._snap.run.id,
            step_id=spec.id,
            step=self._first + step.index,
            target=_target(spec, unit),
            call=_call(self._plan, spec, unit),
            shell=self._plan.shell.argv if self._plan.shell else (),
            params_json=context.params_json,
            inputs_json=context.inputs_json,
            artifact_json=self._artifact(step, spec, unit) if unit.kind in ("gate", "judge") else None,
            env=self._env(spec, unit),
            python_path=self._plan.python_path,
            frozen=self._module(spec, unit),
            hidden=self._hidden,
            cwd=str(Path(self._plan.project.root, spec.cwd)),
            timeout_ms=spec.timeout_ms,
            idle_timeout_ms=spec.idle_timeout_ms,
            max_result_bytes=self._plan.limits.max_result_bytes,
            max_log_bytes=self._plan.limits.max_log_bytes,
            accepts_any_exit=asking,
            keeps_end=unit.kind in ("gate", "merge"),
            merge=self._trees.merge(step, unit),
        )

    def _env(self, spec: PlanStep, unit: Unit) -> tuple[str, ...]:
        """Return the env groups of a unit: those of the engine that it goes to, then the step's, which stand over them."""
        call = _call(self._plan, spec, unit)
        own = spec.env if unit.kind != "judge" else ()
        engine = () if call is None else _engine(self._plan, call.engine).env
        return tuple(dict.fromkeys([*engine, *own]))

    def _artifact(self, step: Step, spec: PlanStep, unit: Unit) -> bytes:
        if unit.item is not None:
            return step.work[unit.index or 0].result or b"null"
        made = reduce_step(spec, step, self._plan.limits.max_artifact_bytes)
        return (made.json if isinstance(made, Artifact) else None) or b"null"

    def _check_world(self, step: Step, spec: PlanStep, unit: Unit) -> None:
        if not self._examine or (step.index, unit.kind) in self._checked:
            return
        self._check_directory()
        module = self._module(spec, unit)
        if module is not None and isinstance(spec.target, PythonFunction):
            self._check_module(spec.target.module, module)
        self._checked.add((step.index, unit.kind))

    def _check_directory(self) -> None:
        project = self._plan.project
        root = Path(project.root)
        if not root.is_dir() or str(root.resolve()) != project.root:
            whole = self._snap.levels[-1]
            raise gone(whole.run.id, project.root, whole.steps)
        stat = root.stat()
        if (stat.st_dev, stat.st_ino) != (project.device, project.inode):
            if project_id_in(root) != project.id:
                raise StartAnewError(
                    "directory-changed",
                    f"run {self._snap.run.id} was frozen in another directory of the name {project.root}: "
                    "the project's id is not the same",
                    f"put the directory back at {project.root}",
                )
            self._notices.append(f"{project.root} is another directory of the same name (device or inode changed)")

    def _module(self, spec: PlanStep, unit: Unit) -> FrozenModule | None:
        target = spec.target
        if unit.kind != "work" or not isinstance(target, PythonFunction):
            return None
        place = str(Path(self._plan.project.root, target.file))
        sha256 = self._snap.accepted.get(target.file, target.sha256)
        return FrozenModule(file=target.file, place=place, sha256=sha256)

    def _check_module(self, name: str, module: FrozenModule) -> None:
        """Look before the first dispatch; a worker looks again at what it loads."""
        try:
            found = module_hash(Path(module.place))
        except OSError as error:
            raise ModuleChangedError(f"module {name} ({module.file}) cannot be read: {error.strerror}") from error
        if found != module.sha256:
            raise ModuleChangedError(f"module {name} ({module.file}) changed since the run began")


def module_hash(file: Path) -> str:
    """Return the tagged hash of a module's file. Raises OSError."""
    return canon.sha256(file.read_bytes())


def _engine(plan: Plan, name: str) -> Engine:
    return next(engine for engine in plan.engines if engine.name == name)


def _call(plan: Plan, spec: PlanStep, unit: Unit) -> EngineCall | None:
    """Return what a unit asks of an engine, None when it goes to none."""
    judge = spec.gate.judge if spec.gate is not None and unit.kind == "judge" else None
    if judge is not None:
        engine = _engine(plan, judge.engine)
        return EngineCall(
            engine=engine.name,
            kind=engine.kind,
            driver=engine.driver,
            model=judge.model or engine.model,
            schema_json=JUDGE_SCHEMA,
        )
    target = spec.target
    if unit.kind != "work" or not isinstance(target, Prompt):
        return None
    engine = _engine(plan, target.engine)
    return EngineCall(
        engine=engine.name,
        kind=engine.kind,
        driver=engine.driver,
        model=target.model or engine.model,
        schema_json=spec.unit_schema_json,
        temperature=target.temperature,
        max_tokens=target.max_tokens,
        extra_params_json=target.extra_params_json,
    )


def _corrects(unit: Unit) -> bool:
    """Tell whether the unit's next attempt is the one corrective re-ask; a retry or a question put anew is none."""
    return unit.state is UnitState.PENDING and unit.asks > 0 and unit.reason in MISSES


def _counts(step: Step, unit: Unit) -> str:
    """Return the line of unit counts that a judge reads."""
    if unit.item is not None:
        return f"Units: one item of {len(step.work)}, completed."
    parts = [f"{count} {state}" for state, count in step.counts.items() if count]
    return f"Units: {len(step.work)} in all, " + ", ".join(parts) + "."


def _secrets(snap: Snapshot) -> Iterable[tuple[str, str]]:
    return secret_texts((param.name for param in snap.plan.params if param.secret), snap.run.params)


def _target(spec: PlanStep, unit: Unit) -> Work:
    found: Target | None
    if unit.kind == "gate":
        found = spec.gate.check if spec.gate else None
    elif unit.kind == "merge":
        found = (spec.gate.check if spec.gate else None) or Command()
    elif unit.kind == "probe":
        found = spec.probe
    elif unit.kind == "judge" and spec.gate is not None and spec.gate.judge is not None:
        found = Prompt(text=spec.gate.judge.rubric, engine=spec.gate.judge.engine, model=spec.gate.judge.model)
    else:
        found = spec.target
    if found is None or isinstance(found, Child):
        raise RuntimeError(f"unit {unit.id} has nothing to dispatch")
    return found
