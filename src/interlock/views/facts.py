"""The few facts of a frozen plan that a reader needs, decoded without the rest.

Reading is lenient on purpose: a run whose plan is of another version or damaged must still be listed and
shown; the driver is the one who verifies.
"""

from __future__ import annotations

from typing import Any

import msgspec


class ParamFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter's name and whether its value may be shown."""

    name: str
    secret: bool = False


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A step's id and shape."""

    id: str
    route: Any = None
    map: Any = None

    @property
    def works(self) -> bool:
        """Tell whether the step has units at all; a route has none."""
        return self.route is None


class PlanFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What views look at."""

    name: str = ""
    params: tuple[ParamFacts, ...] = ()
    steps: tuple[StepFacts, ...] = ()

    @property
    def secrets(self) -> frozenset[str]:
        """Names of parameters whose values are never shown."""
        return frozenset(param.name for param in self.params if param.secret)

    def works(self, step: int) -> bool:
        """Tell whether the step of that index has units; unknown steps are taken to have some."""
        return step >= len(self.steps) or self.steps[step].works


_decode = msgspec.json.Decoder(PlanFacts).decode


def plan_facts(plan_json: bytes) -> PlanFacts:
    """Read the facts; none at all from a plan that cannot be read."""
    try:
        return _decode(plan_json)
    except msgspec.DecodeError:
        return PlanFacts()
