"""`params:` of a workflow -> declared params.

Guarantees: names are distinct even as `INTERLOCK_PARAM_<NAME>`, each declaration is a checked JSON Schema, a
default fits it, and a param that looks like a secret is marked so that it is never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import UNSET

from interlock.model.canon import dumps, loads
from interlock.model.plan import Param
from interlock.model.secret import named_secret, secret_keys
from interlock.plan import fields as f
from interlock.plan.diagnose import Source, shown
from interlock.plan.refs import PARAM_NAME
from interlock.plan.scalars import to_json
from interlock.plan.schema_check import compiled, read_schema
from interlock.plan.yaml import Entry, Mapping, Node, Scalar

_OWN: Final = ("default", "description")
_GUARDED_TEXT: Final = r"\b(secret|password|passphrase|credential|api[ -]?key|private key|access token)s?\b"


def read_params(source: Source, node: Node, what: str) -> tuple[Param, ...]:
    """Return the params declared at `node`, reporting every fault."""
    declared = f.mapping(source, node, what)
    if declared is UNSET:
        return ()
    found: dict[str, Param] = {}
    for entry in declared.entries:
        name = entry.key.text
        if not PARAM_NAME.fullmatch(name):
            hint = "start with a letter or '_', go on with letters, digits and '_'"
            source.error(entry.key.place, "bad-name", f"'{shown(name)}' cannot be the name of a param", hint)
            continue
        twin = next((other for other in found if other.upper() == name.upper()), None)
        if twin is not None:
            message = f"the params '{twin}' and '{name}' differ in case alone"
            source.error(entry.key.place, "duplicate-param", message, f"both would be INTERLOCK_PARAM_{name.upper()}")
        found[name] = _param(source, entry)
    return tuple(found.values())


def _param(source: Source, entry: Entry) -> Param:
    name, node = entry.key.text, entry.value
    if not isinstance(node, Mapping):
        f.wrong(source, node, f"the param '{name}'", "a mapping", "write { type: string, default: ... }")
        return Param(name=name)
    own = {key: node.get(key) for key in _OWN}
    required = _flag(source, node)
    rest = tuple(
        e for e in node.entries if e.key.text not in _OWN and not (required is not None and e.key.text == "required")
    )
    schema = read_schema(source, Mapping(node.place, rest), f"the param '{name}'")
    described = f.text(source, own["description"], "'description'") if own["description"] else UNSET
    description = "" if described is UNSET else described
    param = Param(
        name=name,
        schema_json="{}" if schema is UNSET else dumps(schema).decode(),
        required=bool(required),
        description=description,
        secret=_looks_secret(name, description),
    )
    if param.secret:
        hint = "params are kept in the journal; pass secrets by 'env' instead"
        source.warning(entry.key.place, "secret-param", f"the param '{name}' looks like a secret", hint)
    param = _with_default(source, param, own["default"], schema)
    for path in () if param.secret else _secret_paths(param):
        hint = "params are kept in the journal; pass secrets by 'env' instead"
        source.warning(entry.key.place, "secret-param", f"'{shown(path)}' looks like a secret", hint)
    return param


def _secret_paths(param: Param) -> Iterable[str]:
    """Return what looks like a secret within the param, by its schema and its default."""
    declared = _declared(param.name, loads(param.schema_json))
    given = () if param.default_json is None else secret_keys(param.name, loads(param.default_json))
    return dict.fromkeys((*declared, *given))


def _declared(name: str, schema: Any) -> Iterator[str]:  # noqa: ANN401 - a JSON Schema
    """Yield the paths of properties that look like secrets, in objects and in items of lists."""
    if not isinstance(schema, dict):
        return
    properties = schema.get("properties")
    for key, entry in properties.items() if isinstance(properties, dict) else ():
        path = f"{name}.{key}"
        yield from (path,) if named_secret(key) else _declared(path, entry)
    yield from _declared(name, schema.get("items"))


def _flag(source: Source, node: Mapping) -> bool | None:
    """Return `required: true|false` of the param itself; a list belongs to the schema of an object."""
    written = node.get("required")
    if written is None or not isinstance(written, Scalar):
        return None
    flag = f.boolean(source, written, "'required'")
    return False if flag is UNSET else flag


def _with_default(source: Source, param: Param, node: Node | None, schema: Any) -> Param:  # noqa: ANN401 - a JSON Schema
    if node is None:
        return param
    if param.required:
        message = f"the param '{param.name}' is required, so its default is never used"
        source.warning(node.place, "useless-default", message, "remove 'required' or 'default'")
    if schema is UNSET:
        return param
    before = source.count
    default = to_json(node, source, schema)
    if source.count > before:
        return param
    refusal = next(iter(compiled(schema).iter_errors(default)), None)
    if refusal is not None:
        message = f"the default of '{param.name}' does not fit: {shown(refusal.message, 200)}"
        source.error(node.place, "bad-default", message)
    return msgspec.structs.replace(param, default_json=dumps(default).decode())


def _looks_secret(name: str, description: str) -> bool:
    return named_secret(name) or re.search(_GUARDED_TEXT, description.casefold()) is not None
