"""Who answers a step's prompt and who judges by its rubric: engine, exact model and what of the settings holds there.

Guarantees: a prompt without an engine, a rubric without a judge and a call of an API without a model are errors,
never silently somebody else's; `used` holds exactly the engines that came out; what an engine of that kind can't
honour is left out of the plan and said in one note an engine and setting.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from interlock.model.canon import dumps
from interlock.model.plan import Engine, Judge, Prompt, Retry
from interlock.model.states import Reason
from interlock.model.workflow import GateDecl, Place, PromptDecl, StepDecl
from interlock.plan.config import DEFAULT_JUDGE_CLIP_CHARS, Config
from interlock.plan.config import Engine as Configured
from interlock.plan.config_kinds import SAMPLING_OF_AGENT
from interlock.plan.diagnose import Source, shown, suggest
from interlock.plan.models import exact_model, mistaken_alias, silent_alias

PROMPT_RETRY: Final = Retry(max=3, on=(Reason.LLM_RATE_LIMIT, Reason.LLM_OVERLOADED))
"""Of prompts, where nobody says otherwise."""
_SAMPLING: Final = ("temperature", "max_tokens", "extra_params")
_FILE: Final = "interlock.toml"


class PromptResolver:
    """Resolves the prompts and judges of one workflow."""

    def __init__(self, config: Config, source: Source) -> None:
        self.used: dict[str, Engine] = {}
        self._config = config
        self._source = source
        self._noted: set[tuple[str, str]] = set()

    def prompt(self, decl: StepDecl, target: PromptDecl) -> Prompt | None:
        """Return the resolved prompt, None for what was reported."""
        engine = self._engine_of(decl)
        if engine is None:
            return None
        wanted = decl.settings.model
        return Prompt(
            text=target.text,
            engine=engine.name,
            model=self._model(engine, None if wanted is UNSET else wanted, decl.places.get("model", decl.place)),
            **self._sampling(decl, engine),
        )

    def retry(self, decl: StepDecl) -> Retry:
        """Return the retries of a step, those of prompts by default."""
        if decl.settings.retry is not UNSET:
            return decl.settings.retry
        return PROMPT_RETRY if isinstance(decl.target, PromptDecl) else Retry()

    def judge(self, decl: StepDecl, gate: GateDecl) -> Judge | None:
        """Return the judge of a rubric, None without a rubric and for what was reported."""
        if gate.rubric is None:
            return None
        name = self._config.run.judge if gate.judge is None else gate.judge
        if name is UNSET and self._config.doubts("run.judge"):
            return None
        if name is UNSET:
            hint = f"write 'gate: {{ judge: NAME }}', or judge = \"NAME\" below [run] in {_FILE}"
            self._source.error(gate.place, "no-judge", f"the rubric of '{decl.id}' has no judge", self._or_add(hint))
            return None
        place = decl.places.get("gate.judge", gate.place)
        engine = self._engine(name, place, "run.judge" if gate.judge is None else "")
        if engine is None:
            return None
        clip = self._config.run.judge_clip_chars
        return Judge(
            rubric=gate.rubric,
            engine=engine.name,
            model=self._model(engine, None, place),
            asked=gate.judges,
            clip_chars=DEFAULT_JUDGE_CLIP_CHARS if clip is UNSET else clip,
        )

    def _engine_of(self, decl: StepDecl) -> Configured | None:
        own = decl.settings.engine
        name = self._config.run.engine if own is UNSET else own
        if name is UNSET and self._config.doubts("run.engine"):
            return None
        if name is UNSET:
            hint = f"write 'engine: NAME', or engine = \"NAME\" below [run] in {_FILE}"
            message = f"step '{decl.id}' is a prompt, and no engine is named to answer it"
            self._source.error(decl.place, "no-engine", message, self._or_add(hint))
            return None
        return self._engine(name, decl.places.get("engine", decl.place), "run.engine" if own is UNSET else "")

    def _or_add(self, hint: str) -> str:
        """Return the hint, beginning with what has to be there first where no engine is configured at all."""
        return hint if self._config.engines else f"add [engines.NAME] to {_FILE}; then {hint}"

    def _engine(self, name: str, place: Place, by: str) -> Configured | None:
        """Return the engine of that name, which the configuration gives at `by` where the workflow doesn't."""
        engine = self._config.engines.get(name)
        if engine is None and (self._config.doubts(f"engines.{name}") or (by and self._config.doubts(by))):
            return None
        if engine is None:
            hint = suggest(name, self._config.engines) or f"add [engines.{shown(name)}] to {_FILE}"
            self._source.error(place, "unknown-engine", f"no engine is named '{shown(name)}'", hint)
            return None
        for group in engine.env:
            if group not in self._config.env and not self._config.doubts(f"engines.{name}.env"):
                message = f"engine '{name}' names the env group '{shown(group)}', which is not configured"
                self._source.error(place, "unknown-env", message, f"add [env.{shown(group)}] to {_FILE}")
        self.used[name] = Engine(
            name=name,
            kind=engine.kind,
            driver=engine.driver,
            model=exact_model(self._config, engine.model, engine) if engine.model is not None else None,
            env=engine.env,
            reserve_tokens=engine.reserve_tokens,
        )
        return engine

    def _model(self, engine: Configured, wanted: str | None, place: Place) -> str | None:
        """Return the exact id of `wanted`, else of the engine's own model."""
        name = engine.model if wanted is None else wanted
        if name is None:
            if engine.kind == "llm" and not self._config.doubts(f"engines.{engine.name}.model"):
                api = f"the {engine.driver}" if engine.driver else "its"
                message = f"no model is named for engine '{engine.name}', and {api} API needs one"
                hint = f"write 'model: MODEL-ID', or model = \"MODEL-ID\" below [engines.{engine.name}] in {_FILE}"
                self._source.error(place, "no-model", message, hint)
            return None
        exact = exact_model(self._config, name, engine)
        if exact is None and not self._config.doubts(f"models.{name}"):
            self._source.error(place, "silent-alias", *silent_alias(name, engine))
        near = mistaken_alias(self._config, name)
        if near and not self._config.doubts("models"):
            message = f"'{shown(name)}' is no model alias, so it is taken for an exact id"
            self._source.warning(place, "not-an-alias", message, near)
        return exact

    def _sampling(self, decl: StepDecl, engine: Configured) -> dict[str, Any]:
        """Return the parameters of sampling that the engine takes, and note what can't be honoured."""
        own = decl.settings
        given = {key: value for key in _SAMPLING if (value := getattr(own, key)) is not UNSET}
        if engine.kind == "agent":
            taken = SAMPLING_OF_AGENT.get(engine.driver, ())
            for key in [key for key in given if key not in taken]:
                self._note(decl, engine, key, "is an agent, which takes none from outside")
                del given[key]
            return given
        if self.retry(decl).session == "continue":
            self._note(decl, engine, "retry.session", "keeps no sessions, so every retry and loop starts anew")
        if "extra_params" in given:
            given["extra_params_json"] = dumps(given.pop("extra_params")).decode()
        return given

    def _note(self, decl: StepDecl, engine: Configured, key: str, why: str) -> None:
        if (engine.name, key) in self._noted:
            return
        self._noted.add((engine.name, key))
        place = decl.places.get(key) or decl.places.get(key.partition(".")[0], decl.place)
        self._source.note(place, f"'{key}' does nothing: engine '{engine.name}' ({engine.driver}) {why}")
