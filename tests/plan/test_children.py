"""Child workflows at freeze: found, compiled, checked with their callers, and embedded."""

from __future__ import annotations

import pytest

from interlock.decide import children
from interlock.errors import Diagnostic
from interlock.model.plan import Binding, Child, Hole, Plan, Reference
from interlock.plan.children import MAX_DEPTH, Resolved
from interlock.plan.compile import compile_workflow
from interlock.plan.config import Config
from interlock.plan.freeze import freeze, thaw
from interlock.plan.resolve import resolve
from interlock.testing.sources import FakeSources


def text(*uses: str, params: str = "{}") -> str:
    steps = "".join(f"  - {{ id: s{n}, uses: {use} }}\n" for n, use in enumerate(uses))
    return f"---\nparams: {params}\nsteps:\n{steps or '  - { id: x, run: [ls] }'}\n---\n"


def resolved(root: str, sources: FakeSources) -> Resolved:
    compiled = compile_workflow(root.encode(), "flow.md")
    assert compiled.workflow is not None, compiled.diagnostics
    return resolve(compiled.workflow, Config(), sources)


def lint(root: str, sources: FakeSources) -> list[Diagnostic]:
    found = resolved(root, sources)
    assert (found.plan is None) == any(one.severity == "error" for one in found.diagnostics)
    return list(found.diagnostics)


def plan_of(root: str, **workflows: str) -> Plan:
    plan = resolved(root, FakeSources(workflows={f"{name}.md": flow for name, flow in workflows.items()})).plan
    assert plan is not None
    return plan


def target(plan: Plan, step: str) -> Child:
    found = plan.step(step).target
    assert isinstance(found, Child)
    return found


def faults(root: str, **workflows: str) -> list[tuple[str, int, str, str, str]]:
    found = lint(root, FakeSources(workflows={f"{name}.md": flow for name, flow in workflows.items()}))
    return [(d.file, d.line, d.code, d.message, d.hint) for d in found]


def test_a_child_without_faults_is_embedded() -> None:
    plan = plan_of(text("./a.md"), a=text())
    assert [one.source for one in plan.children.values()] == ["a.md"]
    assert target(plan, "s0").plan in plan.children


def test_a_child_that_is_not_there_is_told_at_its_step() -> None:
    message, hint = "workflow './gone.md' does not exist", "the path is relative to /project"
    assert faults(text("./gone.md")) == [("flow.md", 4, "bad-workflow", message, hint)]


def test_what_is_wrong_in_a_child_and_a_grandchild_is_told_in_their_own_files() -> None:
    broken = "---\nsteps:\n  - { id: x, run: [ls], env: [nowhere] }\n---\n"
    found = faults(text("./a.md"), a=text("./b.md", "./c.md"), b="---\nsteps: []\n---\n", c=broken)
    assert [(file, line, code) for file, line, code, _, _ in found] == [
        ("b.md", 2, "no-steps"),
        ("c.md", 3, "unknown-env"),
    ]


def test_a_child_named_by_several_steps_and_children_is_resolved_once() -> None:
    sources = FakeSources(
        workflows={"a.md": text("./b.md"), "b.md": "---\nsteps:\n  - { id: x, uses: ./x.sh }\n---\n"},
        scripts={"./x.sh": b"#!/bin/sh\n"},
    )
    assert lint(text("./a.md", "./a.md", "./b.md"), sources) == []
    assert sources.asked.count("script ./x.sh") == 1


@pytest.mark.parametrize(
    ("a", "b", "file", "chain"),
    [
        ("./a.md", "./a.md", "a.md", "a.md -> a.md"),
        ("./b.md", "./a.md", "b.md", "a.md -> b.md -> a.md"),
        ("./b.md", "./flow.md", "b.md", "flow.md -> a.md -> b.md -> flow.md"),
    ],
)
def test_a_circle_is_one_error_that_names_its_chain(a: str, b: str, file: str, chain: str) -> None:
    root = text("./a.md")
    found = faults(root, a=text(a), b=text(b), flow=root)
    message = f"a workflow would run itself: {chain}"
    assert found == [(file, 4, "workflow-cycle", message, "break the circle")]


def nested(levels: int) -> dict[str, str]:
    flows = {f"c{level}": text(f"./c{level + 1}.md") for level in range(1, levels)}
    return {**flows, f"c{levels}": text()}


def test_children_may_be_nested_as_deep_as_the_limit_and_no_deeper() -> None:
    assert faults(text("./c1.md"), **nested(MAX_DEPTH)) == []
    (found,) = faults(text("./c1.md"), **nested(MAX_DEPTH + 1))
    chain = " -> ".join(["flow.md", *(f"c{level}.md" for level in range(1, MAX_DEPTH + 2))])
    message = f"child workflows may be nested 8 deep, and here it goes deeper: {chain}"
    assert found == ("c8.md", 4, "workflow-depth", message, "put the steps of one of them into its caller")


def test_a_child_met_before_at_a_lesser_depth_still_counts_with_what_lies_below_it() -> None:
    flows = nested(MAX_DEPTH)
    (found,) = faults(text("./c1.md", "./late.md"), late=text("./c1.md"), **flows)
    assert found[:3] == ("late.md", 4, "workflow-depth")


PARAMS = "{ n: { type: integer, required: true }, path: { type: string }, token: { type: integer } }"


def given(with_: str) -> list[tuple[str, int, str, str, str]]:
    root = f"---\nparams: {{ p: {{}} }}\nsteps:\n  - id: s\n    uses: ./a.md\n    with: {with_}\n---\n"
    return [fault for fault in faults(root, a=text(params=PARAMS)) if fault[2] != "secret-param"]


@pytest.mark.parametrize("with_", ["{ n: 3 }", "{ n: params.p, path: x }"])
def test_values_that_fit_the_childs_params_pass(with_: str) -> None:
    assert given(with_) == []


@pytest.mark.parametrize(
    ("with_", "code", "message", "hint"),
    [
        ("{ n: 1, pth: x }", "unknown-param", "'./a.md' has no param 'pth'", "did you mean 'path'?"),
        ("{ path: x }", "missing-param", "'./a.md' requires the param 'n'", "add 'n' to 'with'"),
        (
            "{ n: three }",
            "bad-param",
            'param \'n\' of the child: "three" is not of type "integer"',
            "give what the child's 'params' ask for",
        ),
        (
            "{ n: 1, token: hush }",
            "bad-param",
            "param 'token' of the child: the value does not fit its schema",
            "give what the child's 'params' ask for",
        ),
    ],
)
def test_values_that_do_not_fit_are_told_at_their_place(with_: str, code: str, message: str, hint: str) -> None:
    assert given(with_) == [("flow.md", 6, code, message, hint)]


def test_a_value_with_a_reference_inside_is_not_judged_before_it_is_known() -> None:
    root = "---\nparams: { p: {} }\nsteps:\n  - { id: s, uses: ./a.md, with: { l: [1, { k: params.p }] } }\n---\n"
    assert faults(root, a=text(params="{ l: { type: array, items: { type: integer } } }")) == []


def test_a_child_that_cannot_be_compiled_says_nothing_about_its_params() -> None:
    root = "---\nsteps:\n  - { id: s, uses: ./a.md, with: { l: 1 } }\n---\n"
    assert [fault[:3] for fault in faults(root, a="---\nsteps: []\n---\n")] == [("a.md", 2, "no-steps")]


def test_a_child_that_declares_no_params_takes_none() -> None:
    root = "---\nsteps:\n  - { id: s, uses: ./a.md, with: { l: 1 } }\n---\n"
    message, hint = "'./a.md' has no param 'l'", "it declares no params"
    assert faults(root, a=text()) == [("flow.md", 3, "unknown-param", message, hint)]


def test_each_child_is_embedded_once_however_many_call_it() -> None:
    plan = plan_of(text("./a.md", "./b.md", "./a.md"), a=text("./b.md"), b=text())
    assert sorted(one.source for one in plan.children.values()) == ["a.md", "b.md"]
    assert all(one.children == {} and one.project.root == "" for one in plan.children.values())


def test_a_childs_key_changes_with_what_lies_below_it() -> None:
    before, after = (plan_of(text("./a.md"), a=text("./b.md"), b=text(params=params)) for params in ("{}", "{ n: {} }"))
    assert target(before, "s0").plan != target(after, "s0").plan


def test_the_plan_of_a_child_that_stands_by_itself_has_a_project_and_its_own_children_only() -> None:
    plan = plan_of(text("./a.md", "./c.md"), a=text("./b.md"), b=text(), c=text())
    child = children.plan_of(plan, target(plan, "s0"))
    assert child.project == plan.project
    assert [one.source for one in child.children.values()] == ["b.md"]
    assert thaw(*freeze(child), "R1") == child


def test_a_child_has_no_timeout_but_its_own() -> None:
    steps = "  - { id: s, uses: ./a.md }\n  - { id: t, uses: ./a.md, timeout: 2h }\n"
    plan = plan_of(f"---\ndefaults: {{ timeout: 1m }}\nsteps:\n{steps}---\n", a=text())
    assert [step.timeout_ms for step in plan.steps] == [None, 7_200_000]


def test_bindings_hold_literals_and_where_references_go() -> None:
    with_ = "{ n: 1, l: [params.p, { k: item.name }], t: item }"
    root = f"---\nparams: {{ p: {{}} }}\nsteps:\n  - {{ id: s, map: {{ over: params.p }}, uses: ./a.md, with: {with_} }}\n---\n"
    plan = plan_of(root, a=text(params="{ n: {}, l: {}, t: {} }"))
    p, name = (
        Reference(text="params.p", root="params", name="p"),
        Reference(text="item.name", root="item", name="", path=("name",)),
    )
    assert target(plan, "s").bindings == (
        Binding(name="l", value_json='[null,{"k":null}]', holes=(Hole(at=(0,), ref=p), Hole(at=(1, "k"), ref=name))),
        Binding(name="n", value_json="1"),
        Binding(name="t", value_json="null", holes=(Hole(at=(), ref=Reference(text="item", root="item", name="")),)),
    )


def test_outside_of_a_map_an_item_is_a_word_like_any_other() -> None:
    root = "---\nsteps:\n  - { id: s, uses: ./a.md, with: { t: item } }\n---\n"
    assert target(plan_of(root, a=text(params="{ t: {} }")), "s").bindings == (Binding(name="t", value_json='"item"'),)
