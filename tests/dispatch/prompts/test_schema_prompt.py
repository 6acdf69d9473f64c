from __future__ import annotations

from interlock.dispatch.prompts.schema import with_schema


def test_the_prompt_stands_first_and_the_schema_in_a_fence_after_it() -> None:
    assert with_schema("Do {this}.\r", '{"type":"object"}') == (
        "Do {this}.\r\n\n---\n"
        "Answer with one JSON value that fits the JSON Schema below, and with nothing else: no explanation, no code fence."
        '\n\n```json\n{"type":"object"}\n```\n'
    )


def test_a_schema_that_reads_like_the_place_for_it_is_put_in_once() -> None:
    assert with_schema("{schema}", '{"const":"{schema}"}').startswith("{schema}\n\n---\n")
    assert with_schema("x", '{"const":"{schema}"}').count('{"const":"{schema}"}') == 1
