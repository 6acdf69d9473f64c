from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import Diagnostic
from interlock.model.plan import Engine, EnvGroup, Gate, Judge, Plan, Prompt, Retry, Step
from interlock.model.states import Reason
from interlock.plan.compile import compile_workflow
from interlock.plan.config_parse import parse_config
from interlock.plan.diagnose import render
from interlock.plan.resolve import resolve
from interlock.testing.sources import FakeSources

CONFIG = """
[run]
engine = "coder"
judge = "fast"
[engines.fast]
kind = "llm"
api = "openai"
base_url = "http://127.0.0.1:1/v1"
model = "deep"
reserve_tokens = 9
[engines.coder]
kind = "agent"
agent = "claude"
env = ["staging", "shared"]
[engines.plain]
kind = "llm"
api = "gemini"
[models.deep]
claude = "claude-9"
fast = "small-1"
[models.wide]
openai = "wide-1"
"*" = "any-1"
[env.staging]
vars = ["A"]
[env.shared]
vars = ["B"]
[env.own]
vars = ["C"]
"""


def outcome(steps: str, body: str, config: str = CONFIG, head: str = "") -> tuple[Plan | None, list[Diagnostic]]:
    text = f"---\n{head}steps:\n{steps}\n---\n{body}"
    compiled = compile_workflow(text.encode(), "flow.md")
    assert compiled.workflow is not None, compiled.diagnostics
    found, diagnostics = parse_config(config.encode(), "c")
    assert diagnostics == ()
    resolved = resolve(compiled.workflow, found, FakeSources())
    return resolved.plan, sorted({*compiled.diagnostics, *resolved.diagnostics})


def planned(steps: str = "- id: a", body: str = "## a\nhi\n", **kinds: Any) -> Plan:
    plan, found = outcome(steps, body, **kinds)
    assert [one for one in found if one.severity != "notice"] == []
    assert plan is not None
    assert sum(one.severity == "notice" for one in found) == len(plan.notices)
    return plan


def only_step(steps: str = "- id: a", body: str = "## a\nhi\n", **kinds: Any) -> Step:
    (step,) = planned(steps, body, **kinds).steps
    return step


def prompt(steps: str = "- id: a", body: str = "## a\nhi\n", **kinds: Any) -> Prompt:
    target = only_step(steps, body, **kinds).target
    assert isinstance(target, Prompt)
    return target


def faults(steps: str, body: str = "## a\nhi\n", **kinds: Any) -> list[tuple[str, int, str, str]]:
    plan, found = outcome(steps, body, **kinds)
    assert (plan is None) == any(d.severity == "error" for d in found)
    return [(d.code, d.line, d.message, d.hint) for d in found]


def gate(steps: str, body: str, **kinds: Any) -> Gate | None:
    return only_step(steps, body, **kinds).gate


def test_a_prompt_is_frozen_byte_for_byte_with_its_engine() -> None:
    plan = planned(body="## a\n\n---\n  hi \u00e9\n\n")
    assert plan.steps[0].target == Prompt(text="\n---\n  hi \u00e9\n\n", engine="coder")
    assert plan.engines == (Engine(name="coder", kind="agent", driver="claude", env=("staging", "shared")),)


def test_step_beats_map_beats_defaults_beats_configuration() -> None:
    over = "over: params.xs"
    head = "params: { xs: { type: array, default: [] } }\n"
    everywhere = f"- {{ id: a, engine: fast, map: {{ {over}, engine: plain, model: m }} }}"
    assert prompt(everywhere, head=f"{head}defaults: {{ engine: coder }}\n").engine == "fast"
    in_map = f"- {{ id: a, map: {{ {over}, engine: fast }} }}"
    assert prompt(in_map, head=f"{head}defaults: {{ engine: coder }}\n").engine == "fast"
    assert prompt(head="defaults: { engine: fast }\n").engine == "fast"
    assert prompt().engine == "coder"


def test_defaults_for_prompts_leave_commands_alone() -> None:
    plan = planned("- id: a\n- { id: b, run: 'true' }", head="defaults: { engine: fast, model: x, temperature: 1 }\n")
    assert plan.steps[1].retry == Retry()
    assert [engine.name for engine in plan.engines] == ["fast"]


@pytest.mark.parametrize(
    ("setting", "model"),
    [
        ("engine: fast, model: deep", "small-1"),
        ("engine: coder, model: deep", "claude-9"),
        ("engine: fast, model: wide", "wide-1"),
        ("engine: coder, model: wide", "any-1"),
        ("engine: coder, model: claude-opus-5", "claude-opus-5"),
        ("engine: coder, model: '7'", "7"),
        ("engine: fast", "small-1"),
        ("engine: coder", None),
    ],
)
def test_an_alias_is_looked_up_by_engine_then_driver_then_any_and_else_is_an_exact_id(
    setting: str, model: str | None
) -> None:
    assert prompt(f"- {{ id: a, {setting} }}").model == model


def test_an_id_that_an_alias_gives_is_not_looked_up_again() -> None:
    config = CONFIG + '[models.loop]\n"*" = "deep"\n'
    assert prompt("- { id: a, engine: fast, model: loop }", config=config).model == "deep"


def test_a_frozen_engine_has_the_exact_id_of_its_own_model() -> None:
    (engine,) = planned("- { id: a, engine: fast, model: other-2 }").engines
    assert (engine.model, engine.reserve_tokens, engine.driver) == ("small-1", 9, "openai")


def test_an_alias_that_says_nothing_for_the_engine_is_an_error_at_its_place() -> None:
    _, (found,) = outcome("- { id: a, engine: plain, model: deep }", "## a\nhi\n")
    assert render(found) == (
        "flow.md:3:34: error: model alias 'deep' says nothing for engine 'plain' (gemini)\n"
        "    3 | - { id: a, engine: plain, model: deep }\n"
        "      |                                  ^~~~\n"
        'hint: add plain = "MODEL-ID" or "*" = "MODEL-ID" below [models.deep]'
    )


def test_a_word_that_is_nearly_an_alias_is_a_warning_and_an_id_is_none() -> None:
    plan, (found,) = outcome("- { id: a, model: depe }", "## a\nhi\n")
    assert plan is not None
    assert (found.severity, found.code) == ("warning", "not-an-alias")
    assert found.message == "'depe' is no model alias, so it is taken for an exact id"
    assert found.hint == "did you mean 'deep'?"
    planned("- { id: a, model: deep-1 }")
    planned("- { id: a, model: x/deep }")


def test_a_prompt_without_an_engine_is_an_error() -> None:
    config = CONFIG.replace('engine = "coder"', "")
    hint = "write 'engine: NAME', or engine = \"NAME\" below [run] in interlock.toml"
    message = "step 'a' is a prompt, and no engine is named to answer it"
    assert faults("- id: a", config=config) == [("no-engine", 3, message, hint)]
    first = "add [engines.NAME] to interlock.toml; then "
    assert faults("- id: a", config="") == [("no-engine", 3, message, first + hint)]


def test_an_api_without_a_model_is_an_error() -> None:
    assert faults("- { id: a, engine: plain }") == [
        (
            "no-model",
            3,
            "no model is named for engine 'plain', and the gemini API needs one",
            "write 'model: MODEL-ID', or model = \"MODEL-ID\" below [engines.plain] in interlock.toml",
        )
    ]


def test_unknown_engines_are_told_with_the_nearest() -> None:
    body = "## a\nhi\n### gate\ngood\n"
    assert faults("- { id: a, engine: coderr, gate: { judge: fasst } }", body) == [
        ("unknown-engine", 3, "no engine is named 'coderr'", "did you mean 'coder'?"),
        ("unknown-engine", 3, "no engine is named 'fasst'", "did you mean 'fast'?"),
    ]
    assert faults("- { id: a, engine: x }", config="")[0][3] == "add [engines.x] to interlock.toml"


def test_an_engine_that_names_an_unknown_env_group_is_told() -> None:
    config = CONFIG.replace("[env.shared]", "[env.other]")
    message = "engine 'coder' names the env group 'shared', which is not configured"
    assert faults("- id: a", config=config) == [("unknown-env", 3, message, "add [env.shared] to interlock.toml")]


def test_env_of_the_engine_is_frozen_beside_the_steps_own_which_its_check_gets_too() -> None:
    plan = planned("- { id: a, env: [own, staging] }")
    assert plan.steps[0].env == ("own", "staging")
    assert plan.engines[0].env == ("staging", "shared")
    assert [group.name for group in plan.env_groups] == ["own", "shared", "staging"]


def test_env_of_a_judges_engine_is_frozen_but_not_the_steps() -> None:
    plan = planned("- { id: a, engine: fast, gate: { judge: coder } }", "## a\nhi\n### gate\ngood\n")
    assert plan.steps[0].env == ()
    assert plan.env_groups == (EnvGroup(name="shared", vars=("B",)), EnvGroup(name="staging", vars=("A",)))


def test_prompts_retry_what_passes_by_itself_unless_told_otherwise() -> None:
    assert only_step().retry == Retry(max=3, on=(Reason.LLM_RATE_LIMIT, Reason.LLM_OVERLOADED))
    told = only_step("- { id: a, retry: { max: 1, on: [timeout], session: continue } }").retry
    assert told == Retry(max=1, on=(Reason.TIMEOUT,), session="continue")
    assert only_step("- id: a", head="defaults: { retry: { max: 0 } }\n").retry.max == 0
    assert only_step("- { id: a, run: 'true' }", "").retry == Retry()


def test_parameters_of_sampling_reach_an_api() -> None:
    steps = "- { id: a, engine: fast, temperature: 0.5, max_tokens: 7, extra_params: { top_p: 1, b: [x] } }"
    target = prompt(steps)
    assert (target.temperature, target.max_tokens) == (0.5, 7)
    assert target.extra_params_json == '{"b":["x"],"top_p":1}'
    plain = prompt("- { id: a, engine: fast }")
    assert (plain.temperature, plain.max_tokens, plain.extra_params_json) == (None, None, "{}")


def test_the_akm_spelling_of_defaults_means_the_same() -> None:
    head = "defaults: { engine: fast, llm: { temperature: 0, max_tokens: 5, extra_params: { k: 1 } } }\n"
    target = prompt(head=head)
    assert (target.temperature, target.max_tokens, target.extra_params_json) == (0.0, 5, '{"k":1}')


def test_what_an_agent_cannot_honour_is_said_once_an_engine_and_left_out() -> None:
    steps = "- { id: a, temperature: 1, extra_params: { x: 1 }, max_tokens: 3 }\n- { id: b, temperature: 2 }"
    plan = planned(steps, "## a\nhi\n## b\nho\n")
    target = plan.steps[0].target
    assert isinstance(target, Prompt)
    assert target == Prompt(text="hi\n", engine="coder", max_tokens=3)
    why = "does nothing: engine 'coder' (claude) is an agent, which takes none from outside"
    assert plan.notices == (
        f"line 3: 'temperature' {why}",
        f"line 3: 'extra_params' {why}",
    )


def test_an_api_cannot_go_on_in_a_session_and_the_notice_points_at_defaults() -> None:
    head = "defaults: { engine: fast, retry: { max: 1, session: continue } }\n"
    plan = planned("- id: a\n- id: b", "## a\nhi\n## b\nho\n", head=head)
    assert plan.notices == (
        "line 2: 'retry.session' does nothing: engine 'fast' (openai) keeps no sessions, so every retry and loop starts anew",
    )
    own = planned("- id: a\n  engine: fast\n  retry:\n    max: 1\n    session: continue")
    assert own.notices[0].startswith("line 7: 'retry.session'")


RUBRIC = "## a\nhi\n### gate\nGood:\n- yes\n"


def test_a_rubric_is_judged_by_the_configured_judge() -> None:
    plan = planned(body=RUBRIC)
    step = plan.steps[0]
    assert step.gate == Gate(judge=Judge(rubric="Good:\n- yes\n", engine="fast", model="small-1"))
    assert [engine.name for engine in plan.engines] == ["coder", "fast"]


def test_a_gate_may_name_its_judges_and_all_its_stages() -> None:
    steps = "- { id: a, gate: { check: [x], judge: coder, judges: 3, approval: true, max_loops: 4 } }"
    assert gate(steps, RUBRIC, config=CONFIG + "[limits]\n") is not None
    found = gate(steps, RUBRIC, config=CONFIG.replace("[run]", "[run]\njudge_clip_chars = 200"))
    assert found is not None
    assert found.judge == Judge(rubric="Good:\n- yes\n", engine="coder", asked=3, clip_chars=200)
    assert (found.check is not None, found.approval, found.max_loops, found.each) == (True, True, 4, False)


def test_a_command_can_be_judged_and_approved() -> None:
    assert gate("- { id: a, run: 'true' }", "## a\n### gate\ngood\n") == Gate(
        judge=Judge(rubric="good\n", engine="fast", model="small-1")
    )
    assert gate("- { id: a, run: 'true', gate: { approval: true } }", "") == Gate(approval=True)


def test_a_rubric_without_a_judge_is_an_error() -> None:
    config = CONFIG.replace('judge = "fast"', "")
    hint = "write 'gate: { judge: NAME }', or judge = \"NAME\" below [run] in interlock.toml"
    assert faults("- id: a", RUBRIC, config=config) == [("no-judge", 7, "the rubric of 'a' has no judge", hint)]


def test_a_judge_without_a_model_is_an_error_at_the_judge() -> None:
    _, (found,) = outcome("- { id: a, gate: { judge: plain } }", RUBRIC)
    assert (found.code, found.line, found.column) == ("no-model", 3, 27)


def test_loops_over_a_schema_need_no_other_stage() -> None:
    steps = "- { id: a, output: { type: object }, gate: { max_loops: 2 } }"
    assert gate(steps, "## a\nhi\n") == Gate(max_loops=2)
    assert gate("- { id: a, output: {}, gate: { max_loops: 1 } }", "## a\nhi\n") is None


def test_loops_and_external_effects_exclude_each_other() -> None:
    text = b"---\nsteps:\n- { id: a, effects: external, gate: { max_loops: 2, approval: true } }\n---\n## a\nhi\n"
    (found,) = compile_workflow(text, "flow.md").diagnostics
    assert (found.code, found.message) == (
        "loop-on-external",
        "a step with external effects can't loop: repeating it may hurt",
    )


def test_only_a_prompt_loops() -> None:
    plan, (found,) = outcome("- { id: a, run: 'true', gate: { max_loops: 3 } }", "## a\n### gate\ngood\n")
    assert found.severity == "warning"
    assert found.message == "only a prompt can loop; the step is a command, so the bound is 1"
    assert plan is not None
    assert plan.steps[0].gate is not None
    assert plan.steps[0].gate.max_loops == 1
