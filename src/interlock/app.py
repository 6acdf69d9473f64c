"""The composition root: settings in, a wired App out; the only file that names concrete classes.

`App` is the Python API (`interlock.open`) and all that the command line is built on. Every verb raises
InterlockError with a next step; none prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from interlock.decide import reopen
from interlock.dispatch.processes.identity import alive
from interlock.dispatch.processes.leftovers import end_leftovers
from interlock.driver.arguments import checking
from interlock.driver.asking import abandoned, amend, ask, raising, result_payload, user
from interlock.driver.birth import new_run, new_run_id
from interlock.driver.clock import Clock, SystemClock
from interlock.driver.configuration import is_faulty, load_config
from interlock.driver.drive import World, drive, refuse_child
from interlock.driver.executor import Executor
from interlock.driver.family import Opening
from interlock.driver.finding import find_run, same_key
from interlock.driver.lease import HELD, fresh, held_now, this_host
from interlock.driver.load import restore, run_info
from interlock.driver.local_setup import begun, default_concurrency, local_executor, refuse_other_systems
from interlock.driver.loop import Observer
from interlock.driver.openings import accept_modules, first_notices
from interlock.driver.params import NO_PARAMS, GivenParams, as_input, fitted
from interlock.driver.project import ProjectPaths, open_state, project_of, read_project_id, seen
from interlock.driver.result import Result, not_twice, result_of
from interlock.driver.signals import interrupting
from interlock.driver.trees import forget_uncommitted, settle_lost, with_uncommitted
from interlock.driver.waiting import waited
from interlock.errors import ConfigError, Diagnostic, LeaseHeldError, UsageError
from interlock.model.plan import Plan
from interlock.model.run import Lease, RunInfo, Snapshot
from interlock.model.states import RUN_ENDED, RunState
from interlock.plan.config import Config
from interlock.plan.freeze import freeze, thaw
from interlock.store.base import Store
from interlock.store.births import NewRun
from interlock.store.held import AlreadyRunningError, Held
from interlock.store.opened import PerThread
from interlock.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from interlock.driver.estimating import Preview
    from interlock.driver.forking import Draft, Explained, ForkOrder
    from interlock.driver.gc import GcReport
    from interlock.driver.replay.report import Replay
    from interlock.store.base import RequestKind

CommitHook = Callable[[str], None]
OnWarning = Callable[[Diagnostic], None]


@checking
class App:
    """One project: its configuration and journal, and the verbs on its runs.

    Threads may share it: each gets a connection of its own. `store` is that of the thread which asks for it.
    """

    def __init__(
        self,
        project: ProjectPaths,
        config: Config,
        *,
        on_commit: CommitHook | None = None,
        clock: Clock | None = None,
        config_faults: tuple[Diagnostic, ...] = (),
    ) -> None:
        self.project = project
        self._config = config
        self._config_faults = config_faults
        self._on_commit = on_commit
        self._clock = clock or SystemClock()
        self._opened = PerThread()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the journal."""
        self.close()

    # reading

    @property
    def config(self) -> Config:
        """The configuration in force. Raises ConfigError with all that is wrong in it; reading runs needs none."""
        if is_faulty(self._config_faults):
            raise ConfigError(self._config_faults)
        return self._config

    @property
    def config_as_read(self) -> tuple[Config, tuple[Diagnostic, ...]]:
        """What could be read of the configuration, for looking at it alone, and all that is wrong in it."""
        return self._config, self._config_faults

    @property
    def store(self) -> Store:
        """The journal, for reading; an empty one where there is none yet. Raises StoreError when it can't be read."""
        return self._opened.here.either(self.project.journal) or SqliteStore.in_memory(self.project.state_dir)

    def close(self) -> None:
        """Close the journal; a thread at work keeps its own until it is done. Idempotent."""
        self._opened.here.close()
        # what other threads have open and don't use goes with the last that refers to it
        self._opened = PerThread()

    def find(self, text: str) -> str:
        """Return the full id of the run that `text` names: an id, a unique beginning of one, or `last`."""
        return find_run(self.store, text, self.project.root)

    def driven(self, run_id: str) -> bool:
        """Tell whether a live driver holds the run."""
        lease = self.store.read_lease(run_id)
        return lease is not None and held_now(self._clock)(lease)

    def lint(self, paths: Sequence[str | Path]) -> list[Diagnostic]:
        """Check the configuration and workflow files, and those below folders; save nothing. All findings by place."""
        from interlock.driver.compiling import load_workflow, workflow_files  # noqa: PLC0415 - heavy: YAML, CommonMark

        # a child's faults come with it and with each of its callers
        found = (
            load_workflow(path, self.project, self._config)[1]
            for path in workflow_files([Path(path) for path in paths])
        )
        return sorted(set(self._config_faults).union(*found))

    def preview(
        self, target: str | Path, params: GivenParams = NO_PARAMS, *, on_warning: OnWarning | None = None
    ) -> Preview:
        """Say what starting the workflow file, or going on with the run, would do."""
        from interlock.decide.preview import preview  # noqa: PLC0415 - a run needs no estimate
        from interlock.driver.estimating import Preview, estimate_of  # noqa: PLC0415 - as above

        path = Path(target)
        if path.suffix == ".md" or seen(path.is_file):
            plan = self._compile(path, on_warning)
            _, plan_hash = freeze(plan)
            snap = Snapshot(plan, RunInfo(id="preview", params=fitted(plan, params)[0]))
        else:
            snap, plan_hash = self.snapshot(self.find(str(target)))
        steps = preview(snap)
        return Preview(plan_hash=plan_hash, steps=steps, estimate=estimate_of(snap.plan, steps, self.store))

    def snapshot(self, run_id: str) -> tuple[Snapshot, str]:
        """Return the run as its driver would see it, and its plan's hash. Raises PlanError."""
        with self.store.view():
            loaded = self.store.load(run_id)
            plan = thaw(loaded.plan_json, loaded.run.plan_hash, run_id)
            snap, _ = restore(plan, loaded, self.store.units(run_id))
        return snap, loaded.run.plan_hash

    # driving

    def run_file(
        self,
        path: str | Path,
        params: GivenParams = NO_PARAMS,
        *,
        key: str | None = None,
        if_running: Literal["fail", "skip"] | None = None,
        timeout_s: float | None = None,
        on_event: Observer | None = None,
        on_warning: OnWarning | None = None,
    ) -> Result:
        """Start a new run of a workflow file and drive it to where it can go; with `key`, continue that key's run.

        What `on_event` raises ends the drive and comes out here; `run_id` goes on with the run.
        """
        plan = self._compile(path, on_warning)
        _, params_json = fitted(plan, params)
        store = self._open()
        if not plan.project.id:
            # the project got its id just now; a plan without one would never equal the next run's
            project = msgspec.structs.replace(plan.project, id=read_project_id(self.project))
            plan = msgspec.structs.replace(plan, project=project)
        alone = held_now(self._clock) if if_running else None
        try:
            created, lease = self._create(plan, lambda plan, run, at: new_run(plan, run, params_json, at, key), alone)
        except AlreadyRunningError as error:
            return not_twice(error, run_info(store.run(error.run_id)), if_running)
        if created != lease.run_id:
            known = run_info(store.run(created))
            ended = known.state in RUN_ENDED
            return result_of(known) if ended else self.run_id(created, timeout_s=timeout_s, on_event=on_event)
        found = ("journal", store.notice), ("key", "" if key is None else same_key(store, created, key, self.driven))
        return self._drive(created, [first_notices(*found)], timeout_s, on_event, lease=lease)

    def fork(
        self,
        order: ForkOrder,
        *,
        timeout_s: float | None = None,
        on_event: Observer | None = None,
        on_warning: OnWarning | None = None,
    ) -> Result:
        """Start a new run from an old one: what it completed on the same input is taken over, the rest runs."""
        from interlock.driver.forking import new_fork  # noqa: PLC0415 - most runs are no forks

        made = self._draft(order, on_warning)
        run_id, lease = self._create(made.plan, lambda plan, run_id, at: new_fork(made, plan, run_id, at))
        found = ("journal", self._open().notice)
        return self._drive(run_id, [first_notices(found)], timeout_s, on_event, lease=lease)

    def explain_fork(self, order: ForkOrder) -> Explained:
        """Say what `fork` would reuse and run, why, and what is at stake. Writes nothing and starts nothing."""
        from interlock.driver.forking import explain  # noqa: PLC0415 - as above

        return explain(self.store, self._draft(order, None), self._clock.wall_ms())

    def replay(
        self,
        run_id: str,
        *,
        workflow: str | Path | None = None,
        faults: Sequence[str] = (),
        params: GivenParams | None = None,
    ) -> Replay:
        """Play a recorded run's answers back, to its own plan or to `workflow`; nothing runs and nothing is kept."""
        from interlock.driver.replay.replays import replay_run  # noqa: PLC0415 - a run replays nothing

        plan = None if workflow is None else self._compile(workflow, None)
        return replay_run(self.store, run_id, this_host(), plan=plan, faults=faults, params=as_input(params))

    def run_id(
        self, run_id: str, *, wait: bool = False, timeout_s: float | None = None, on_event: Observer | None = None
    ) -> Result:
        """Continue a run: what never completed is dispatched, what was unavailable is asked again.

        `wait` sleeps until a waiting run is due, and goes on; `timeout_s` holds for all of it together.
        """

        def go_on(left_s: float | None) -> Result:
            return self._drive(run_id, [reopen.go_on], left_s, on_event)

        def due() -> int:
            return self.store.run(run_id).wait_until or 0

        return waited(go_on, due, self._clock, timeout_s) if wait else go_on(timeout_s)

    def resume(
        self,
        run_id: str,
        *,
        raises: Mapping[str, float] = {},
        loops: int = 0,
        accept_changes: bool = False,
        timeout_s: float | None = None,
        on_event: Observer | None = None,
    ) -> Result:
        """Reopen a run and drive on. A live driver of it takes over `raises`, ceilings by name, and feedback `loops`."""
        row = self.store.run(run_id)
        if row.state == RunState.COMPLETED:
            raise UsageError(
                "run-completed", f"run {run_id} is completed", f"see what it made: interlock status {run_id}"
            )
        refuse_child(row, "resume")
        openings: list[Opening] = [raising(raises)]
        if accept_changes:
            openings.append(accept_modules)
        if loops:
            openings.append(lambda snap, now: reopen.grant(snap, now, loops))
        openings.append(reopen.reopen)
        try:
            return self._drive(run_id, openings, timeout_s, on_event)
        except LeaseHeldError as error:
            if error.code != HELD or accept_changes or not (raises or loops):
                raise
            return amend(self._world(), run_id, raises, loops, user())

    def abandon(self, run_id: str) -> Result:
        """End a run for good (but for `resume`): its driver ends the work, or this call does if nobody drives.

        To do it again is no fault.
        """
        return abandoned(self.store.run(run_id)) or self._ask(run_id, "abandon", {})

    def resolve(self, run_id: str, unit_id: str, *, done: bool, result_json: str | None = None) -> Result:
        """Answer for a unit whose outside effect is unknown: done (with its result), or to be run again."""
        payload = {"unit": unit_id, "done": done, **result_payload(result_json)}
        return self._ask(run_id, "resolve", payload)

    def approve(self, run_id: str, target: str | None = None, *, note: str = "", override: bool = False) -> Result:
        """Pass a gate that waits for a person; with `override`, one that a check or judge rejected or can't judge.

        `target` is a step's or gate unit's id; None takes the only one there is. The verdict holds for the artifact
        as it is now. The run goes on with `run_id`, or at once under a live driver.
        """
        payload = {"target": target, "note": note, "override": override, "by": user()}
        return self._ask(run_id, "approve", payload)

    def reject(self, run_id: str, target: str | None = None, *, note: str = "") -> Result:
        """Reject what waits at a gate: one more loop with the note as feedback where the step can loop, else failed."""
        payload = {"target": target, "note": note, "by": user()}
        return self._ask(run_id, "reject", payload)

    def gc(self, *, older_than_ms: int, dry_run: bool = False) -> GcReport:
        """Remove runs that ended longer ago than that, with their logs, and artifacts nothing refers to."""
        from interlock.driver.gc import collect  # noqa: PLC0415 - a run collects nothing

        return collect(self._open(), self.project, self._clock, older_than_ms, dry_run=dry_run)

    # below the verbs
    def _draft(self, order: ForkOrder, on_warning: OnWarning | None) -> Draft:
        from interlock.driver.forking import draft  # noqa: PLC0415 - as above

        return draft(order, self.store, self.project.root, lambda path: self._compile(path, on_warning), fitted)

    def _ask(self, run_id: str, kind: RequestKind, payload: dict[str, Any]) -> Result:
        return result_of(ask(self._world(), run_id, kind, payload, user()))

    def _open(self) -> Store:
        if self._opened.here.writer is None:
            refuse_other_systems()
            open_state(self.project)
            self._opened.here.writer = SqliteStore.open(self.project.journal, on_commit=self._on_commit)
        return self._opened.here.writer

    def _create(
        self, plan: Plan, birth: Callable[[Plan, str, int], NewRun], alone: Held | None = None
    ) -> tuple[str, Lease]:
        """Create the run, and return its id and a lease; the lease is of another id where the run was there already."""
        at = self._clock.wall_ms()
        run_id = new_run_id(at)
        plan = with_uncommitted(plan, run_id)
        lease = fresh(run_id, 1, this_host(), self._clock)
        created = None
        try:
            created = self._open().create_run(birth(plan, run_id, at), lease, alone=alone)
        finally:
            if created != run_id:
                forget_uncommitted(plan, run_id)
        return created, lease

    def _compile(self, path: str | Path, on_warning: OnWarning | None) -> Plan:
        from interlock.driver.compiling import require_plan  # noqa: PLC0415 - heavy: YAML, CommonMark

        if is_faulty(self._config_faults):
            raise ConfigError(tuple(self.lint([path])))
        return require_plan(Path(path), self.project, self.config, on_warning)

    def _drive(
        self,
        run_id: str,
        openings: Sequence[Opening],
        timeout_s: float | None,
        on_event: Observer | None,
        *,
        lease: Lease | None = None,
        settle_only: bool = False,
    ) -> Result:
        driven = drive(
            self._world(),
            run_id,
            openings,
            observe=on_event or (lambda _events, _snap: None),
            lease=lease,
            timeout_ms=None if timeout_s is None else int(timeout_s * 1000),
            settle_only=settle_only,
        )
        return result_of(driven.snap.run, driven.stop)

    def _world(self) -> World:
        return World(
            root=self.project.root,
            store=self._open(),
            clock=self._clock,
            host=this_host(),
            alive=alive,
            end_leftovers=end_leftovers,
            executor=partial(self._executor, self.config),
            settle_lost=settle_lost,
            map_concurrency=default_concurrency(),
            guard=interrupting,
        )

    def _executor(self, config: Config, plan: Plan, lease: Lease) -> Executor:
        row = self._open().run(lease.run_id)
        return local_executor(self.project, config, plan, lease, row.params_json, begun(self._open(), row, plan))


def open_project(project: str | Path | None = None) -> App:
    """Open the project whose root is `project`, else the one at or above the current folder.

    Raises UsageError when the folder is not there. Faults of `interlock.toml` are told by what needs it.
    """
    paths = project_of(project)
    config, faults = load_config(paths)
    return App(paths, config, config_faults=faults)
