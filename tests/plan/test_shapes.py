from __future__ import annotations

import pytest

from interlock.plan.compile import compile_workflow


@pytest.mark.parametrize(
    ("scan", "found"),
    [
        ("on_error: continue", ["null-items"]),
        ("on_error: continue, output: { type: array, items: { type: [string, 'null'] } }", ["null-items"]),
        ("on_error: continue, output: { type: array, items: { type: string } }", []),
        ("on_error: fail", []),
    ],
)
def test_a_map_over_what_may_be_null_is_warned_of(scan: str, found: list[str]) -> None:
    text = f"""---
params: {{ p: {{ type: array }} }}
steps:
- {{ id: scan, run: x, map: {{ over: params.p }}, {scan} }}
- {{ id: use, run: x, map: {{ over: steps.scan.output }} }}
- {{ id: read, run: x, needs: [scan], inputs: [steps.scan.output] }}
---
"""
    diagnostics = compile_workflow(text.encode(), "flow.md").diagnostics
    assert [(one.code, one.line, one.severity) for one in diagnostics] == [(code, 5, "warning") for code in found]


def test_the_warning_of_nulls_says_what_to_do() -> None:
    text = """---
params: { p: { type: array } }
defaults: { on_error: continue }
steps:
- { id: scan, run: x, map: { over: params.p } }
- { id: use, run: x, map: { over: steps.scan.output } }
- { id: vote, run: x, map: { over: params.p, reducer: vote }, output: { type: array } }
- { id: each, run: x, map: { over: steps.vote.output } }
---
"""
    (found,) = compile_workflow(text.encode(), "flow.md").diagnostics
    assert (found.line, found.message, found.hint) == (
        6,
        "'over': 'scan' puts null for each item that fails, and the items of a map must not be null",
        "leave out what is null in a step between",
    )
