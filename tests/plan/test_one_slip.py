"""One slip of the author's hand is told once, where it is, and nothing that only follows from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.plan.slips import WORKFLOW, keys, lint, near_misses, spoilt

from interlock.plan.diagnose import did_you_mean, is_one_slip

FREE = {"base", "files", "verdict", "seed", "all", "branch", "found"}
"""Names that the author gives, so that no other one is wrong."""
KEYS = [(at, key) for at, key in keys(WORKFLOW) if key not in FREE]


def some(misses: Iterator[tuple[str, str]], at: int) -> list[tuple[str, str]]:
    """Take some of them, others for each place, so that all kinds come up."""
    return list(misses)[at % 7 :: 7]


def test_the_workflow_that_the_slips_spoil_has_no_fault() -> None:
    assert lint() == []
    assert len(KEYS) > 80


@pytest.mark.parametrize(("at", "key"), KEYS, ids=[f"{key}-{at}" for at, key in KEYS])
def test_a_misspelled_key_is_told_once_and_nothing_is_said_to_be_missing(at: int, key: str) -> None:
    for miss, text in some(spoilt(WORKFLOW, at, key), at):
        line = WORKFLOW[:at].count("\n") + 1
        found = lint(text)
        assert [one.line for one in found] == [line], f"{miss} for {key}: {found}"
        assert f"'{miss}'" in found[0].message
        assert found[0].hint.startswith("did you mean '")


@pytest.mark.parametrize("word", ["id", "run", "over", "steps", "max_loops"])
def test_every_slip_of_one_letter_is_known_for_what_it_is(word: str) -> None:
    for miss in near_misses(word):
        if miss not in {word, ""}:
            assert is_one_slip(miss, word), miss
            assert did_you_mean(miss, [word, "zzzzzz"]) == f"did you mean '{word}'?"
    for other in ("qqqq", word + "qq", "qq" + word[::-1]):
        assert not is_one_slip(other, word)


MERGE = "map: { over: params.files, reducer: merge }, run: make"
HEAD = "---\nparams: { files: { type: array } }\n"
CASES = {
    "isolation": (f"  - {{ id: a, isolation: worktre, {MERGE} }}", [(4, "wrong-type")]),
    "isolation-of-a-base": (
        "  - { id: a, isolation: worktre, worktree_base: params.files, worktree_uncommitted: false, run: make }",
        [(4, "wrong-type")],
    ),
    "reducer": (
        (
            "  - { id: a, isolation: worktree, map: { over: params.files, reducer: merg }, run: make }\n"
            "  - { id: b, inputs: [steps.a.output.branch], run: make }"
        ),
        [(4, "wrong-type")],
    ),
    "output": (
        "  - { id: a, run: make, output: { type: aray } }\n  - { id: b, map: { over: steps.a.output }, run: make }",
        [(4, "bad-schema")],
    ),
    "item-output": (
        (
            "  - { id: a, run: make, map: { over: params.files, reducer: vote, output: { type: objct } } }\n"
            "  - { id: b, inputs: [steps.a.output.verdict], run: make }"
        ),
        [(4, "bad-schema")],
    ),
    "output-of-a-schema-gate": (
        "  - { id: a, run: make, gate: { max_loops: 1 }, output: { type: objct } }",
        [(4, "bad-schema")],
    ),
    "python": (
        '  - { id: a, uses: "python:pack" }\n  - { id: b, map: { over: steps.a.output }, run: make }',
        [(4, "bad-uses")],
    ),
    "uses": (
        '  - { id: a, uses: " ./child.md", with: { notes: params.files }, timeout: 1s }',
        [(4, "bad-uses")],
    ),
    "another-key-for-a-target": ("  - { id: a, user: ./x, engine: fast, isolation: none }", [(4, "unknown-key")]),
    "another-key-beside-a-target": ("  - { id: a, user: root, run: make }", [(4, "unknown-key")]),
    "key-far-from-what-is-meant": ("  - { id: a, map: { overall: params.files }, run: make }", [(4, "unknown-key")]),
    "approval": ("  - { id: a, run: make, gate: { approval: maybe } }", [(4, "wrong-type")]),
    "gate-of-an-unknown-key": ("  - { id: a, run: make, gate: { zzz: 1 } }", [(4, "unknown-key")]),
    "map": ("  - { id: a, map: params.files, run: make, gate: { each: true, check: make } }", [(4, "wrong-type")]),
    "unit": ("  - { id: a, unit: make }", [(4, "wrong-type")]),
    "exec": ("  - { id: a, unit: { exec: make } }", [(4, "wrong-type")]),
    "needs": (
        (
            "  - { id: a, run: make }\n  - { id: b, run: make }\n  - { id: c, needs: a, inputs: [steps.a.output], run: make }"
            "\n  - { id: d, inputs: [steps.a.output], run: make }"
        ),
        [(6, "wrong-type")],
    ),
    "need": (
        (
            "  - { id: first, run: make }\n  - { id: b, needs: [], run: make }\n"
            "  - { id: c, needs: [frist], inputs: [steps.first.output], run: make }"
        ),
        [(6, "unknown-step")],
    ),
    "route": (
        (
            "  - { id: a, run: make }\n"
            "  - { id: r, route: { input: steps.a.output, when: [{ match: x, step: shp }] } }\n"
            "  - { id: ship, needs: [], inputs: [steps.a.output], run: make }"
        ),
        [(5, "unknown-step")],
    ),
    "no-id": (
        "  - { run: make, timout: 1s }\n  - { id: b, inputs: [steps.first.output], run: make }",
        [(4, "missing-key"), (4, "unknown-key")],
    ),
    "steps": ("  {}", [(4, "wrong-type")]),
    "one-fault-of-two-steps": (
        "  - { id: a, run: make, output: &s { type: objct } }\n  - { id: b, run: make, output: *s, engine: gone }",
        [(4, "bad-schema"), (5, "misplaced-setting")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_value_that_cannot_be_read_is_not_taken_for_none(name: str) -> None:
    steps, expected = CASES[name]
    found = lint(f"{HEAD}steps:\n{steps}\n---\n")
    assert [(one.line, one.code) for one in found] == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("## reveiw\nLook.\n", "the section '## reveiw' belongs to no step"),
        ("## review\nLook.\n### Gate\nIt says so.\n", "'judge' has no rubric to judge by"),
    ],
)
def test_a_misspelled_heading_leaves_no_step_without_what_stands_below_it(body: str, expected: str) -> None:
    gate = ", gate: { judge: fast }" if "Gate" in body else ""
    (found,) = lint(f"---\nsteps:\n  - {{ id: review, engine: coder{gate} }}\n---\n{body}")
    assert found.message == expected
    assert found.hint in {"did you mean 'review'?", "write '### Gate' on line 7 as '### gate'"}


def test_a_section_of_a_step_without_an_id_is_nobody_s_fault_but_another_is_its_own() -> None:
    text = "---\nsteps:\n  - { engine: coder }\n  - { id: second, run: make }\n---\n## first\nLook.\n## secnd\nLook.\n"
    assert [(one.line, one.code) for one in lint(text)] == [(3, "missing-key"), (8, "unknown-section")]


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("defaults: [isolation]", "wrong-type"),
        ("default_settings: { isolation: worktree, engine: own }", "unknown-key"),
    ],
)
def test_defaults_that_cannot_be_read_may_have_been_any(written: str, code: str) -> None:
    steps = f"  - {{ id: a, {MERGE} }}\n  - {{ id: b }}"
    text = f"{HEAD}{written}\nsteps:\n{steps}\n---\n## b\nLook.\n"
    assert [(one.line, one.code) for one in lint(text, "")] == [(3, code)]


def test_a_faulty_param_hides_no_reference_to_one_that_is_not_declared() -> None:
    text = (
        "---\nparams: { r: { typ: array } }\nsteps:\n"
        "  - { id: a, map: { over: params.r }, inputs: [params.gone], run: make }\n---\n"
    )
    assert [(one.line, one.code) for one in lint(text)] == [(2, "unknown-keyword"), (4, "unknown-param")]


def test_a_heading_that_is_nearly_gate_is_a_warning_where_no_judge_waits_for_it() -> None:
    text = "---\nsteps:\n  - { id: review, engine: coder }\n---\n## review\nLook.\n### Gate\nIt says so.\n"
    assert [(one.line, one.severity, one.message, one.hint) for one in lint(text)] == [
        (7, "warning", "'### Gate' starts no rubric", "write it '### gate'")
    ]


def test_a_step_with_a_misspelled_key_is_held_against_the_configuration_and_the_project_too() -> None:
    text = """---
defaults: { on_eror: fail }
steps:
  - { id: a, timout: 1s, engine: gone, env: [lost] }
  - { id: b, usess: ./gone.sh, cwd: nowhere }
  - { id: c, uses: ./gone.sh, cwdd: nowhere }
  - { id: d, runn: make, gate: { chek: [no-such-program] } }
---
## a
Look.
"""
    assert [(one.line, one.code) for one in lint(text)] == [
        (2, "unknown-key"),
        (4, "unknown-key"),
        (4, "unknown-engine"),
        (4, "unknown-env"),
        (5, "unknown-key"),
        (6, "bad-script"),
        (6, "unknown-key"),
        (6, "bad-cwd"),
        (7, "unknown-key"),
        (7, "unknown-key"),
    ]
