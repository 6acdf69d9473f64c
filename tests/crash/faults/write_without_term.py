"""Planted fault: writes do not ask whose the lease is."""

from __future__ import annotations

import sys

from interlock.store import reads, sql
from interlock.testing import suspension

queries = dict(sql.queries("sqlite"))
for name, fence in (
    ("fence", "lease.holder = ? AND lease.term = ? AND lease.released = 0"),
    ("renew_lease", "holder = ? AND term = ? AND released = 0"),
):
    assert fence in queries[name]
    queries[name] = queries[name].replace(fence, "? IS NOT NULL AND ? IS NOT NULL")
vars(reads)["queries"] = lambda _dialect: queries
sys.exit(suspension.main(sys.argv[1:]))
