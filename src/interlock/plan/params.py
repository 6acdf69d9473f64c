"""A run's parameters: typed by their declared schemas, completed by defaults, checked in one pass.

Guarantees: the result holds JSON values only and fits every schema; all faults are in one UsageError; the
value of a param that looks like a secret is never in an error text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from interlock.errors import UsageError
from interlock.model import canon
from interlock.model.plan import Param
from interlock.model.secret import named_secret, secret_keys
from interlock.plan.diagnose import Source, nearest, shown, suggest
from interlock.plan.scalars import to_json
from interlock.plan.schema_check import is_plain
from interlock.plan.yaml import compose

if TYPE_CHECKING:
    import jsonschema_rs

_HIDDEN: Final = "its value"
_TYPES: Final = {
    type(None): {"null"},
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    str: {"string"},
    list: {"array"},
}
_WORDS: Final = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "object": "a JSON object",
    "array": "a JSON list",
    "null": "null",
}
_LONGEST_ECHO: Final = 60
_WORD: Final = re.compile(r"[\w-]+")
_PLAINLY: Final = {**_TYPES, dict: {"object"}}
Values = dict[str, Any]


def coerce_params(
    params: Sequence[Param],
    cli: Sequence[tuple[str, str]] = (),
    file_values: Mapping[str, Any] | None = None,
    given: Mapping[str, Any] | None = None,
) -> Values:
    """Return the values of a run: `cli` over `given` over `file_values` over defaults. Raises UsageError."""
    declared = {param.name: param for param in params}
    unknown = [n for n in (*(file_values or {}), *(given or {}), *(name for name, _ in cli)) if n not in declared]
    misspelled = {nearest(name, declared) for name in unknown}
    faults = _unknown(unknown, declared)
    values: Values = {p.name: canon.loads(p.default_json) for p in params if p.default_json is not None}
    for part in (file_values or {}, given or {}):
        values.update((name, value) for name, value in part.items() if name in declared)
    misread: dict[str, list[str]] = {}
    for name, param in declared.items():
        texts = [text for key, text in cli if key == name]
        if texts:
            values[name] = _typed(param, texts, misread.setdefault(name, []))
    for param in params:
        if param.name in values or param.name not in misspelled:
            # what could not be read as what it has to be is said of the text, not of what was made of it
            faults += misread.get(param.name) or _check(param, values)
    if faults:
        raise _error(faults, declared)
    return {name: values[name] for name in declared if name in values}


def parse_params_file(text: bytes, file: str, params: Sequence[Param] = ()) -> Values:
    """Return the mapping that a params file holds, as JSON or YAML 1.2. Raises UsageError.

    Where a param of `params` wants text, YAML's source text is taken, so `1.10` stays what it looks like; null is null in
    both.
    """
    try:
        return _mapping(canon.loads(text.removeprefix(b"\xef\xbb\xbf")), file)
    except canon.NotJsonError as error:
        if text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and file.endswith(".json"):
            raise _unreadable(file, f"it is not JSON: {error}") from error
    return _mapping(_yaml(text, file, params), file)


def _yaml(text: bytes, file: str, params: Sequence[Param]) -> Any:  # noqa: ANN401 - any JSON value
    try:
        lines = text.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise _unreadable(file, f"it is not UTF-8 at byte {error.start}") from error
    source = Source(file, lines.split("\n"))
    node = compose(lines, source)
    schema = {"properties": {param.name: json.loads(param.schema_json) for param in params}}
    value = None if node is None else to_json(node, source, schema, null_is_text=False)
    found = [d for d in source.diagnostics() if d.severity == "error"]
    if found:
        where = f"line {found[0].line} column {found[0].column}"
        raise _unreadable(file, f"it is neither JSON nor YAML: {found[0].message} at {where}")
    return value


def _mapping(value: object, file: str) -> Values:
    if not isinstance(value, dict):
        raise _unreadable(file, "it must hold a mapping of param names to values")
    return value


def _unreadable(file: str, why: str) -> UsageError:
    hint = "write one `name: value` a line, or a JSON object"
    return UsageError("invalid-params-file", f"can't use the params file {file}: {why}", hint)


def _unknown(names: Sequence[str], declared: Mapping[str, Param]) -> list[str]:
    faults = []
    for name in dict.fromkeys(names):
        near = suggest(name, declared) if declared else "the workflow declares no params"
        faults.append(f"there is no param '{shown(name)}'" + (f" ({near.removesuffix('?')})" if near else ""))
    return faults


def _typed(param: Param, texts: Sequence[str], faults: list[str]) -> Any:  # noqa: ANN401 - any JSON value
    """Return what the texts given for a param mean by its schema."""
    schema = json.loads(param.schema_json)
    types = _types(schema)
    if "array" in types and (len(texts) > 1 or not texts[0].lstrip().startswith("[")):
        items = schema.get("items", {}) if isinstance(schema, dict) else {}
        return [_value(param, text, items, faults, f" at [{index}]") for index, text in enumerate(texts)]
    if len(texts) > 1:
        faults.append(f"param '{param.name}' was given {len(texts)} times, but it isn't a list")
    return _value(param, texts[-1], schema, faults)


def _value(param: Param, text: str, schema: object, faults: list[str], place: str = "") -> Any:  # noqa: ANN401 - any JSON value
    """Return `text` as the first of the schema's types that it is a literal of, else as text."""
    types = _types(schema)
    if types == {"string"}:
        return text
    cause = ""
    try:
        value = canon.loads(text)
    except canon.NotJsonError as error:
        cause, value = str(error), text
    if types and not cause and _type_of(value) & types:
        return value
    # of a choice the schema's own error lists what there is
    if isinstance(schema, dict) and "type" in schema and "string" not in types:
        faults.append(f"param '{param.name}'{place} must be {_wanted(types)}{_instead(param, text, cause)}")
    # without a word on types, text stays text where it may
    return value if not types and _fits(value, schema) and not _fits(text, schema) else text


def _wanted(types: set[str]) -> str:
    known = [words for name, words in _WORDS.items() if name in types]
    return " or ".join(known) or "of another type"


def _instead(param: Param, text: str, cause: str) -> str:
    """Say what was given: why it is no JSON where it was meant to be some, else the text itself."""
    if param.secret:
        return ""
    if cause and (text.lstrip()[:1] in {"{", "["} or len(text) > _LONGEST_ECHO):
        return f": {cause}"
    if any(map(named_secret, _WORD.findall(text))):
        return ""
    return f", not '{shown(text, _LONGEST_ECHO)}'"


def _types(schema: object) -> set[str]:
    """Return the JSON types that the schema names, by `type` or by the values it lists; empty if it names none."""
    if not isinstance(schema, dict):
        return set()
    named = schema.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return set(named)
    listed = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
    return set().union(*map(_type_of, listed)) if listed else set()


def _type_of(value: object) -> set[str]:
    if isinstance(value, float) and value.is_integer():
        return {"number", "integer"}
    return _TYPES.get(type(value), {"object"})


def _fits(value: object, schema: object) -> bool:
    return _validator(schema).is_valid(value)


def _validator(schema: Any, mask: str | None = None) -> jsonschema_rs.Draft202012Validator:  # noqa: ANN401 - any JSON Schema
    import jsonschema_rs  # noqa: PLC0415 - heavy, and not every run has a schema

    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True, mask=mask, offline=True)


def _check(param: Param, values: Values) -> list[str]:
    if param.name not in values:
        return [f"param '{param.name}' is required"] if param.required else []
    value = values[param.name]
    try:
        canon.dumps(value)
    except canon.NotJsonError as error:
        return [f"param '{param.name}' is not JSON: {error}"]
    schema = json.loads(param.schema_json)
    if is_plain(schema) and schema["type"] in _PLAINLY.get(type(value), ()):
        return []
    hidden = param.secret or any(secret_keys(param.name, value))
    errors = _validator(schema, _HIDDEN if hidden else None).iter_errors(value)
    return [f"param '{param.name}'{_inside(error)}: {shown(error.message, 200)}" for error in errors]


def _inside(error: jsonschema_rs.ValidationError) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
    return f" at {shown(path.lstrip('.'))}" if path else ""


def _error(faults: list[str], declared: Mapping[str, Param]) -> UsageError:
    missing = [name for name, param in declared.items() if f"param '{name}' is required" in faults]
    hint = f"give it with -p {missing[0]}=VALUE or --params-file FILE" if missing else ""
    if not hint and any(" is not JSON: " in fault for fault in faults):
        # paths, dates and dataclasses of Python, mostly
        hint = "make it of dict, list, str, int, float, bool and None"
    lead = "" if len(faults) == 1 else f"{len(faults)} faults in the params: "
    return UsageError("invalid-params", lead + "; ".join(faults), hint)
