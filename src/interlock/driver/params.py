"""What a caller gives for a run's parameters, and reading a parameters file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from interlock.errors import UsageError
from interlock.model import canon
from interlock.model.plan import Param, Plan


class ParamsInput(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters as given: texts of `-p name=value`, a JSON or YAML file, and values from Python."""

    cli: Sequence[tuple[str, str]] = ()
    file: Path | None = None
    values: Mapping[str, Any] | None = None


NO_PARAMS: Final = ParamsInput()
GivenParams = ParamsInput | Mapping[str, Any]


def as_input(given: GivenParams | None) -> ParamsInput | None:
    """Take a mapping for values from Python."""
    return given if given is None or isinstance(given, ParamsInput) else ParamsInput(values=given)


def fitted(plan: Plan, params: GivenParams) -> tuple[dict[str, Any], bytes]:
    """Return the parameters that a run of the plan has with what was given, as values and as JSON. Raises UsageError."""
    from interlock.plan.params import coerce_params  # noqa: PLC0415 - heavy: YAML

    given = as_input(params) or NO_PARAMS
    values = coerce_params(plan.params, given.cli, read_params(given.file, plan.params), given.values)
    return values, canon.dumps(values)


def read_params(file: Path | None, params: Sequence[Param]) -> Mapping[str, Any] | None:
    """Return what the file holds, None without one. Raises UsageError."""
    if file is None:
        return None
    try:
        data = file.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError("params-file", f"can't read {file}: {reason}", "name a readable JSON or YAML file") from error
    from interlock.plan.params import parse_params_file  # noqa: PLC0415 - heavy: YAML

    return parse_params_file(data, str(file), params)


@contextmanager
def explaining_recorded(run_id: str) -> Iterator[None]:
    """Say of values that don't fit where they may come from: nobody typed what a run brings along."""
    try:
        yield
    except UsageError as error:
        if error.code != "invalid-params" or error.hint:
            raise
        hint = f"parameters are those of run {run_id} where none are given; give another value with -p NAME=VALUE"
        raise UsageError(error.code, error.message, hint) from error
