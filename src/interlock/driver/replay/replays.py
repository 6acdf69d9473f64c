"""A replay as it is asked for: a recorded run's id, perhaps another workflow, faults as text, parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from interlock.driver.lease import Host
from interlock.driver.params import NO_PARAMS, ParamsInput, explaining_recorded, read_params
from interlock.driver.replay.faults import parse_fault
from interlock.driver.replay.recording import Recorded, read_recording
from interlock.driver.replay.replaying import Replay, replay
from interlock.model import canon
from interlock.model.plan import Plan
from interlock.plan.params import coerce_params


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
    recording = read_recording(store, run_id)
    used = plan or recording.plan
    found = [parse_fault(text, used) for text in faults]
    params_json = recording.run.params_json
    if plan is not None or params is not None:
        with explaining_recorded(run_id):
            params_json = canon.dumps(_params(used, params or NO_PARAMS, msgspec.json.decode(params_json)))
    return replay(recording, used, params_json, found, host)


def _params(plan: Plan, given: ParamsInput, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded parameters, as far as the plan declares them, under those that were given."""
    declared = {param.name for param in plan.params}
    read = read_params(given.file, plan.params) or {}
    kept = {name: value for name, value in recorded.items() if name in declared and name not in read}
    return coerce_params(plan.params, given.cli, read, {**kept, **(given.values or {})})
