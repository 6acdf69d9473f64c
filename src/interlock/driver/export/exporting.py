"""Exporting a run: its rows, artifacts and logs, and those of its child runs, into one sealed file.

Guarantees: one consistent view of the journal, also of a run that is being driven; the same state gives the same
bytes; a child run goes with the run above it, whose secrets it may hold; memory doesn't grow with the run; a file is whole under its name or not there at all.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from interlock.dispatch.logs.copying import log_pieces
from interlock.driver.export.scrubbing import RunSecrets, Scrubber, handed_down, secrets_of
from interlock.driver.export.sealed import FORMAT, HEADER, Sealer
from interlock.errors import PlanError, StoreError, UsageError
from interlock.model import canon
from interlock.store.dump import Dump, Member, Row, dumping
from interlock.store.durable import sync_folder
from interlock.store.faults import FULL
from interlock.version import __version__

ROW: Final = "row"
ARTIFACT: Final = "artifact"
LOG: Final = "log"
_UTF8_REST: Final = 3


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was written. `hash` is that of the last line: who knows it can tell this export from any other."""

    run: str
    runs: tuple[str, ...]
    lines: int
    bytes: int
    hash: str
    redacted: tuple[str, ...]
    """The params whose values were blanked."""
    redacted_plans: tuple[str, ...]
    """The runs whose plan is not the one that they were driven by, since a default was blanked."""
    too_short: tuple[str, ...]
    """The params whose values are too short to be looked for elsewhere."""


def export_run(journal: Path, logs: Path, run_id: str, out: BinaryIO) -> Exported:
    """Write the run's export to `out`. Raises StoreError, PlanError for a damaged plan, OSError of `out`."""
    with dumping(journal) as dump:
        members = dump.family(run_id)
        _refuse_child(dump, members[0])
        scrub = Scrubber(_secrets(dump, member) for member in members)
        plans = {member.id: scrub.plan(dump.plan(member)[1]) for member in members} if scrub.active else {}
        params = _params(dump, members, scrub) if scrub.active else {}
        changed = tuple(member.id for member in members if member.id in plans and _changed(dump, member, plans))
        sealer = Sealer(out)
        header = {
            "format": FORMAT,
            "interlock": __version__,
            "journal": dump.version,
            "run": run_id,
            "runs": [member.id for member in members],
            "redacted": {"params": scrub.names, "plans": changed, "too_short": scrub.too_short},
        }
        sealer.add(HEADER, header)
        sizes = _learn(dump, members, scrub) if scrub.active else {}
        files = _rows(sealer, dump, members, scrub, _Shown(plans, params, sizes))
        for tagged in files:
            _artifact(sealer, dump, scrub, tagged)
        for number, member in enumerate(members):
            for at, piece in log_pieces(logs / f"{member.id}.log", scrub.mask if scrub.active else None):
                sealer.add(LOG, {"run": number, "at": at, **_blob(piece)})
        sealer.end({"runs": len(members)})
    return Exported(
        run=run_id,
        runs=tuple(member.id for member in members),
        lines=sealer.lines,
        bytes=sealer.written,
        hash=sealer.hash,
        redacted=scrub.names,
        redacted_plans=changed,
        too_short=scrub.too_short,
    )


class _Shown(msgspec.Struct, frozen=True):
    """What stands in the file for what is hidden: plans and params by run, and artifacts in files by hash."""

    plans: dict[str, bytes]
    params: dict[str, bytes]
    files: dict[str, tuple[str, int]]


def _refuse_child(dump: Dump, member: Member) -> None:
    above, unit_of = dump.top(member), dump.place(member)[0]
    if unit_of is not None and above != member.id:
        message = f"run {member.id} is a unit of run {unit_of} and is exported with it"
        raise UsageError("child-run", message, f"export the whole: interlock export {above}")


def _params(dump: Dump, members: list[Member], scrub: Scrubber) -> dict[str, bytes]:
    """Return the runs' params as they are shown; parents come before their children."""
    by_id = {member.id: member for member in members}
    handed: dict[str, frozenset[str]] = {}
    known: dict[tuple[str, str], frozenset[str]] = {}
    found: dict[str, bytes] = {}
    for member in members:
        parent, unit = dump.place(member)
        handed[member.id] = frozenset()
        if parent in by_id and unit is not None:
            place = parent, unit.partition(":")[0]
            if place not in known:
                secret = handed[parent] | set(scrub.names)
                known[place] = handed_down(dump.plan(by_id[parent])[1], place[1], secret)
            handed[member.id] = known[place]
        found[member.id] = scrub.params(dump.plan(member)[2], handed[member.id])
    return found


def _secrets(dump: Dump, member: Member) -> RunSecrets:
    tagged, plan, params = dump.plan(member)
    why = "does not match its hash" if canon.sha256(plan) != tagged else ""
    try:
        if not why:
            return secrets_of(plan, params)
    except canon.NotJsonError as error:
        why = f"or its params are not JSON: {error}"
    message = f"the stored plan of run {member.id} {why}; nothing was exported"
    raise PlanError("plan-damaged", message, "restore the journal from a backup")


def _changed(dump: Dump, member: Member, plans: dict[str, bytes]) -> bool:
    return plans[member.id] != dump.plan(member)[1]


def _learn(dump: Dump, members: list[Member], scrub: Scrubber) -> dict[str, tuple[str, int]]:
    """Look at all contents first: a hash may stand in a row before what it is the hash of. Return files' new names."""
    for member in members:
        for item in dump.items(member):
            scrub.know_item(item)
    files: dict[str, tuple[str, int]] = {}
    for member in members:
        for content in dump.contents(member):
            scrub.know(content)
        for tagged in dump.files(member):
            files[tagged] = scrub.know(b"".join(dump.artifact(tagged)))
    return files


def _rows(
    sealer: Sealer,
    dump: Dump,
    members: list[Member],
    scrub: Scrubber,
    instead: _Shown,
) -> list[str]:
    """Write all rows; return the hashes of artifacts in files."""
    files: dict[str, None] = {}
    for number, member in enumerate(members):
        for table, row in dump.rows(member):
            shown = _shown(table, row, member, scrub, instead) if scrub.active else row
            columns = {name: _cell(value) for name, value in shown.items() if value is not None}
            sealer.add(ROW, {"run": number, "table": table, "row": columns})
        files.update(dict.fromkeys(dump.files(member)))
    return list(files)


def _shown(table: str, row: Row, member: Member, scrub: Scrubber, instead: _Shown) -> dict[str, Any]:
    if table == "run_plan":
        return {**row, "json": instead.plans[member.id]}
    shown = scrub.row(row)
    if table == "run" and isinstance(row["params_json"], bytes):
        shown["params_json"] = instead.params[member.id]
    if table == "step" and row["artifact_size"] is not None:
        artifact, tagged = shown["artifact"], str(row["artifact_hash"])
        shown["artifact_size"] = instead.files[tagged][1] if artifact is None else len(artifact)
    return shown


def _artifact(sealer: Sealer, dump: Dump, scrub: Scrubber, tagged: str) -> None:
    pieces: Iterator[bytes] = dump.artifact(tagged)
    name = tagged
    if scrub.active:
        whole = b"".join(pieces)
        name = scrub.know(whole)[0]
        pieces = iter((scrub.json(whole),))
    at = 0
    for text in _at_characters(pieces):
        sealer.add(ARTIFACT, {"hash": name, "at": at, **_blob(text)})
        at += len(text)


def _at_characters(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Cut between characters, so that what is text stays readable text."""
    held = b""
    for piece in pieces:
        held += piece
        cut = len(held)
        while cut and cut > len(held) - _UTF8_REST and held[cut - 1] & 0x80:
            cut -= 1
        yield held[:cut]
        held = held[cut:]
    if held:
        yield held


def _cell(value: Any) -> Any:  # noqa: ANN401 - what a column holds
    return _blob(value) if isinstance(value, bytes) else value


def _blob(value: bytes) -> dict[str, str]:
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


@contextmanager
def new_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Write a file aside, make it durable and give it its name; a failure leaves nothing. Raises StoreError."""
    if path.is_dir():
        raise UsageError("target-is-folder", f"{path} is a folder", "name a file in it: -o FILE")
    if path.exists() and not path.is_file():
        # giving a file its name would take a device or a pipe away
        hint = "name a file, or redirect standard output: -o - > FILE"
        raise UsageError("target-no-file", f"{path} is no regular file", hint)
    if path.exists() and not force:
        raise _taken(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.part-", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        _publish(draft, path, force=force)
        sync_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        draft.unlink(missing_ok=True)


def _publish(draft: Path, path: Path, *, force: bool) -> None:
    if force:
        draft.replace(path)
        return
    try:
        # unlike a rename it fails if somebody was faster
        path.hardlink_to(draft)
    except FileExistsError:
        raise _taken(path) from None
    except OSError:
        # a file system without hard links
        draft.replace(path)


def _taken(path: Path) -> UsageError:
    return UsageError("file-exists", f"{path} is there already", "name another file with -o, or replace it: --force")


def _unwritable(path: Path, error: OSError) -> StoreError:
    why = (error.strerror or str(error)).lower()
    full = error.errno in FULL
    hint = (
        "free some space, or name another file with -o"
        if full
        else "name a file in a folder that can be written: -o FILE"
    )
    return StoreError("export-unwritable", f"can't write {path}: {why}; no file was left", hint)
