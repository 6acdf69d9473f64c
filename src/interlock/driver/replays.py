"""A replay as it is asked for: a recorded run's id, perhaps another workflow, faults as text, parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from interlock.driver.lease import Host
from interlock.driver.params import ParamsInput, read_params
from interlock.errors import Diagnostic
from interlock.model import canon
from interlock.model.plan import Plan
from interlock.store.base import Store

if TYPE_CHECKING:
    from interlock.driver.recording import Recorded
    from interlock.driver.replaying import Replay


class Replays:
    """The verb `replay` of an App."""

    @property
    def store(self) -> Store:
        """The journal, for reading."""
        raise NotImplementedError

    def _host(self) -> Host:
        raise NotImplementedError

    def _compile(self, path: Path, on_warning: Callable[[Diagnostic], None] | None) -> Plan:
        raise NotImplementedError

    def replay(
        self,
        run_id: str,
        *,
        workflow: Path | None = None,
        faults: Sequence[str] = (),
        params: ParamsInput | None = None,
    ) -> Replay:
        """Play a recorded run's answers back, to its own plan or to `workflow`; nothing runs and nothing is kept."""
        plan = None if workflow is None else self._compile(workflow, None)
        return replay_run(self.store, run_id, self._host(), plan=plan, faults=faults, params=params)


def replay_run(
    store: Recorded,
    run_id: str,
    host: Host,
    *,
    plan: Plan | None = None,
    faults: Sequence[str] = (),
    params: ParamsInput | None = None,
) -> Replay:
    """Replay a run of `store`. Without `params` the recorded ones hold, as far as the plan declares them."""
    from interlock.driver.recording import read_recording  # noqa: PLC0415 - a run replays nothing
    from interlock.driver.replay_faults import parse_fault  # noqa: PLC0415 - as above
    from interlock.driver.replaying import replay  # noqa: PLC0415 - as above
    from interlock.plan.params import coerce_params  # noqa: PLC0415 - heavy: YAML

    recording = read_recording(store, run_id)
    used = plan or recording.plan
    found = [parse_fault(text, used) for text in faults]
    params_json = recording.run.params_json
    if plan is not None or params is not None:
        declared = {param.name for param in used.params}
        values = {name: v for name, v in msgspec.json.decode(params_json).items() if name in declared}
        given = params or ParamsInput()
        values.update(given.values or {})
        params_json = canon.dumps(coerce_params(used.params, given.cli, read_params(given.file, used.params), values))
    return replay(recording, used, params_json, found, host)
