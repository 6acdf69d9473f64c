"""What of a merge is not on its branch: the step is completed all the same, so it is said beside it."""

from __future__ import annotations

from interlock.cli.text import count
from interlock.store.base import StepRow
from interlock.views.facts import PlanFacts
from interlock.views.values import value


def not_merged(step: StepRow, facts: PlanFacts) -> str:
    """Count what a merge's artifact says is not on the branch; empty where all is, or where nothing was merged."""
    if step.artifact is None or not facts.merges(step.step):
        return ""
    artifact = value(step.artifact)
    conflicts, rejected = len(artifact["conflicts"]), len(artifact["rejected"])
    if not conflicts + rejected:
        return ""
    why = [count(conflicts, "conflict")] if conflicts else []
    why += [f"{rejected:,} rejected"] if rejected else []
    left = conflicts + rejected
    return f"{left:,} of {len(artifact['merged']) + left:,} not merged ({', '.join(why)})"
