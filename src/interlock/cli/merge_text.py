"""What of a merge is not on its branch: the step is completed all the same, so it is said beside it."""

from __future__ import annotations

from typing import Any, Final

from interlock.cli.text import count

_KEYS: Final = frozenset({"branch", "tree", "merged", "conflicts", "rejected"})


def not_merged(artifact: Any) -> str:  # noqa: ANN401 - any JSON value
    """Count what a merge's artifact says is not on the branch; empty where all is, or where it is of another kind."""
    if not isinstance(artifact, dict) or artifact.keys() != _KEYS:
        return ""
    conflicts, rejected, merged = (artifact[key] for key in ("conflicts", "rejected", "merged"))
    if not all(isinstance(found, list) for found in (conflicts, rejected, merged)) or not (conflicts or rejected):
        return ""
    why = [count(len(conflicts), "conflict")] if conflicts else []
    why += [f"{len(rejected):,} rejected"] if rejected else []
    left = len(conflicts) + len(rejected)
    return f"{left:,} of {len(merged) + left:,} not merged ({', '.join(why)})"
