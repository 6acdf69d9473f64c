"""The journal's vocabulary: every change of a run is one of these values.

The store writes row and event from the same value in one transaction, and `Snapshot.apply` makes the same
change in memory, so the three cannot drift apart. Steps and units are named by integer keys: `step` is the
index in `plan.steps`, `unit` the ordinal within the step (work, gate and probe units share the numbers).
Fields marked content stay out of the event row's metadata. Times are epoch milliseconds (UTC).
"""

# annotations stay values here: as texts, msgspec would evaluate each of them at every start
from typing import Final, Literal

import msgspec

from interlock.model.states import AttemptState, Reason, RunState, StepState, UnitState

UnitKind = Literal["work", "gate", "judge", "approval", "probe", "merge"]
"""A `gate` unit runs a check, a `judge` unit asks an engine, an `approval` unit waits for a person,
a `merge` unit brings the work units' worktrees together."""
Verdict = Literal["pass", "reject"]
Ceiling = Literal["max_units", "max_tokens", "max_cost_usd", "max_duration_ms"]


class Process(msgspec.Struct, frozen=True, array_like=True):
    """A process that cannot be mistaken for another: pid, start time in clock ticks since boot, boot id."""

    pid: int
    start_ticks: int
    boot_id: str


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt consumed. `None` is unknown, not zero. Input includes cached, output includes reasoning."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False
    """The engine told nothing: the tokens are what the dispatch had reserved."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """Who answered a prompt, beyond what was asked for."""

    session: str | None = None
    """The agent's own session, by which it can go on."""
    model: str | None = None
    """The model that the answer names."""
    request_id: str | None = None


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an attempt's worktree: the commit it began at and, where something changed, what was kept."""

    base: str
    commit: str | None = None
    ref: str | None = None
    """Holds `commit`; the folder is kept too."""


class LogSpan(msgspec.Struct, frozen=True, array_like=True):
    """Where an attempt's frames lie in the run's log file."""

    offset: int
    length: int


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Where a unit of a fork was really done: run, unit id and attempt."""

    run: str
    unit: str
    attempt: int


class Reused(msgspec.Struct, frozen=True, array_like=True):
    """How a unit that a fork takes over is born: ended, with what its origin left. No attempt, no budget."""

    origin: Origin
    state: UnitState = UnitState.COMPLETED
    reason: str | None = None
    verdict: Verdict | None = None
    result: bytes | None = None
    """Content."""
    left: str | None = None
    """The commit that its worktree was left at, which its run keeps."""


class NewUnit(msgspec.Struct, frozen=True, array_like=True):
    """A unit to insert. `item` (content) is canonical JSON, `index` its position in the map's list."""

    ordinal: int
    id: str
    index: int | None
    item: bytes | None
    input_hash: str
    subject: str | None = None
    """Of a gate unit: the hash of the artifact or item result it judges. Of a probe: the asked unit's ordinal."""
    feedback: bytes | None = None
    """Content: canonical JSON `{feedback, missing}` of the loop before, for loops from 2."""
    session: str | None = None
    """The agent session to go on in, where the step says `session: continue`."""
    base: str | None = None
    """The commit that its worktree begins at, where the loop before left one; None is the step's base."""
    worktree: str | None = None
    """Where that worktree stood, for a session that goes on there."""
    reused: Reused | None = None
    """Taken over from another run: the unit is born ended."""


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events. `at` is when it happened."""

    at: int


class StepStarted(_Event, frozen=True, kw_only=True, tag="step_started"):
    """A step's units of one round and loop come into being; the step is `running`."""

    step: int
    round: int
    loop: int
    units: tuple[NewUnit, ...]


class UnitsAdded(_Event, frozen=True, kw_only=True, tag="units_added"):
    """Gate or probe units come into being; the step moves to `state`."""

    step: int
    kind: UnitKind
    round: int
    loop: int
    state: StepState
    units: tuple[NewUnit, ...]


class AttemptReserved(_Event, frozen=True, kw_only=True, tag="attempt_reserved"):
    """Written and committed before the work starts."""

    step: int
    unit: int
    number: int
    dispatch: str
    process: Process | None = None
    """A warm worker that will do it; commands get theirs by AttemptStarted."""
    engine: str | None = None
    model: str | None = None
    """Of a prompt: whom it goes to, and the exact model asked for."""
    reserve_tokens: int = 0
    """What the budget holds back for it until its usage is known."""
    worktree: str | None = None
    """Where its worktree is going to be."""
    base: str | None = None
    """What that begins at: a commit, or the name of one that is not resolved yet."""


class AttemptStarted(_Event, frozen=True, kw_only=True, tag="attempt_started"):
    """The attempt has a process."""

    step: int
    unit: int
    number: int
    dispatch: str
    process: Process


class AttemptFinished(_Event, frozen=True, kw_only=True, tag="attempt_finished"):
    """The one terminal write of an attempt, with what it means for its unit. Needs no lease."""

    step: int
    unit: int
    number: int
    dispatch: str
    state: AttemptState
    unit_state: UnitState
    reason: Reason | None = None
    error: str = ""
    """Content, redacted, at most 4 KiB."""
    result: bytes | None = None
    """Content, redacted: canonical JSON; `None` when absent or failed."""
    exit_code: int | None = None
    verdict: Verdict | None = None
    retries: int = 0
    """Retries of the unit spent so far."""
    not_before: int | None = None
    """When the unit may be tried again."""
    process: Process | None = None
    usage: Usage | None = None
    engine: str | None = None
    """Of a prompt: whose usage it is."""
    answered: Answered | None = None
    asks: int = 0
    """Corrective re-asks of the unit spent so far, this one's included when the unit is pending again for it."""
    log: LogSpan | None = None
    started_at: int | None = None
    tree: Tree | None = None
    """Of an attempt that had a worktree."""


class UnitsStopped(_Event, frozen=True, kw_only=True, tag="units_stopped"):
    """No unit of the step's current round and loop goes on.

    `waiting` ones become `failed` with their last reason, `pending` ones `not_run` with this one.
    """

    step: int
    reason: str


class UnitMoved(_Event, frozen=True, kw_only=True, tag="unit_moved"):
    """One unit's state changes without an attempt's end: answered by a person or a probe, or asked again."""

    step: int
    unit: int
    state: UnitState
    reason: str | None = None
    result: bytes | None = None
    """Content."""
    error: str | None = None
    """Content: why it failed; None leaves what its last attempt said."""


class StepMoved(_Event, frozen=True, kw_only=True, tag="step_moved"):
    """`complete_step` and its brothers: the only way a step's state changes outside of StepStarted/UnitsAdded.

    Completion is refused by the store unless the step's gate said so for `artifact_hash`.
    """

    step: int
    state: StepState
    reason: str | None = None
    detail: str = ""
    """Content: for a person, one paragraph; feedback of a gate included."""
    artifact: bytes | None = None
    """Content: canonical JSON."""
    artifact_hash: str | None = None
    route: tuple[str, ...] = ()
    """Of a router: the chosen step ids."""
    round: int = 1
    loop: int = 1


class RunMoved(_Event, frozen=True, kw_only=True, tag="run_moved"):
    """The run's state as derived from its steps."""

    state: RunState
    reason: str | None = None
    detail: str = ""
    outcome: Literal["ok", "degraded", "failed", "abandoned"] | None = None
    wait_until: int | None = None
    driven_ms: int = 0


class BudgetRaised(_Event, frozen=True, kw_only=True, tag="budget_raised"):
    """A journaled amendment of one ceiling."""

    name: Ceiling
    value: float


class EngineParked(_Event, frozen=True, kw_only=True, tag="engine_parked"):
    """An engine's quota is used up: nothing goes to it before `until` (None: nobody knows when)."""

    engine: str
    until: int | None = None


class Approved(_Event, frozen=True, kw_only=True, tag="approved"):
    """A person's verdict on a gate unit: who, with which note, for exactly the artifact of that hash."""

    step: int
    unit: int
    by: str
    verdict: Verdict
    subject: str
    note: str = ""
    """Content."""
    override: bool = False
    """It passes what a check or judge had rejected."""


class LoopsGranted(_Event, frozen=True, kw_only=True, tag="loops_granted"):
    """A journaled amendment: the step may run this many loops more than its plan says."""

    step: int
    more: int


class ModulesAccepted(_Event, frozen=True, kw_only=True, tag="modules_accepted"):
    """`resume --accept-changes`: the new hash of each Python module or directory identity that changed."""

    hashes: dict[str, str]


class RequestApplied(_Event, frozen=True, kw_only=True, tag="request_applied"):
    """The driver acted on a request; `outcome` is `applied` or why it was refused."""

    request: int
    outcome: str


class Notice(_Event, frozen=True, kw_only=True, tag="notice"):
    """Something a person should know once: `code` is stable, `text` holds no content."""

    code: str
    text: str
    step: int | None = None


class EnvResolved(_Event, frozen=True, kw_only=True, tag="env_resolved"):
    """Audit: these names (never values) were resolved for a dispatch of the step."""

    step: int
    names: tuple[str, ...]


DIVERGENCE: Final = "divergence:"
"""How the code of a notice begins that names a unit with a Divergence."""


class Divergence(_Event, frozen=True, kw_only=True, tag="divergence"):
    """A completed unit's recorded input hash is not what the plan gives now; its result stands."""

    step: int
    unit: int
    recorded: str
    computed: str


Event = (
    StepStarted
    | UnitsAdded
    | AttemptReserved
    | AttemptStarted
    | AttemptFinished
    | UnitsStopped
    | UnitMoved
    | StepMoved
    | RunMoved
    | BudgetRaised
    | EngineParked
    | Approved
    | LoopsGranted
    | ModulesAccepted
    | RequestApplied
    | Notice
    | EnvResolved
    | Divergence
)
