"""What a workflow means once compiled: targets, settings, needs, gates, schemas and texts as the author wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET

from interlock.model.plan import Reference, Retry, When
from interlock.model.states import Reason
from interlock.model.workflow import PromptDecl, RunDecl, StepDecl, UsesDecl, Workflow
from interlock.plan.compile import Compiled, compile_workflow
from interlock.plan.diagnose import render


def compiled(front: str, body: str = "") -> Compiled:
    return compile_workflow(f"---\n{front}\n---\n{body}".encode(), "flows/a.md")


def good(front: str, body: str = "") -> Workflow:
    result = compiled(front, body)
    assert result.workflow is not None, [render(found) for found in result.diagnostics]
    return result.workflow


def only(front: str, body: str = "") -> StepDecl:
    return good(front, body).steps[0]


def codes(front: str, body: str = "") -> list[str]:
    return [found.code for found in compiled(front, body).diagnostics]


def test_the_example_of_the_language_compiles_whole() -> None:
    text = Path(__file__).with_name("review.md").read_bytes()
    result = compile_workflow(text, "review.md")
    flow = result.workflow

    assert result.diagnostics == ()
    assert flow is not None
    assert [step.id for step in flow.steps] == ["discover", "review", "tests", "verdict", "triage", "ship", "rework"]
    by_id = {step.id: step for step in flow.steps}
    assert by_id["review"].needs == ("discover",)
    assert by_id["ship"].routers == by_id["rework"].routers == ("triage",)
    assert by_id["rework"].explicit_needs
    assert by_id["review"].settings.engine == "coder"
    assert by_id["tests"].settings.engine is UNSET
    assert by_id["review"].gate is not None
    assert by_id["review"].gate.rubric == "The verdict gives reasons with line numbers.\n"
    assert isinstance(by_id["review"].target, PromptDecl)
    assert by_id["review"].target.text == "Review the file you were given for correctness.\n"
    assert by_id["triage"].target is None
    assert by_id["ship"].with_ == {"notes": Reference(text="steps.review.output", root="steps", name="review")}
    assert (flow.name, flow.budget.max_duration_ms, flow.budget.max_cost_usd) == ("review", 7_200_000, 5.0)


def test_a_workflow_written_for_akm_compiles_unchanged_and_says_what_it_ignores() -> None:
    text = Path(__file__).with_name("akm.md").read_bytes()
    result = compile_workflow(text, "akm.md")
    flow = result.workflow

    assert [(found.severity, found.line) for found in result.diagnostics] == [
        ("notice", 12),
        ("notice", 23),
        ("notice", 28),
    ]
    assert flow is not None
    intake, build, check, child, verdict = flow.steps
    assert flow.envelope["generated"] == {"by": "tool", "at": "2026-07-30"}
    assert isinstance(intake.target, PromptDecl)
    assert (intake.settings.temperature, intake.settings.max_tokens) == (0.2, 900)
    assert build.map is not None
    assert build.map.item_schema_json == '{"type":"object"}'
    assert isinstance(build.settings.retry, Retry)
    assert build.settings.retry.on == (Reason.PARSE_ERROR, Reason.LLM_CONTENT_FILTER, Reason.LLM_RATE_LIMIT)
    assert isinstance(check.target, RunDecl)
    assert (check.target.argv, check.settings.cwd) == (("make", "check"), "sub")
    assert isinstance(child.target, UsesDecl)
    assert (child.target.kind, child.settings.timeout_ms) == ("library", 600_000)
    assert child.with_["issue"] == Reference(text="params.repo", root="params", name="repo")
    assert verdict.output_schema_json == (
        '{"allOf":[{"$id":"urn:interlock:step","type":"object"},{"$id":"urn:interlock:unit","required":["ok"]}]}'
    )
    assert flow.notices == (
        "line 12: 'llm.enable_thinking' has no counterpart here and is ignored",
        "line 23: the failure reason 'no_change' never occurs here; retrying on it is ignored",
        "line 28: 'exec.pass_env' is not needed: children get the user's environment",
    )


def test_line_ends_and_bom_leave_no_trace() -> None:
    text = "---\nsteps:\n- id: a\n---  \n## a\nProse\n\n"
    plain = compile_workflow(text.encode(), "a.md")

    assert plain.workflow is not None
    for variant in (text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode()):
        assert compile_workflow(variant, "a.md") == plain
    target = plain.workflow.steps[0].target
    assert isinstance(target, PromptDecl)
    assert target.text == "Prose\n\n"


def test_sections_are_kept_byte_for_byte_and_only_real_headings_count() -> None:
    prose = "\n  Indented.\t\n\n```\n## fenced\n### gate\n```\n\n> ## quoted\n\n- ## listed\n\nSetext\n---\n\n<!--\n## hidden\n-->\n# One\n#### Four\n"
    step = only(
        "steps: [{ id: a }, { id: b, run: x }]", f"preamble\n##  a  ##\n{prose}### gate\nrubric\n### more\n## b\n"
    )

    assert isinstance(step.target, PromptDecl)
    assert step.target.text == prose
    assert step.gate is not None
    assert step.gate.rubric == "rubric\n### more\n"


def test_a_section_at_the_end_of_the_file_keeps_its_last_line_as_it_is() -> None:
    step = only("steps: [{ id: a }]", "## a\nlast line")

    assert isinstance(step.target, PromptDecl)
    assert step.target.text == "last line"


def test_step_beats_unit_beats_map_beats_map_unit_beats_defaults() -> None:
    front = """
params: { p: { type: array } }
defaults: { timeout: 1s, on_error: continue, cwd: d, env: [d], effects: external }
steps:
- id: a
  run: x
  timeout: 5s
  map: { over: params.p, timeout: 4s, cwd: m, unit: { timeout: 3s, cwd: u, env: [u] } }
"""
    found = only(front).settings

    assert (found.timeout_ms, found.cwd, found.env, found.on_error) == (5_000, "m", ("u",), "continue")
    assert found.effects == "external"


def test_a_default_reaches_only_the_targets_that_it_fits() -> None:
    front = """
defaults: { timeout: 1s, engine: e, isolation: worktree, env: [x], retry: { max: 1 }, isolation: worktree }
steps:
- { id: a, run: x }
- { id: b, uses: "python:m:f" }
- { id: c, uses: ./c.md }
- { id: d, uses: ./c.md, timeout: none }
""".replace(", isolation: worktree }", " }")
    command, python, child, timed = (step.settings for step in good(front).steps)

    assert (command.engine, command.isolation, command.timeout_ms) == (UNSET, "worktree", 1_000)
    assert (python.isolation, python.env) == (UNSET, ("x",))
    assert (child.timeout_ms, child.env) == (UNSET, UNSET)
    assert isinstance(child.retry, Retry)
    assert timed.timeout_ms is None


def test_isolation_none_fits_everywhere() -> None:
    assert only("steps: [{ id: a, uses: 'python:m:f', isolation: none }]").settings.isolation == "none"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("./x.sh", "script"),
        ("x.py", "script"),
        ("build", "script"),
        ("~/x", "script"),
        ("./scripts/x", "script"),
        ("flows/x.md", "workflow"),
        ("python:a.b:c", "python"),
        ("scripts/x", "library"),
        ("team//workflows/x", "library"),
    ],
)
def test_the_form_of_uses_tells_its_kind(text: str, kind: str) -> None:
    target = only(f"steps: [{{ id: a, uses: '{text}' }}]").target

    assert isinstance(target, UsesDecl)
    assert target.kind == kind


def test_texts_stay_what_they_look_like() -> None:
    front = """
params: { v: { type: string, default: 1.10 }, w: { type: string, enum: [1.10, no] }, x: { type: array, default: [1.10] } }
steps:
- { id: a, run: [echo, 0123456, on, 10:00], cwd: 2026-01-01, output: { type: object, required: [no, 1.10] } }
- { id: r, route: { input: steps.a.output.no, when: [{ match: 1.10, step: z }, { match: true, step: z }] } }
- { id: z, run: true }
"""
    flow = good(front)

    assert [param.default_json for param in flow.params] == ['"1.10"', None, "[1.1]"]
    assert flow.params[1].schema_json == '{"enum":["1.10","no"],"type":"string"}'
    target = flow.steps[0].target
    assert isinstance(target, RunDecl)
    assert target.argv == ("echo", "0123456", "on", "10:00")
    assert flow.steps[0].settings.cwd == "2026-01-01"
    assert flow.steps[0].output_schema_json == '{"required":["no","1.10"],"type":"object"}'
    assert flow.steps[1].route is not None
    assert flow.steps[1].route.when == (When(match="1.10", step="z"), When(match="true", step="z"))
    assert isinstance(flow.steps[2].target, RunDecl)
    assert flow.steps[2].target.text == "true"


@pytest.mark.parametrize("written", ["'{}'", "[echo, '{}']"])
def test_a_text_that_no_program_can_be_given_is_a_fault(written: str) -> None:
    steps = "steps: [{{ id: a, run: {} }}]"
    assert codes(steps.format(written.format("x" * 131_071))) == []
    (found,) = compiled(steps.format(written.format("x" * 131_070 + "\u00e4"))).diagnostics
    assert found.code == "too-long"
    assert found.message == "'run' holds 131,072 bytes in one text, and the system passes no more than 131,071"


def test_params_are_declared_with_their_schema() -> None:
    front = """
params:
  base: { type: string, default: main, description: A branch }
  deep: { type: object, required: [k], properties: { k: { $ref: '#/$defs/k' } }, $defs: { k: { type: integer } } }
  must: { required: true }
  github_token: { type: string }
  max_tokens: { type: integer }
  plain: { description: The API key of the service }
steps: [{ id: a, run: x }]
"""
    result = compiled(front)
    assert result.workflow is not None
    base, deep, must, token, tokens, plain = result.workflow.params

    assert (base.default_json, base.description, base.schema_json) == ('"main"', "A branch", '{"type":"string"}')
    assert '"required":["k"]' in deep.schema_json
    assert must.required
    assert not deep.required
    assert [p.secret for p in (token, tokens, plain)] == [True, False, True]
    assert [found.code for found in result.diagnostics] == ["secret-param", "secret-param"]


def test_needs_default_to_the_step_before() -> None:
    flow = good(
        "steps: [{ id: a, run: x }, { id: b, run: x }, { id: c, needs: [], run: x }, { id: d, needs: [a], run: x }]"
    )

    assert [(step.needs, step.explicit_needs) for step in flow.steps] == [
        ((), False),
        (("a",), False),
        ((), True),
        (("a",), True),
    ]


def test_a_reference_may_reach_through_others_and_through_routers() -> None:
    front = """
steps:
- { id: a, run: x }
- { id: b, run: x }
- { id: r, route: { input: steps.b.output, when: [{ match: y, step: t }] } }
- { id: o, needs: [], run: x }
- { id: t, needs: [o], run: x, inputs: { first: steps.a.output } }
"""
    assert good(front).steps[4].routers == ("r",)


def test_places_lead_to_what_a_later_check_may_have_to_point_at() -> None:
    step = good("defaults: { cwd: sub }\nsteps:\n- id: a\n  run: x\n  env: [one, two]").steps[0]

    assert (step.places["env[1]"].line, step.places["env[1]"].column) == (6, 14)
    assert (step.places["cwd"].line, step.places["run"].line) == (2, 5)


def test_a_gate_that_holds_nothing_is_none_unless_a_schema_gives_its_loops_a_meaning() -> None:
    assert compiled("steps: [{ id: a, run: x, gate: {} }]").workflow is not None
    assert codes("steps: [{ id: a, run: x, gate: { max_loops: 1 } }]") == ["empty-gate"]
    step = only("steps: [{ id: a, output: { type: object }, gate: { max_loops: 3 } }]", "## a\nDo it.\n")
    assert step.gate is not None
    assert step.gate.max_loops == 3


def test_a_gate_of_check_judge_and_approval_is_kept() -> None:
    front = "steps: [{ id: a, gate: { check: make, judge: fast, judges: 3, approval: true, max_loops: 2 } }]"
    gate = only(front, "## a\nDo it.\n### gate\nGood?\n").gate

    assert gate is not None
    assert gate.check is not None
    assert (gate.check.text, gate.judge, gate.judges, gate.approval) == ("make", "fast", 3, True)


def test_only_prompts_loop_more_than_once() -> None:
    result = compiled("steps: [{ id: a, run: x, gate: { check: [./ok], max_loops: 3 } }]")

    assert [found.code for found in result.diagnostics] == ["loop-without-prompt"]
    assert result.workflow is not None
    gate = result.workflow.steps[0].gate
    assert gate is not None
    assert gate.max_loops == 1


@pytest.mark.parametrize(
    ("front", "code"),
    [
        ("steps: 5", "wrong-type"),
        ("steps: []", "no-steps"),
        ("steps: [{ id: a, route: { input: params.x, when: 5 } }]\nparams: { x: {} }", "wrong-type"),
        ("steps: [{ id: a, route: { input: 5, when: [{ match: x, step: b }] } }, { id: b, run: x }]", "bad-reference"),
        ("steps: [{ id: a, route: { input: params.x, when: [], default: [b] } }]\nparams: { x: {} }", "wrong-type"),
        ("steps: [{ id: a, run: x, timeout: [5] }]", "wrong-type"),
        ("steps: [{ id: a, run: x, gate: { check: x, max_loops: [1] } }]", "wrong-type"),
        ("budget: { max_cost_usd: .inf }\nsteps: [{ id: a, run: x }]", "wrong-type"),
        ("budget: { max_cost_usd: text }\nsteps: [{ id: a, run: x }]", "wrong-type"),
        ("steps: [{ id: a, run: x, inputs: [steps.zzz.output, params.] }]", "unknown-step bad-reference"),
        ("steps: [{ id: a, run: x, inputs: [[x]] }]", "wrong-type"),
        ("steps: [{ id: a, run: x, output: { dependentRequired: { a: [[1]] } } }]", "bad-schema"),
        ("steps: [{ id: a, run: x, output: { patternProperties: { '(': true } } }]", "bad-schema"),
        ("steps: [{ id: a, run: x, output: { type: string, const: 1.10 } }]", ""),
        ("steps: [{ id: a, run: x, output: { anyOf: [true], items: { $ref: '#/anyOf/0' } } }]", ""),
        ("steps: [{ id: a, run: x, output: { anyOf: [true], items: { $ref: '#/anyOf/1' } } }]", "dead-reference"),
        ("steps: [{ id: a, run: x, output: { $anchor: here, items: { $ref: '#here' } } }]", ""),
        ("steps: [{ id: a, run: x, output: { $defs: { 'a b': true }, items: { $ref: '#/$defs/a%20b' } } }]", ""),
        ("params: { x: { type: integer, default: " + "9" * 900 + " } }\nsteps: [{ id: a, run: x }]", ""),
        (
            "steps: [{ id: a, run: x, map: { over: params.x, unit: { exec: { command: [y] } } } }]\nparams: { x: {} }",
            "two-targets",
        ),
        ("params: [a]\nsteps: [{ id: a, run: x }]", "wrong-type"),
        ("budget: 5\nsteps: [{ id: a, run: x }]", "wrong-type"),
        ("defaults: 5\nsteps: [{ id: a, run: x }]", "wrong-type"),
        ("steps: [{ id: a, run: x, unit: 5 }]", "wrong-type"),
        ("steps: [{ id: a, run: x, retry: { max: 1, backoff: 5 } }]", "wrong-type"),
        ("steps: [{ id: a, run: x, retry: { max: 1, on: 5 } }]", "wrong-type"),
        ("steps: [{ id: a, uses: ./c.md, with: 5 }]", "wrong-type"),
        ("steps: [{ id: a, route: 5 }]", "wrong-type"),
        ("steps: [{ id: a, uses: {} }]", "wrong-type"),
        ("steps: [{ id: [], run: x }]", "wrong-type"),
        ("steps: [{ id: a, run: x }]\nsteps_: 1", "unknown-key"),
        ("steps: [{ id: a, run: x, unit: { exec: { command: [y] } } }]", "two-targets"),
        ("steps: [{ id: a, unit: { exec: { command: [y] }, workflow: workflows/x } }]", "two-targets"),
        (
            "steps: [{ id: a, run: x, output: { items: false, prefixItems: [true] }, map: { over: params.x } }]\nparams: { x: {} }",
            "",
        ),
    ],
)
def test_wrong_types_are_findings(front: str, code: str) -> None:
    assert codes(front) == code.split()


def test_the_target_of_a_map_may_stand_in_its_unit() -> None:
    step = only("params: { x: {} }\nsteps: [{ id: a, map: { over: params.x, unit: { exec: { command: [y] } } } }]")

    assert isinstance(step.target, RunDecl)
    assert step.target.argv == ("y",)


def test_shapes_are_followed_through_lists_and_open_objects() -> None:
    front = """
steps:
- { id: a, run: x, output: { prefixItems: [{ type: object }], items: { type: string }, additionalProperties: { type: integer } } }
- id: b
  run: x
  inputs: ["steps.a.output[0].y", "steps.a.output[1]", steps.a.output.k, steps.a.output.k.z, "steps.a.output[1].n"]
- { id: c, run: x, map: { over: steps.m.output } }
- { id: m, needs: [], uses: "python:a:b", output: true }
"""
    assert codes(front) == ["impossible-reference", "impossible-reference", "forward-reference"]


def test_a_vote_has_the_shape_of_one_item_and_a_merge_is_an_object() -> None:
    front = """
params: { p: { type: array } }
steps:
- { id: v, run: x, map: { over: params.p, reducer: vote, output: { type: boolean } } }
- { id: m, run: x, isolation: worktree, map: { over: params.p, reducer: merge } }
- { id: w, uses: "python:a:b", map: { over: params.p, reducer: vote } }
- { id: z, run: x, inputs: [steps.v.output.x, "steps.m.output[0]", steps.m.output.tree, steps.w.output.any] }
"""
    assert codes(front) == ["impossible-reference", "impossible-reference"]


def test_limits_are_kept() -> None:
    steps = "\n".join(f"- {{ id: s{n}, run: x }}" for n in range(257))
    assert codes(f"steps:\n{steps}") == ["too-many-steps"]
    assert codes("steps: [{ id: a }]", "## a\n" + "x" * 262_145) == ["prose-too-long"]
    assert [f.code for f in compile_workflow(b" " * 1_048_577, "a.md").diagnostics] == ["file-too-large"]


def test_a_stored_byte_that_is_not_utf8_has_its_place() -> None:
    found = compile_workflow("---\r\né".encode() + b"\xff", "a.md").diagnostics[0]

    assert (found.line, found.column, found.code) == (2, 2, "not-utf8")
