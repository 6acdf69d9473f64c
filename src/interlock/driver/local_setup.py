"""The executor of this machine set up for a run: env groups, engines, interpreter and log of it and of those below it."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from functools import partial

from interlock.dispatch.env.secrets import EnvResolver
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes.markers import VARIABLE, Marker
from interlock.driver.engines import key_names, settings_of
from interlock.driver.executor import Executor
from interlock.driver.local import LocalExecutor, Secrets
from interlock.driver.project import ProjectPaths
from interlock.errors import UsageError
from interlock.model import canon
from interlock.model.plan import Child, Plan, Prompt
from interlock.model.run import Lease
from interlock.model.secret import secret_texts
from interlock.model.states import StepState
from interlock.plan.config import Config
from interlock.store.base import RunRow, Store


def default_concurrency() -> int:
    """Return how many units of a map run side by side where nothing says so: twice the cores this process may use."""
    return min(16, max(4, 2 * len(os.sched_getaffinity(0))))


def refuse_other_systems() -> None:
    """Raise UsageError where processes cannot be watched, and found again after a crash, as runs need it."""
    if sys.platform != "linux":
        raise UsageError(
            "no-linux",
            f"runs are driven on Linux only, and this is {sys.platform}",
            "use a container, a virtual machine or WSL",
        )


def local_executor(
    project: ProjectPaths, config: Config, plan: Plan, lease: Lease, params_json: bytes, begun: Collection[str] = ()
) -> Executor:
    """Return an executor for the run that `lease` holds; `plan` and `params_json` are its own.

    `begun` are the steps that were begun by earlier drivers, or in the run that this one is a fork of.
    """
    plans = plan.whole
    values = canon.loads(params_json.decode())
    secrets = secret_texts((param.name for param in plan.params if param.secret), values)
    groups = {group.name: group for one in plans for group in one.env_groups}
    marker = Marker(lease.run_id, lease.holder, lease.term, os.environ.get(VARIABLE, ""))
    resolver = EnvResolver(
        groups.values(), plan.project.root, secrets, keys=key_names(config), mark=marker.value("secrets")
    )
    engines = {engine.name: engine for one in plans for engine in one.engines}
    return LocalExecutor(
        python=next((one.python for one in plans if one.python), ()),
        env_for=lambda job: resolver.resolve(job.env, job.hidden),
        marker=marker,
        log=RunLog(project.logs / f"{lease.run_id}.log"),
        scratch=project.state_dir / "tmp",
        settings=settings_of(config, engines.values()),
        secrets=Secrets(partial(resolver.recall, _told(plan, begun)), resolver.stop) if groups else None,
    )


def begun(store: Store, row: RunRow, plan: Plan) -> frozenset[str]:
    """Return the steps of the run that were begun, where something is kept of what they were told."""
    if not any(one.env_groups for one in plan.whole):
        return frozenset()
    if row.forked_from is not None:
        return frozenset(step.id for step in plan.steps)
    idle = {StepState.PENDING, StepState.SKIPPED}
    return frozenset(step.id for step in store.steps(row.id) if step.round > 1 or step.state not in idle)


def _told(plan: Plan, begun: Collection[str]) -> tuple[str, ...]:
    """Return the env groups whose values these steps may have been given, those of their child runs included."""
    steps = [step for step in plan.steps if step.id in begun]
    if any(isinstance(step.target, Child) for step in steps):
        steps += [step for child in plan.children.values() for step in child.steps]
    asking = any(isinstance(step.target, Prompt) or (step.gate and step.gate.judge) for step in steps)
    engines = [engine for one in plan.whole for engine in one.engines] if asking else []
    named = [*(engine.env for engine in engines), *(step.env for step in steps)]
    return tuple(dict.fromkeys(name for names in named for name in names))
