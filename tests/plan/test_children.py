"""Child workflows as `lint` sees them: found, compiled, checked with their callers, and refused by name."""

from __future__ import annotations

import pytest

from interlock.errors import Diagnostic
from interlock.plan.children import MAX_DEPTH
from interlock.plan.compile import compile_workflow
from interlock.plan.config import Config
from interlock.plan.resolve import resolve
from interlock.testing.sources import FakeSources

REFUSED = "not-supported-yet"


def text(*uses: str, params: str = "{}") -> str:
    steps = "".join(f"  - {{ id: s{n}, uses: {use} }}\n" for n, use in enumerate(uses))
    return f"---\nparams: {params}\nsteps:\n{steps or '  - { id: x, run: [ls] }'}\n---\n"


def lint(root: str, sources: FakeSources) -> list[Diagnostic]:
    compiled = compile_workflow(root.encode(), "flow.md")
    assert compiled.workflow is not None, compiled.diagnostics
    resolved = resolve(compiled.workflow, Config(), sources)
    assert resolved.plan is None
    return [found for found in resolved.diagnostics if found.code != REFUSED]


def faults(root: str, **workflows: str) -> list[tuple[str, int, str, str, str]]:
    found = lint(root, FakeSources(workflows={f"{name}.md": flow for name, flow in workflows.items()}))
    return [(d.file, d.line, d.code, d.message, d.hint) for d in found]


def test_a_child_without_faults_leaves_only_the_refusal_to_run_it() -> None:
    assert faults(text("./a.md"), a=text()) == []


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
