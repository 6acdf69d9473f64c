"""A run as one object of the contract: the `run` of `status`, and each entry of `list`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.model.run import Lease
from interlock.model.secret import without_secrets
from interlock.store.base import RunRow
from interlock.views.facts import PlanFacts
from interlock.views.values import rfc3339, value


def lease_view(lease: Lease | None) -> dict[str, Any] | None:
    """Who drives, or drove: a released lease stays as evidence of the last driver."""
    if lease is None:
        return None
    return {
        "holder": lease.holder,
        "pid": lease.pid,
        "host": lease.host,
        "since": rfc3339(lease.since_ms),
        "until": rfc3339(lease.expires_ms),
        "released": lease.released,
    }


def params_view(params_json: bytes, facts: PlanFacts, hide: Callable[[bytes], bytes] = bytes) -> dict[str, Any]:
    """The run's parameters with what looks like a secret left out: by its name, and by what `hide` knows."""
    params = value(hide(params_json))
    if not isinstance(params, dict):
        return {}
    return {
        name: f"[redacted:{name}]" if name in facts.secrets else without_secrets(name, given)
        for name, given in params.items()
    }


def run_view(
    row: RunRow,
    lease: Lease | None,
    facts: PlanFacts,
    hide: Callable[[bytes], bytes] = bytes,
    *,
    stopping: bool = False,
) -> dict[str, Any]:
    """The `run` object; `stopping` says that its driver was asked to abandon it and has not yet."""
    return {
        "id": row.id,
        "workflow": row.workflow,
        "key": row.key,
        "state": row.state,
        "stopping": stopping,
        "outcome": row.outcome,
        "reason": row.reason,
        "parent": row.parent,
        "parent_unit": row.parent_unit,
        "forked_from": row.forked_from,
        "lease": lease_view(lease),
        "started_at": rfc3339(row.created_at),
        "ended_at": rfc3339(row.ended_at),
        "params": params_view(row.params_json, facts, hide),
    }
