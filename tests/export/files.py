"""Export files for tests: small journals to export, and files packed by somebody who knows the format."""

from __future__ import annotations

import gzip
import hashlib
import struct
import zlib
from pathlib import Path
from typing import Any

from tests.store import builders as b

from interlock.dispatch.logs.log import RunLog
from interlock.driver.export import exporting
from interlock.driver.export.exporting import Exported
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.run import Lease
from interlock.model.states import RunState
from interlock.store.base import Store
from interlock.store.sqlite import SqliteStore

PLAN = b'{"params":[],"plan":1}'
HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


def new_run(store: Store, run_id: str = b.RUN, plan: bytes = PLAN, **changes: Any) -> Lease:
    mine = b.lease(run_id)
    store.create_run(b.new_run(run_id, plan_json=plan, plan_hash=canon.sha256(plan), **changes), mine)
    return mine


def done_run(
    store: Store, run_id: str = b.RUN, plan: bytes = PLAN, artifact: bytes = b'["ok"]', **changes: Any
) -> None:
    """A run of one step and one unit that is over."""
    mine = new_run(store, run_id, plan, **changes)
    store.commit(mine, [b.started(1), b.reserved(0), b.running(0)])
    store.commit(mine, [b.finished(0, result=b'"ok"', usage=ev.Usage(input_tokens=5, cost_usd=0.25))])
    store.commit(mine, [b.completed(artifact), b.run_moved(RunState.COMPLETED, outcome="ok", driven_ms=9)])
    store.release(mine)


def say(folder: Path, run_id: str, *texts: bytes) -> None:
    """Write a run's log."""
    (folder / "logs").mkdir(exist_ok=True)
    log = RunLog(folder / "logs" / f"{run_id}.log")
    for text in texts:
        share = log.attempt(b.dispatch(0), 100_000)
        share.add("out", text)
        share.close()
    log.close()


def journal(folder: Path) -> Path:
    """A journal with one small run that is over."""
    path = folder / "journal.db"
    with SqliteStore.open(path) as store:
        done_run(store)
    say(folder, b.RUN, b"hello\n", b"w\xc3\xb6rld \xff\n")
    return path


def export(path: Path, run_id: str = b.RUN, to: str = "run.export.gz") -> tuple[Path, Exported]:
    """Export a run of the journal beside it."""
    target = path.parent / to
    with exporting.new_file(target, force=True) as out:
        return target, exporting.export_run(path, path.parent / "logs", run_id, out)


def lines_of(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines(keepends=True)


def packed(lines: list[bytes]) -> bytes:
    """Pack lines as an export is packed, whatever they say."""
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = b"".join(lines[:-1])
    last = lines[-1] if lines else b""
    first = HEAD + deflate.compress(body) + deflate.flush() + struct.pack("<II", zlib.crc32(body), len(body))
    stored = struct.pack("<BHH", 1, len(last), len(last) ^ 0xFFFF)
    return first + HEAD + stored + last + struct.pack("<II", zlib.crc32(last), len(last))


def forged(lines: list[tuple[str, object]]) -> bytes:
    """Chain lines anew: the file of somebody who takes the trouble."""
    made: list[bytes] = []
    prev = "sha256:" + "0" * 64
    for n, (kind, data) in enumerate(lines, 1):
        body: dict[str, object] = {"data": data, "kind": kind, "n": n, "prev": prev}
        if kind == "end":
            sealed = packed([*made, b""])
            first = sealed[: len(sealed) - len(HEAD) - 5 - 8]
            body["data"] = {"lines": n, "bytes": "sha256:" + hashlib.sha256(first).hexdigest()}
        prev = canon.sha256(canon.dumps(body))
        made.append(canon.dumps({**body, "hash": prev}) + b"\n")
    return packed(made)
