"""Which schemas an API's own enforcement can be trusted with.

Enforcement wants closed objects. Closing an object that has named properties only narrows what the model may say;
closing a free-form one would leave it nothing but `{}`, so such schemas go into the prompt instead.
"""

from __future__ import annotations

from typing import Any, Final

_PLAIN: Final = frozenset({"type", "enum", "const", "title", "description", "default", "$ref", "format"})
_NESTED: Final = frozenset({"properties", "required", "additionalProperties", "items", "anyOf", "$defs"})


class _OpenError(Exception):
    """The schema cannot be stated in the strict subset."""


def closed(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema with every object closed; None where that is impossible or would change its sense."""
    try:
        found = _close(schema)
    except _OpenError:
        return None
    return found if found.get("type") == "object" else None


def requires_all(schema: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Tell whether every property of every object is required, as the strictest APIs want it."""
    if isinstance(schema, list):
        return all(requires_all(entry) for entry in schema)
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if isinstance(properties, dict) and set(properties) != set(schema.get("required", ())):
        return False
    return all(requires_all(entry) for entry in schema.values())


def _close(schema: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    if not isinstance(schema, dict) or not schema or set(schema) - _PLAIN - _NESTED:
        raise _OpenError
    found = {key: value for key, value in schema.items() if key in _PLAIN}
    found |= {key: _close_part(key, value) for key, value in schema.items() if key in _NESTED}
    if schema.get("type") == "object" or "properties" in schema:
        if not schema.get("properties") or schema.get("additionalProperties", False) not in (False, True):
            raise _OpenError
        if set(schema.get("required", ())) - set(schema["properties"]):
            raise _OpenError
        found["additionalProperties"] = False
    return found


def _close_part(key: str, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    match key:
        case "properties" | "$defs":
            return {name: _close(entry) for name, entry in value.items()}
        case "items":
            return _close(value)
        case "anyOf":
            return [_close(entry) for entry in value]
        case _:
            return value
