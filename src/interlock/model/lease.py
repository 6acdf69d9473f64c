"""Who drives a run, as the journal has it."""

from __future__ import annotations

import msgspec


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who drives a run. Times: `*_ms` are wall-clock epoch ms, `*_boot_ms` the boot clock of `boot_id`."""

    run_id: str
    holder: str
    term: int
    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: str
    host: str
    since_ms: int
    renewed_ms: int
    expires_ms: int
    expires_boot_ms: int
    released: bool = False
