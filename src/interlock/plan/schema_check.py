"""JSON Schema 2020-12 written in YAML -> the schema as JSON, checked.

Guarantees: unknown keywords and formats, schemas that the meta-schema refuses, bad patterns and references
that leave the document or lead nowhere are reported at their place; what passes compiles. Texts keep their
source form where the schema wants text (`enum: [1.10]` beside `type: string`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, UnsetType

from interlock.model.workflow import Place
from interlock.plan.diagnose import Source, did_you_mean, shown, suggest
from interlock.plan.scalars import describe, resolve, to_json
from interlock.plan.yaml import Mapping, Node, Scalar, Sequence

if TYPE_CHECKING:
    import jsonschema_rs

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_ONE: Final = frozenset(
    [
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
_MANY: Final = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
_NAMED: Final = frozenset(["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"])
_TEXT: Final = frozenset(
    [
        "$anchor",
        "$comment",
        "$dynamicAnchor",
        "$dynamicRef",
        "$id",
        "$ref",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "description",
        "format",
        "pattern",
        "title",
    ]
)
_TEXTS: Final = frozenset(["dependentRequired", "required", "type"])
_LIKE_VALUE: Final = frozenset(["const", "default"])
_LIKE_VALUES: Final = frozenset(["enum", "examples"])
_OTHER: Final = frozenset(
    [
        "$vocabulary",
        "deprecated",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxContains",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minContains",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "readOnly",
        "uniqueItems",
        "writeOnly",
    ]
)
KEYWORDS: Final = tuple(sorted(_ONE | _MANY | _NAMED | _TEXT | _TEXTS | _LIKE_VALUE | _LIKE_VALUES | _OTHER))
FORMATS: Final = (
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "idn-email",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
)
_ANY_TEXT: Final = {
    "type": "string",
    "items": {"type": "string"},
    "additionalProperties": {"items": {"type": "string"}},
}

Path = tuple[str | int, ...]


def read_schema(source: Source, node: Node, what: str) -> Any | UnsetType:  # noqa: ANN401 - a schema is any JSON object
    """Return the schema at `node` as JSON, or UNSET when it is not one; then it was reported."""
    if isinstance(node, Scalar) and isinstance(_value(node), bool):
        return resolve(node)
    if not isinstance(node, Mapping):
        source.error(
            node.place, "wrong-type", f"{what} must be a JSON Schema, not {describe(node)}", "write { type: ... }"
        )
        return UNSET
    walk = _Walk(source)
    schema = walk.schema(node, ())
    if not walk.faults and is_plain(schema):
        return schema
    walk.report_refused(schema, what)
    walk.report_references(schema)
    if not walk.faults:
        walk.report_uncompiled(schema, what)
    return UNSET if walk.faults else schema


def is_plain(schema: object) -> bool:
    """Tell whether a schema names one type and nothing else: to judge it and by it takes no validator, heavy to load."""
    return isinstance(schema, dict) and len(schema) == 1 and schema.get("type") in TYPES


@cache
def _meta() -> jsonschema_rs.Draft202012Validator:
    import jsonschema_rs  # noqa: PLC0415 - heavy, and not every run has a schema

    return jsonschema_rs.Draft202012Validator({"$ref": DIALECT}, validate_formats=True)


def compiled(schema: Any) -> jsonschema_rs.Draft202012Validator:  # noqa: ANN401 - any JSON Schema
    """Return the validator of a schema that `read_schema` passed: formats asserted, nothing fetched."""
    import jsonschema_rs  # noqa: PLC0415 - heavy, and not every run has a schema

    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True, ignore_unknown_formats=False, offline=True)


class _Walk:
    """One schema's conversion, with the place of every part."""

    def __init__(self, source: Source) -> None:
        self.faults = 0
        self._source = source
        self._places: dict[Path, Place] = {}
        self._references: list[tuple[Path, str]] = []
        self._anchors: set[str] = set()
        self._has_ids = False

    def schema(self, node: Node, path: Path) -> Any:  # noqa: ANN401 - any JSON value, the meta-schema judges it
        """Convert a subschema."""
        self._places[path] = node.place
        if not isinstance(node, Mapping):
            return to_json(node, self._source)
        found: dict[str, Any] = {}
        kind = node.get("type")
        wants_text = isinstance(kind, Scalar) and kind.text == "string"
        for entry in node.entries:
            key, here = entry.key.text, (*path, entry.key.text)
            self._places[here] = entry.value.place if isinstance(entry.value, Scalar) else entry.key.place
            if key not in KEYWORDS:
                self._fault(
                    entry.key.place,
                    "unknown-keyword",
                    f"'{shown(key)}' is not a JSON Schema keyword",
                    suggest(key, KEYWORDS),
                )
            else:
                found[key] = self._keyword(key, entry.value, here, wants_text=wants_text)
        self._note(found, path)
        return found

    def _keyword(self, key: str, node: Node, path: Path, *, wants_text: bool) -> Any:  # noqa: ANN401 - as above
        if key in _ONE:
            return self.schema(node, path)
        if key in _MANY and isinstance(node, Sequence):
            return [self.schema(item, (*path, index)) for index, item in enumerate(node.items)]
        if key in _NAMED and isinstance(node, Mapping):
            return {e.key.text: self.schema(e.value, (*path, e.key.text)) for e in node.entries}
        self._place_all(node, path)
        return to_json(node, self._source, _wanted(key, node, wants_text=wants_text))

    def _place_all(self, node: Node, path: Path) -> None:
        if isinstance(node, Sequence):
            for index, item in enumerate(node.items):
                self._places[(*path, index)] = item.place

    def _note(self, schema: dict[str, Any], path: Path) -> None:
        for key in ("$ref", "$dynamicRef"):
            if isinstance(schema.get(key), str):
                self._references.append(((*path, key), schema[key]))
        self._anchors.update(str(schema[key]) for key in ("$anchor", "$dynamicAnchor") if key in schema)
        self._has_ids = self._has_ids or "$id" in schema
        if (form := schema.get("format")) is not None and form not in FORMATS:
            self._fault(
                self._places[(*path, "format")],
                "unknown-format",
                f"unknown format '{shown(str(form))}'",
                suggest(str(form), FORMATS),
            )
        if schema.get("$schema", DIALECT) != DIALECT:
            place = self._places[(*path, "$schema")]
            self._fault(
                place,
                "other-dialect",
                "schemas here are JSON Schema 2020-12",
                f"remove '$schema', or write '{DIALECT}'",
            )

    def _fault(self, place: Place, code: str, message: str, hint: str = "") -> None:
        self.faults += 1
        self._source.error(place, code, message, hint)

    def place(self, path: Path) -> Place:
        """Return the place of `path`, else of the nearest part that holds it."""
        while path not in self._places:
            path = path[:-1]
        return self._places[path]

    def report_refused(self, schema: Any, what: str) -> None:  # noqa: ANN401 - as above
        """Report what the meta-schema refuses."""
        # a keyword can be refused by several vocabularies; the first refusal of a place says enough
        refused = {tuple(error.instance_path): error for error in reversed(list(_meta().iter_errors(schema)))}
        for path, error in refused.items():
            message, hint = _refusal(path, error)
            self._fault(self.place(path), "bad-schema", f"{what}: {message}", hint)

    def report_references(self, schema: Any) -> None:  # noqa: ANN401 - as above
        """Report references that leave the document or lead nowhere; with an `$id`, compiling must tell."""
        if self._has_ids:
            return
        for path, reference in self._references:
            if not reference.startswith("#"):
                hint = "put the schema under '$defs' and write '#/$defs/<name>'"
                message = f"'{shown(reference)}' is outside of this document"
                self._fault(self.place(path), "foreign-reference", message, hint)
            elif not _leads_somewhere(schema, reference[1:], self._anchors):
                hint = did_you_mean(reference, [f"#/$defs/{name}" for name in schema.get("$defs", ())])
                self._fault(self.place(path), "dead-reference", f"'{shown(reference)}' leads nowhere", hint)

    def report_uncompiled(self, schema: Any, what: str) -> None:  # noqa: ANN401 - as above
        """Report what only compiling finds, such as a reference from one `$id` to another."""
        try:
            compiled(schema)
        except ValueError as error:
            text = str(error).split("\n", 1)[0]
            at = next((path for path, reference in self._references if reference.lstrip("#") in text), ())
            self._fault(self.place(at), "bad-schema", f"{what}: {shown(text, 200)}")


def _wanted(key: str, node: Node, *, wants_text: bool) -> object:
    """Return a schema that says where text is wanted in the value of `key`."""
    if key in _TEXT or (key in _TEXTS and not (key == "required" and isinstance(node, Scalar))):
        return _ANY_TEXT
    if wants_text and key in _LIKE_VALUE:
        return {"type": "string"}
    return {"items": {"type": "string"}} if wants_text and key in _LIKE_VALUES else None


def _leads_somewhere(schema: Any, fragment: str, anchors: set[str]) -> bool:  # noqa: ANN401 - any JSON value
    if not fragment.startswith("/"):
        return not fragment or fragment in anchors
    for part in fragment[1:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict) and name in schema:
            schema = schema[name]
        elif isinstance(schema, list) and name.isdecimal() and name.isascii() and int(name[:9]) < len(schema):
            schema = schema[int(name)]
        else:
            return "%" in name
    return True


def _refusal(path: Path, error: jsonschema_rs.ValidationError) -> tuple[str, str]:
    keyword = next((part for part in reversed(path) if isinstance(part, str)), "")
    found = error.instance
    words = [word for word in (found if isinstance(found, list) else [found]) if word not in TYPES]
    if keyword == "type" and words and isinstance(words[0], str):
        return f"'{shown(words[0])}' is no JSON type", suggest(words[0], TYPES)
    if error.message.endswith('is not of types "boolean", "object"'):
        return "a JSON Schema must stand here", "write { type: ... }"
    if keyword == "required" and isinstance(found, bool):
        return "'required' is a list of names", "list the names beside 'properties': required: [name]"
    if error.message.endswith('is not a "regex"'):
        return f"'{shown(str(found))}' is not a regular expression", ""
    return shown(error.message, 200), ""


def _value(node: Scalar) -> object:
    return {"true": True, "false": False}.get(node.text) if node.plain else None
