"""What an event row keeps: ids, states, reasons and numbers as JSON, never content.

Guarantee: together with the row's own `at`, `step` and `unit`, the data is enough to rebuild every row but for
its content (items, results, errors, artifacts, feedback, notes, texts for a person). Fields at their default are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final, get_args

import msgspec

from interlock.model import events as ev

UNITS_PER_ROW: Final = 500
"""A long list of new units goes on in `units_listed` rows, so no row grows with the run."""
UNITS_LISTED: Final = "units_listed"
RUN_CREATED: Final = "run_created"
_CONTENT: Final[dict[type, frozenset[str]]] = {
    ev.StepStarted: frozenset({"units"}),
    ev.UnitsAdded: frozenset({"units"}),
    ev.AttemptFinished: frozenset({"error", "result"}),
    ev.UnitMoved: frozenset({"error", "result"}),
    # round and loop belong to StepStarted; a move leaves them alone
    ev.StepMoved: frozenset({"detail", "artifact", "round", "loop"}),
    ev.RunMoved: frozenset({"detail"}),
    ev.Approved: frozenset({"note"}),
}
_COLUMNS: Final = frozenset({"at", "step", "unit"})
Encode = Callable[[Any], str]
_bytes: Final = msgspec.json.Encoder().encode


def to_json(value: object) -> str:
    """Compact JSON text."""
    return _bytes(value).decode()


def is_json(text: bytes) -> bool:
    """Tell whether the bytes are one JSON value."""
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


def _encoder(kind: type) -> Encode:
    """A function from an event of this type to its data; which fields to keep is decided once."""
    left_out = _COLUMNS | _CONTENT.get(kind, frozenset())
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in left_out]
    # a required field gets a default that no event holds: so it is never left out
    shape = msgspec.defstruct(
        kind.__name__ + "Data",
        [(field.name, Any, msgspec.UNSET if field.required else field.default) for field in fields],
        omit_defaults=True,
        gc=False,
    )
    names = [field.name for field in fields]
    read = attrgetter(*names)
    if len(names) == 1:
        return lambda event: _bytes(shape(read(event))).decode()
    return lambda event: _bytes(shape(*read(event))).decode()


class _Encoders(dict[type, Encode]):
    """Made when first asked for: a run has few of the types."""

    def __missing__(self, kind: type) -> Encode:
        self[kind] = _encoder(kind)
        return self[kind]


ENCODERS: Final = _Encoders()
"""Event to data, by type."""
TYPES: Final[dict[type, str]] = {kind: kind.__struct_config__.tag for kind in get_args(ev.Event)}
"""The name of each event type in the `type` column."""


def unit_lists(units: tuple[ev.NewUnit, ...]) -> Iterator[str]:
    """New units without items and feedback, `UNITS_PER_ROW` to a row of data; a session only where there is one."""
    for start in range(0, len(units), UNITS_PER_ROW):
        part = units[start : start + UNITS_PER_ROW]
        yield to_json({"units": [_listed(new) for new in part]})


def _listed(new: ev.NewUnit) -> tuple[object, ...]:
    known = (new.ordinal, new.id, new.index, new.input_hash, new.subject)
    if new.reused is not None:
        ended = msgspec.structs.replace(new.reused, result=None)
        return (*known, new.session, new.base, new.worktree, ended)
    if new.base is not None or new.worktree is not None:
        return (*known, new.session, new.base, new.worktree)
    return known if new.session is None else (*known, new.session)
