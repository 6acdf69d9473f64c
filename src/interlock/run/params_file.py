"""Reading `--params-file`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from interlock.errors import UsageError
from interlock.model.plan import Param
from interlock.plan.params import parse_params_file

MAX_BYTES: Final = 16 * 1_048_576


def read_params_file(path: Path, params: Sequence[Param] = ()) -> dict[str, Any]:
    """Return the mapping in the file at `path`, JSON or YAML. Raises UsageError."""
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        message = f"can't read the params file {path}: {why.lower()}"
        raise UsageError("unreadable-params-file", message, "check the path and who may read it") from error
    if len(text) > MAX_BYTES:
        message = f"can't use the params file {path}: it has more than {MAX_BYTES:,} bytes"
        raise UsageError("invalid-params-file", message, "put large data into a file and pass its path")
    return parse_params_file(text, str(path), params)
