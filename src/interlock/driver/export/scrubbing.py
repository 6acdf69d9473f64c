"""What must not leave the journal with an export: values of params that look like secrets, and what gives them away.

Guarantees: a value is gone in every spelling that is searched for in a run, from every column, artifact and log; a default
in a plan is blanked, and so is a param that a run above gave such a value; a hash that was made over a hidden value is replaced, since a short value can be guessed from it,
and one of what is still there whole is kept. A run without such params comes back byte for byte.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from interlock.dispatch.env.redact import PatternRedactor
from interlock.model import canon
from interlock.model.canon import item_digest, sha256
from interlock.model.secret import secret_texts, without_secrets

HASH_HIDDEN: Final = "sha256:redacted"
DIGEST_HIDDEN: Final = re.compile(r":redacted-[0-9]+")
"""Within a unit's id: what stands for the digest of an item that holds a hidden value."""
_HASH: Final = re.compile(r"sha256(?:\.v[0-9]+)?:([0-9a-f]{64})")
_DIGEST: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])")
_DIGEST_BYTES: Final = re.compile(_DIGEST.pattern.encode())
_WORDS: Final = frozenset(
    {"id", "state", "kind", "reason", "outcome", "verdict", "type", "stages", "code", "name", "dispatch", "holder"}
)
"""Columns of interlock's own words and ids: a secret that happens to be spelled so is no secret there."""


class RunSecrets(msgspec.Struct, frozen=True):
    """Of one run: its secret params, each with its default's JSON if it has one, and the values of all params."""

    secret: tuple[tuple[str, str | None], ...]
    params: dict[str, Any]
    within_defaults: tuple[tuple[str, str], ...] = ()
    """What keys that look like secrets hold in the defaults of the other params, with their paths."""


def secrets_of(plan: bytes, params: bytes) -> RunSecrets:
    """Read them from what is stored, plans within the plan included. Raises NotJsonError."""
    found = canon.loads(plan)
    return RunSecrets(tuple(_secret_params(found)), canon.loads(params), tuple(_within_defaults(found)))


def _within_defaults(value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict) and isinstance(value.get("default_json"), str) and value.get("secret") is not True:
        name = str(value.get("name"))
        yield from secret_texts((), {name: canon.loads(value["default_json"])})
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _within_defaults(entry)


def _secret_params(value: Any) -> Iterator[tuple[str, str | None]]:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict) and value.get("secret") is True and isinstance(value.get("name"), str):
        yield value["name"], value.get("default_json")
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _secret_params(entry)


def handed_down(plan: bytes, step_id: str, secret: frozenset[str]) -> frozenset[str]:
    """Return the params of a step's child runs that take what they hold from secret params of the run above."""
    found = canon.loads(plan)
    steps = found.get("steps", ()) if isinstance(found, dict) else ()
    step = next((step for step in steps if isinstance(step, dict) and step.get("id") == step_id), {})
    over = (step.get("map") or {}).get("over") or {}
    roots = {"params", "item"} if over.get("root") == "params" and over.get("name") in secret else {"params"}
    return frozenset(
        binding["name"]
        for binding in (step.get("target") or {}).get("bindings", ())
        for ref in (hole["ref"] for hole in binding.get("holes", ()))
        if ref["root"] in roots and (ref["root"] == "item" or ref["name"] in secret)
    )


class Scrubber:
    """Hides what the runs' secret params hold."""

    def __init__(self, runs: Iterable[RunSecrets]) -> None:
        pairs: set[tuple[str, str]] = set()
        names: set[str] = set()
        for run in runs:
            secret = {name for name, _ in run.secret}
            given = [(name, value) for name, value in run.params.items() if name in secret]
            defaults = [(name, canon.loads(text)) for name, text in run.secret if text is not None]
            for name, value in (*given, *defaults):
                names.add(name)
                pairs.update(secret_texts((name,), {name: value}))
            nested = secret_texts((), {name: value for name, value in run.params.items() if name not in secret})
            pairs.update(nested + list(run.within_defaults))
            names.update(path for path, _ in (*nested, *run.within_defaults))
        self._redactor = PatternRedactor(sorted(pairs))
        self.active: Final = bool(names)
        self.names: Final = tuple(sorted(names))
        self.too_short: Final = tuple(sorted(set(self._redactor.short_names)))
        self._kept: set[bytes] = set()
        self._moved: dict[str, str] = {}
        self._digests: dict[str, str] = {}
        self._plans: dict[str, str] = {}

    # what is known before the first row

    def know_item(self, item: bytes) -> None:
        """Learn whether the digest in a unit's id gives its item away."""
        if self._redactor.json(item) != item:
            self._digests.setdefault(item_digest(item), f"redacted-{len(self._digests) + 1}")

    def know(self, content: bytes) -> tuple[str, int]:
        """Learn the hash of an artifact or result; return hash and size of what is shown of it."""
        clean = self.json(content)
        if clean == content:
            own = hashlib.sha256(content)
            self._kept.add(own.digest())
            return f"sha256:{own.hexdigest()}", len(content)
        shown = sha256(clean)
        self._moved[hashlib.sha256(content).hexdigest()] = shown
        self.keep(shown)
        return shown, len(clean)

    def keep(self, tagged: str) -> None:
        """Let this hash stand."""
        self._kept.add(bytes.fromhex(tagged.rpartition(":")[2]))

    def plan(self, plan: bytes) -> bytes:
        """Return the plan with the defaults of secret params blanked; canonical JSON."""
        clean = _without_defaults(canon.loads(plan))
        found = self._redactor.json(canon.dumps(clean))
        if found == plan:
            self.keep(sha256(plan))
            return plan
        value = canon.loads(found)
        if isinstance(value, dict) and "source_sha256" in value:
            # the workflow file holds the default too
            value["source_sha256"] = HASH_HIDDEN
        found = self._without_keys(canon.loads(plan), value)
        self._moved[hashlib.sha256(plan).hexdigest()] = sha256(found)
        return found

    def _without_keys(self, plan: Any, shown: Any) -> bytes:  # noqa: ANN401 - any JSON value
        """Give the embedded plans that are not what they were other keys: a key is a hash of the plan, defaults and all."""
        children = shown.get("children", {}) if isinstance(shown, dict) else {}
        changed = {key for key, child in children.items() if child != plan["children"][key]}
        for key in changed:
            if "source_sha256" in children[key]:
                children[key]["source_sha256"] = HASH_HIDDEN
        texts = {key: canon.dumps(child).decode() for key, child in children.items()}
        size = -1
        while size != len(changed):
            # who embeds what is hidden has a key that is made of its key
            size = len(changed)
            changed |= {key for key, text in texts.items() if any(other in text for other in changed)}
        text = canon.dumps(shown).decode()
        for key in sorted(changed):
            text = text.replace(key, self._plans.setdefault(key, f"{HASH_HIDDEN}-{len(self._plans) + 1}"))
        return canon.dumps(canon.loads(text))

    def params(self, params: bytes, handed: Iterable[str] = ()) -> bytes:
        """Return the params with secret ones blanked whole, however short, and those that were `handed` such a value."""
        secret = {*self.names, *handed}
        values: dict[str, Any] = canon.loads(params)
        blank = {
            name: f"[redacted:{name}]" if name in secret else without_secrets(name, value)
            for name, value in values.items()
        }
        clean = self._redactor.json(canon.dumps(blank))
        self._moved[hashlib.sha256(params).hexdigest()] = sha256(clean)
        return clean

    # what a row may say

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row as it may be shown."""
        return {name: self._value(name, value) for name, value in row.items()}

    def _value(self, name: str, value: Any) -> Any:  # noqa: ANN401 - what a column holds
        if isinstance(value, bytes):
            return self.json(value)
        if not isinstance(value, str) or not value:
            return value
        if name in _WORDS:
            return self._hashes(value)
        raw = value.encode()
        # text that is no JSON comes back as text
        return self._hashes((self._redactor.json(raw) if name == "data" else self._redactor.text(raw)).decode())

    def json(self, content: bytes) -> bytes:
        """Return content as it may be shown: JSON stays JSON. Hashes in it are the author's own."""
        clean = self._redactor.json(content)
        return _DIGEST_BYTES.sub(self._digest, clean) if self._digests else clean

    def _digest(self, found: re.Match[bytes]) -> bytes:
        return self._digests.get(found[0].decode(), found[0].decode()).encode()

    def _hashes(self, text: str) -> str:
        if "sha256" in text:
            text = _HASH.sub(self._hash, text)
        return _DIGEST.sub(lambda found: self._digests.get(found[0], found[0]), text) if self._digests else text

    def _hash(self, found: re.Match[str]) -> str:
        own = found[1]
        if own in self._moved:
            return self._moved[own]
        return found[0] if bytes.fromhex(own) in self._kept else HASH_HIDDEN

    def mask(self, data: bytes) -> bytes:
        """Return as many bytes, with stars for what is hidden."""
        parts, done = [], 0
        for start, end, _ in self._redactor.spans(data):
            parts += [data[done:start], b"*" * (end - start)]
            done = end
        clean = b"".join((*parts, data[done:]))
        return _DIGEST_BYTES.sub(self._starred, clean) if self._digests else clean

    def _starred(self, found: re.Match[bytes]) -> bytes:
        return b"*" * len(found[0]) if found[0].decode() in self._digests else found[0]


def _without_defaults(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Blank the default of every param that looks like a secret, in embedded plans too."""
    if isinstance(value, list):
        return [_without_defaults(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    found = {name: _without_defaults(entry) for name, entry in value.items()}
    if found.get("secret") is True and found.get("default_json") is not None:
        found["default_json"] = canon.dumps(f"[redacted:{found.get('name')}]").decode()
    elif isinstance(default := found.get("default_json"), str):
        held = canon.loads(default)
        shown = without_secrets(str(found.get("name")), held)
        found["default_json"] = default if shown == held else canon.dumps(shown).decode()
    return found
