"""The frozen plan: everything a run needs to know, as plain values with a format version.

Guarantee: a plan is canonical JSON; `plan/freeze.py` makes it and its hash, and decodes it strictly
(unknown fields refused). Changing a field here means a new FORMAT and a golden file of the old one.
Durations are integer milliseconds and `None` means no limit. `*_json` fields hold canonical JSON text.
"""

# annotations stay values here: as texts, msgspec would evaluate each of them at every start
from typing import Final, Literal

import msgspec

from interlock.model.states import Reason

FORMAT: Final = 1
KEY_OF_API: Final = {"anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY", "openai": "OPENAI_API_KEY"}
"""The variable that holds the key of an API's own endpoint, where nothing else is configured."""


class _Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all plan values."""


class Reference(_Value, frozen=True, kw_only=True):
    """`params.<name>` or `steps.<id>.output(.<name>|[<int>])*`, parsed. `text` is what the author wrote.

    In the `with` of a map also `item(.<name>|[<int>])*`, whose `name` is empty.
    """

    text: str
    root: Literal["params", "steps", "item"]
    name: str
    path: tuple[str | int, ...] = ()


class Param(_Value, frozen=True, kw_only=True):
    """A declared parameter. `schema_json` is its JSON Schema without default and description."""

    name: str
    schema_json: str = "{}"
    default_json: str | None = None
    required: bool = False
    description: str = ""
    secret: bool = False
    """The name or description looks like a secret: shown redacted wherever it is shown."""


class Backoff(_Value, frozen=True, kw_only=True):
    """Delay before retry n (from 1): `min(max_ms, initial_ms * factor ** (n - 1))`."""

    initial_ms: int = 1_000
    factor: float = 2.0
    max_ms: int = 60_000


class Retry(_Value, frozen=True, kw_only=True):
    """`max` retries (not attempts) after failures whose reason is in `on`."""

    max: int = 0
    on: tuple[Reason, ...] = ()
    backoff: Backoff = Backoff()
    session: Literal["new", "continue"] = "new"


class Command(_Value, frozen=True, kw_only=True, tag="command"):
    """`run:`. Either `argv`, or `text` for the plan's frozen shell."""

    argv: tuple[str, ...] = ()
    text: str | None = None


class Script(_Value, frozen=True, kw_only=True, tag="script"):
    """`uses:` of a script file; its bytes are embedded (base64) with their hash.

    `interpreter` is the argv prefix taken from its `#!` line or its suffix.
    """

    path: str
    sha256: str
    content_b64: str
    interpreter: tuple[str, ...]


class PythonFunction(_Value, frozen=True, kw_only=True, tag="python"):
    """`uses: python:module:function`. `file` and `sha256` are those of the module at freeze."""

    module: str
    function: str
    file: str
    sha256: str


class Prompt(_Value, frozen=True, kw_only=True, tag="prompt"):
    """The step's prose, sent byte for byte to `engine` (a name in `Plan.engines`), with context attached.

    `model` is the exact id asked for; None leaves it to the engine's own default.
    """

    text: str
    engine: str
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    extra_params_json: str = "{}"


class Hole(_Value, frozen=True, kw_only=True):
    """A place in a value, by keys and indices from its top, that takes what `ref` resolves to."""

    at: tuple[str | int, ...]
    ref: Reference


class Binding(_Value, frozen=True, kw_only=True):
    """The value of one param of a child: literal JSON with null where its `holes` are."""

    name: str
    value_json: str
    holes: tuple[Hole, ...] = ()


class Child(_Value, frozen=True, kw_only=True, tag="workflow"):
    """`uses:` of a workflow file. `plan` is the key of its plan in `Plan.children`."""

    path: str
    plan: str
    bindings: tuple[Binding, ...] = ()


Work = Command | Script | PythonFunction | Prompt
"""What an executor can carry out."""
Target = Work | Child


class Map(_Value, frozen=True, kw_only=True):
    """Fan-out over the list at `over`. `item_schema_json` is the schema of one item's result."""

    over: Reference
    concurrency: int | None = None
    reducer: Literal["collect", "vote", "merge"] = "collect"
    item_schema_json: str | None = None


class When(_Value, frozen=True, kw_only=True):
    """One branch of a route: `match` is the matched value's text."""

    match: str
    step: str


class Route(_Value, frozen=True, kw_only=True):
    """A forward branch by exact match of a primitive value."""

    input: Reference
    when: tuple[When, ...]
    default: str | None = None


class Judge(_Value, frozen=True, kw_only=True):
    """Who reads the rubric: `asked` independent answers of one engine, of which a strict majority decides."""

    rubric: str
    engine: str
    model: str | None = None
    asked: int = 1
    clip_chars: int = 4_000
    """How much of the artifact's canonical JSON the judge sees; what is clipped is said."""


class Gate(_Value, frozen=True, kw_only=True):
    """What stands between the artifact and the next step, asked in this order: a command, a judge, a person."""

    check: Command | None = None
    judge: Judge | None = None
    approval: bool = False
    max_loops: int = 1
    each: bool = False


class Input(_Value, frozen=True, kw_only=True):
    """One declared input: the key under which a step's work sees it, and where it comes from."""

    name: str
    ref: Reference


class Step(_Value, frozen=True, kw_only=True):
    """One entry of `steps:`, with all defaults applied.

    `needs` are effective needs (explicit, or the step before), `routers` the routes that name this step.
    `cwd` is relative to the project's root or absolute. A route step has `route` and no `target`.
    """

    id: str
    needs: tuple[str, ...] = ()
    explicit_needs: bool = False
    routers: tuple[str, ...] = ()
    target: Target | None = None
    map: Map | None = None
    route: Route | None = None
    inputs: tuple[Input, ...] = ()
    output_schema_json: str | None = None
    gate: Gate | None = None
    retry: Retry = Retry()
    on_error: Literal["fail", "continue"] = "fail"
    timeout_ms: int | None = 600_000
    idle_timeout_ms: int | None = None
    env: tuple[str, ...] = ()
    cwd: str = "."
    effects: Literal["internal", "external"] = "internal"
    probe: Command | None = None
    isolation: Literal["none", "worktree"] = "none"
    worktree_base: Reference | None = None
    """What a first worktree begins at; None is the plan's commit."""
    worktree_uncommitted: bool = False
    """It begins at `Plan.uncommitted`."""
    line: int = 0

    @property
    def unit_schema_json(self) -> str | None:
        """The schema of one unit's result."""
        return self.map.item_schema_json if self.map else self.output_schema_json


class Budget(_Value, frozen=True, kw_only=True):
    """Ceilings of the whole run; `None` is none."""

    max_units: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_duration_ms: int | None = None


class Shell(_Value, frozen=True, kw_only=True):
    """The argv prefix that runs a `run:` string, chosen at freeze."""

    name: Literal["bash", "sh"]
    argv: tuple[str, ...]


class Project(_Value, frozen=True, kw_only=True):
    """Identity of the directory a run works in. `id` is the random id kept in `.interlock/`."""

    root: str
    device: int
    inode: int
    id: str
    commit: str | None = None


class SecretSource(_Value, frozen=True, kw_only=True):
    """Where a secret's value comes from at dispatch: a command's stdout or another variable. Never a value."""

    name: str
    command: tuple[str, ...] = ()
    var: str | None = None


class EnvGroup(_Value, frozen=True, kw_only=True):
    """A named `[env.X]` group: names only."""

    name: str
    vars: tuple[str, ...] = ()
    dotenv: tuple[str, ...] = ()
    secrets: tuple[SecretSource, ...] = ()


class Engine(_Value, frozen=True, kw_only=True):
    """A configured thing that answers prompts, as far as it is frozen: where it is reached is read at dispatch.

    `driver` is the API (`openai`, `anthropic`, `gemini`) or the agent (`claude`, `codex`, ..., `command`).
    """

    name: str
    kind: Literal["llm", "agent"]
    driver: str
    model: str | None = None
    env: tuple[str, ...] = ()
    reserve_tokens: int = 20_000
    """What a dispatch is charged in advance, and for good where its usage stays unknown."""


class Limits(_Value, frozen=True, kw_only=True):
    """Sizes in bytes and counts that hold for the run."""

    max_result_bytes: int = 1_048_576
    max_artifact_bytes: int = 268_435_456
    max_items: int = 100_000
    max_log_bytes: int = 8_388_608
    """Of one attempt's stdout and stderr together; the rest is dropped and said."""
    max_concurrency: int | None = None


class Plan(_Value, frozen=True, kw_only=True):
    """A workflow compiled, resolved and frozen."""

    format: int
    name: str
    source: str
    """The workflow file, relative to the project's root where it lies below it."""
    source_sha256: str
    description: str = ""
    params: tuple[Param, ...] = ()
    steps: tuple[Step, ...]
    budget: Budget = Budget()
    shell: Shell | None = None
    project: Project
    python: tuple[str, ...] = ()
    """argv prefix of the interpreter of `python:` targets."""
    python_path: tuple[str, ...] = ()
    """Folders put before that interpreter's own path, in order."""
    env_groups: tuple[EnvGroup, ...] = ()
    engines: tuple[Engine, ...] = ()
    """Those that some step or judge uses."""
    limits: Limits = Limits()
    repository: str | None = None
    """The top folder of the git repository that worktrees are of, where a step works in one."""
    uncommitted: str | None = None
    """The commit made of the user's uncommitted state when the run was created, where a step takes it along."""
    notices: tuple[str, ...] = ()
    """Things the author should know once per run: accepted akm spellings that do nothing here, for example."""
    children: "dict[str, Plan]" = {}
    """All child workflows below this one, by their tagged hashes, each once, without a project and without children."""

    @property
    def whole(self) -> "tuple[Plan, ...]":
        """The plan itself and those of all child workflows below it."""
        return (self, *self.children.values())

    def step(self, step_id: str) -> Step:
        """Return the step of that id. Raises KeyError."""
        for step in self.steps:
            if step.id == step_id:
                return step
        raise KeyError(step_id)
