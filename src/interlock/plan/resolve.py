"""Workflow + configuration + the world -> Plan. All questions to the world go through `Sources`.

Guarantees: never raises for bad input; every fault is reported in one pass at the place that caused it;
what this version cannot run gets one error a place with the code `not-supported-yet`; what only follows from a
fault of the configuration is not told; a plan comes out exactly when there is no error there or here, and holds
names of secrets only.
"""

from __future__ import annotations

from msgspec import UNSET

from interlock.model.plan import FORMAT, Command, EnvGroup, Gate, Map, Plan, PythonFunction, Step, Target
from interlock.model.workflow import Place, PromptDecl, StepDecl, UsesDecl, Workflow
from interlock.plan.children import Children, Resolved
from interlock.plan.config import DEFAULT_TIMEOUT_MS, Config
from interlock.plan.diagnose import Source, shown, suggest
from interlock.plan.freeze import limit_faults
from interlock.plan.resolve_prompt import PromptResolver
from interlock.plan.resolve_target import TargetResolver
from interlock.plan.sources import Missing, Sources
from interlock.plan.unsupported import report_unsupported
from interlock.plan.worktrees import WorktreeResolver


def resolve(workflow: Workflow, config: Config, sources: Sources) -> Resolved:
    """Read what the workflow names and lay the configuration under it."""
    children = Children(workflow.file, sources)
    own = _resolve(workflow, config, sources, children)
    found = tuple(sorted({*own.diagnostics, *children.diagnostics}))
    failed = any(diagnostic.severity == "error" for diagnostic in found)
    return Resolved(plan=None if failed else own.plan, diagnostics=found)


def _resolve(workflow: Workflow, config: Config, sources: Sources, children: Children) -> Resolved:
    source = Source(workflow.file, workflow.lines)
    resolver = _Resolver(workflow, config, sources, source, children)
    steps = tuple(resolver.step(decl) for decl in workflow.steps)
    # a configuration with faults leaves holes that nobody is told of a second time
    plan = None if source.failed or config.faulty else resolver.plan(steps)
    for code, message, hint in limit_faults(plan) if plan else ():
        source.error(Place(line=1, column=1), code, message, hint)
    return Resolved(plan=None if source.failed else plan, diagnostics=source.diagnostics())


class _Resolver:
    """One pass over one workflow. Methods report what is wrong and return what they can."""

    def __init__(
        self, workflow: Workflow, config: Config, sources: Sources, source: Source, children: Children
    ) -> None:
        self.workflow = workflow
        self.config = config
        self.sources = sources
        self.source = source
        self.children = children
        self.groups: dict[str, EnvGroup] = {}
        self.folders: dict[str, str | Missing] = {}
        self.embedded: dict[str, Plan] = {}
        self.targets = TargetResolver(workflow, config, sources, source)
        self.prompts = PromptResolver(config, source)
        self.worktrees = WorktreeResolver(sources, source)

    def plan(self, steps: tuple[Step, ...]) -> Plan:
        workflow, targets = self.workflow, self.targets
        engines = tuple(engine for _, engine in sorted(self.prompts.used.items()))
        self.groups |= {name: self.config.env[name] for engine in engines for name in engine.env}
        calls_python = any(isinstance(step.target, PythonFunction) for step in steps)
        return Plan(
            format=FORMAT,
            name=workflow.name,
            source=self.sources.source(),
            source_sha256=workflow.source_sha256,
            description=workflow.description,
            params=workflow.params,
            steps=steps,
            budget=workflow.budget,
            shell=targets.shell if targets.uses_shell else None,
            project=self.sources.project(),
            python=targets.python if calls_python and isinstance(targets.python, tuple) else (),
            python_path=self.sources.python_path() if calls_python else (),
            env_groups=tuple(self.groups[name] for name in sorted(self.groups)),
            engines=engines,
            limits=self.config.plan_limits(),
            repository=self.worktrees.repository,
            notices=workflow.notices + self.source.notices(),
            children=dict(sorted(self.embedded.items())),
        )

    def step(self, decl: StepDecl) -> Step:
        report_unsupported(decl, self.source)
        settings = decl.settings
        timeout_ms, idle_timeout_ms = self.timeouts(decl)
        target, cwd = self.target(decl), self.cwd(decl)
        isolated = self.worktrees.isolates(decl, target, self.prompts.used, cwd)
        return Step(
            id=decl.id,
            needs=decl.needs,
            explicit_needs=decl.explicit_needs,
            routers=decl.routers,
            target=target,
            map=self.map(decl),
            route=decl.route,
            inputs=decl.inputs,
            output_schema_json=decl.output_schema_json,
            gate=self.gate(decl),
            retry=self.prompts.retry(decl),
            on_error="fail" if settings.on_error is UNSET else settings.on_error,
            timeout_ms=timeout_ms,
            idle_timeout_ms=idle_timeout_ms,
            env=self.env(decl),
            cwd=cwd,
            effects="internal" if settings.effects is UNSET else settings.effects,
            probe=self.probe(decl),
            isolation="worktree" if isolated else "none",
            worktree_base=(settings.worktree_base or None) if isolated else None,
            worktree_uncommitted=isolated and settings.worktree_uncommitted is True,
            line=decl.place.line,
        )

    def target(self, decl: StepDecl) -> Target | None:
        if isinstance(decl.target, PromptDecl):
            return self.prompts.prompt(decl, decl.target)
        if isinstance(decl.target, UsesDecl) and decl.target.kind == "workflow":
            found = self.children.check(decl, decl.target, self.sources, self.source, self.child)
            if found is None:
                return None
            self.embedded |= found.plans
            return found.target
        return self.targets.target(decl)

    def child(self, workflow: Workflow, sources: Sources) -> Resolved:
        """Resolve a child workflow under the same configuration."""
        return _resolve(workflow, self.config, sources, self.children)

    def timeouts(self, decl: StepDecl) -> tuple[int | None, int | None]:
        """Return the step's timeouts with the configuration's and the built-in ones under them."""
        own, run = decl.settings, self.config.run
        if isinstance(decl.target, UsesDecl) and decl.target.kind == "workflow":
            return (None if own.timeout_ms is UNSET else own.timeout_ms), None
        timeout_ms = run.timeout_ms if own.timeout_ms is UNSET else own.timeout_ms
        idle_ms = run.idle_timeout_ms if own.idle_timeout_ms is UNSET else own.idle_timeout_ms
        return (
            DEFAULT_TIMEOUT_MS if timeout_ms is UNSET else timeout_ms,
            None if idle_ms is UNSET else idle_ms,
        )

    def map(self, decl: StepDecl) -> Map | None:
        written = decl.map
        if written is None:
            return None
        return Map(
            over=written.over,
            concurrency=written.concurrency,
            reducer=written.reducer,
            item_schema_json=written.item_schema_json,
        )

    def gate(self, decl: StepDecl) -> Gate | None:
        written = decl.gate
        if written is None:
            return None
        gate = Gate(
            check=self.targets.command(written.check) if written.check else None,
            judge=self.prompts.judge(decl, written),
            approval=written.approval,
            max_loops=written.max_loops or 1,
            each=written.each,
        )
        return None if gate == Gate(each=gate.each) else gate

    def probe(self, decl: StepDecl) -> Command | None:
        probe = decl.settings.probe
        if probe is UNSET:
            return None
        if decl.settings.effects != "external":
            message = f"the probe of '{decl.id}' is never asked: its effects are not external"
            place = decl.places.get("probe", probe.place)
            self.source.warning(place, "idle-probe", message, "add 'effects: external', or remove 'probe'")
        return self.targets.command(probe)

    def env(self, decl: StepDecl) -> tuple[str, ...]:
        names = () if decl.settings.env is UNSET else decl.settings.env
        for index, name in enumerate(names):
            if name in self.config.env:
                self.groups[name] = self.config.env[name]
                continue
            if self.config.doubts(f"env.{name}"):
                continue
            place = decl.places.get(f"env[{index}]") or decl.places.get("env", decl.place)
            hint = suggest(name, self.config.env) or f"add [env.{shown(name)}] to interlock.toml"
            self.source.error(place, "unknown-env", f"no env group is named '{shown(name)}'", hint)
        return names

    def cwd(self, decl: StepDecl) -> str:
        written = "." if decl.settings.cwd is UNSET else decl.settings.cwd
        if written not in self.folders:
            self.folders[written] = self.sources.folder(written)
        found = self.folders[written]
        if isinstance(found, Missing):
            place = decl.places.get("cwd", decl.place)
            self.source.error(place, "bad-cwd", f"folder '{shown(written)}' {found.reason}", found.hint)
            return written
        return found
