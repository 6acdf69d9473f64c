"""Whatever bytes a workflow file holds, compiling it gives a workflow or errors with places, never an exception."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.errors import Diagnostic
from interlock.plan.compile import Compiled, compile_workflow
from interlock.plan.diagnose import render

CASES = sorted((Path(__file__).parent / "diagnostics").glob("*.md"))


def consistent(result: Compiled) -> bool:
    errors = [found for found in result.diagnostics if found.severity == "error"]
    return (result.workflow is None) == bool(errors) and all(map(placed, result.diagnostics))


def placed(found: Diagnostic) -> bool:
    return found.line >= 1 and found.column >= 1 and bool(render(found)) and bool(found.message)


@given(st.binary(max_size=400))
def test_any_bytes_give_a_result(data: bytes) -> None:
    assert consistent(compile_workflow(data, "a.md"))


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_front_matter_and_body_give_a_result(front: str, body: str) -> None:
    assert consistent(compile_workflow(f"---\n{front}\n---\n{body}".encode("utf-8", "replace"), "a.md"))


@settings(max_examples=150)
@given(st.sampled_from(CASES), st.data())
def test_a_damaged_workflow_gives_a_result(case: Path, data: st.DataObject) -> None:
    text = case.read_bytes()
    at = data.draw(st.integers(0, len(text)))
    gone = data.draw(st.integers(0, 6))
    put = data.draw(
        st.sampled_from([b"", b"\n", b"\t", b": ", b"- ", b"{", b"[", b"*a", b"&a ", b"~", b"'", b"\xff", b"$ref: '#'"])
    )

    assert consistent(compile_workflow(text[:at] + put + text[at + gone :], "a.md"))
