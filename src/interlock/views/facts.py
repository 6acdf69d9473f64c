"""The few facts of a frozen plan that a reader needs, decoded without the rest.

Reading is lenient on purpose: a run whose plan is of another version or damaged must still be listed and
shown; the driver is the one who verifies.
"""

# annotations stay values here: as texts, msgspec would evaluate each of them at every start
from typing import Any

import msgspec

from interlock.decide.values import schema_errors


class ParamFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter's name and whether its value may be shown."""

    name: str
    secret: bool = False


class TargetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of work a step does."""

    type: str = ""


class GateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How often a step may loop, and whether each item is judged alone."""

    max_loops: int = 1
    each: bool = False


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A step's id and shape."""

    id: str
    route: Any = None
    map: Any = None
    target: TargetFacts | None = None
    gate: GateFacts | None = None
    output_schema_json: str | None = None

    @property
    def unit_schema_json(self) -> str | None:
        """The schema of one unit's result."""
        schema = self.map.get("item_schema_json") if isinstance(self.map, dict) else self.output_schema_json
        return schema if isinstance(schema, str) else None

    @property
    def merges(self) -> bool:
        """Tell whether the step's artifact says what was merged."""
        return isinstance(self.map, dict) and self.map.get("reducer") == "merge"

    @property
    def works(self) -> bool:
        """Tell whether the step has units at all; a route has none."""
        return self.route is None

    @property
    def loops(self) -> bool:
        """Tell whether feedback can change what the step does: only a prompt can be told something new."""
        return self.target is not None and self.target.type == "prompt"


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that some step or judge asks."""

    name: str


class ProjectFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where the run was frozen, and the id that the project has there."""

    root: str = ""
    id: str = ""


class PlanFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What views look at."""

    name: str = ""
    params: tuple[ParamFacts, ...] = ()
    steps: tuple[StepFacts, ...] = ()
    engines: tuple[EngineFacts, ...] = ()
    project: ProjectFacts = ProjectFacts()

    @property
    def secrets(self) -> frozenset[str]:
        """Names of parameters whose values are never shown."""
        return frozenset(param.name for param in self.params if param.secret)

    def works(self, step: int) -> bool:
        """Tell whether the step of that index has units; unknown steps are taken to have some."""
        return step >= len(self.steps) or self.steps[step].works

    def merges(self, step: int) -> bool:
        """Tell whether the artifact of the step of that index says what was merged; that of unknown steps doesn't."""
        return step < len(self.steps) and self.steps[step].merges

    def needs_result(self, step: int) -> bool:
        """Tell whether a unit of the step of that index can be said to be done only with its result."""
        schema = self.steps[step].unit_schema_json if step < len(self.steps) else None
        return schema is not None and bool(schema_errors(schema, None))

    def loops(self, step: int) -> bool:
        """Tell whether the step of that index can be done again with feedback; unknown steps can't."""
        return step < len(self.steps) and self.steps[step].loops


_decode = msgspec.json.Decoder(PlanFacts).decode


def plan_facts(plan_json: bytes) -> PlanFacts:
    """Read the facts; none at all from a plan that cannot be read."""
    try:
        return _decode(plan_json)
    except msgspec.DecodeError:
        return PlanFacts()
