"""What looks like a secret within a param is warned of when the workflow is compiled, and not shown by an error."""

from __future__ import annotations

import pytest

from interlock.errors import UsageError
from interlock.model.plan import Param
from interlock.plan.compile import compile_workflow
from interlock.plan.params import coerce_params


def test_keys_of_a_param_that_look_like_secrets_are_warned_of_by_schema_and_default() -> None:
    text = """---
params:
  cfg:
    type: object
    properties: { host: { type: string }, users: { type: array, items: { type: object, properties: { apiKey: {} } } } }
    default: { host: here, password: hunter2 }
steps: [{ id: a, run: x }]
---
"""
    told = [(found.code, found.message, found.hint) for found in compile_workflow(text.encode(), "flow.md").diagnostics]
    hint = "params are kept in the journal; pass secrets by 'env' instead"
    assert told == [
        ("secret-param", "'cfg.password' looks like a secret", hint),
        ("secret-param", "'cfg.users.apiKey' looks like a secret", hint),
    ]


def test_an_error_about_a_param_shows_nothing_of_what_such_a_key_holds() -> None:
    schema = '{"properties":{"password":{"minLength":20,"type":"string"}},"type":"object"}'
    with pytest.raises(UsageError) as caught:
        coerce_params((Param(name="cfg", schema_json=schema),), [], {}, {"cfg": {"password": "hunter2-hunter2"}})
    assert "hunter2" not in caught.value.message
    assert caught.value.message.startswith("param 'cfg' at password: ")


@pytest.mark.parametrize("text", ['[{"password": "hunter2"}]', '[[{"apiKey": 12345678}]]', "password: hunter2"])
@pytest.mark.parametrize(("kind", "wanted"), [("object", "a JSON object"), ("integer", "a whole number")])
def test_nor_does_one_about_a_text_that_is_not_what_it_has_to_be(text: str, kind: str, wanted: str) -> None:
    with pytest.raises(UsageError) as caught:
        coerce_params((Param(name="cfg", schema_json=f'{{"type":"{kind}"}}'),), [("cfg", text)])
    assert caught.value.message == f"param 'cfg' must be {wanted}"
