"""What a prompt's engine needs of the environment: the values of `env:` and its key, and how to hide both.

Guarantee: a key is looked for only under the name that the configuration gives (for an API's own official endpoint
also under the API's own), so that no key is sent to an endpoint that it was not meant for.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from interlock.dispatch.base import EngineSettings
from interlock.dispatch.env.redact_base import MIN_LENGTH, EnvUnresolvedError, Redactor, ResolvedEnv, StreamRedactor
from interlock.model.plan import KEY_OF_API


class Keyed(msgspec.Struct, frozen=True):
    """A resolved environment whose redactor also knows `key`, the engine's key."""

    env: ResolvedEnv
    key: str | None


def key_name(settings: EngineSettings) -> str | None:
    """Return the name of the variable that holds the engine's key, if it takes one."""
    if settings.api_key is None and settings.kind == "llm" and settings.base_url is None:
        return KEY_OF_API.get(settings.driver)
    return settings.api_key


def with_key(settings: EngineSettings, env: ResolvedEnv, environ: Mapping[str, str]) -> Keyed:
    """Find the engine's key. Raises EnvUnresolvedError that names variable and engine."""
    name = key_name(settings)
    if name is None:
        return Keyed(env, None)
    # an env group may bring the key, by a secret's command for example
    key = env.values.get(name) or environ.get(name)
    if not key:
        raise EnvUnresolvedError(
            "env-unresolved",
            f"the key of engine `{settings.name}` cannot be had: the variable {name} is not set; set it before you start "
            f"interlock, or change `api_key` in [engines.{settings.name}]",
            f"set {name} before you start interlock, or change `api_key` in [engines.{settings.name}]",
        )
    from interlock.dispatch.env.redact import PatternRedactor  # noqa: PLC0415 - a run of commands asks only for names

    own = PatternRedactor({name: key})
    warnings = tuple(
        f"the value of {short} is shorter than {MIN_LENGTH} characters, so it cannot be redacted"
        for short in own.short_names
    )
    both = ResolvedEnv(env.values, _Both(env.redactor, own), (*env.names, name), (*env.warnings, *warnings))
    return Keyed(both, key)


class _Both:
    """Two redactors, one after the other."""

    def __init__(self, first: Redactor, second: Redactor) -> None:
        self._first, self._second = first, second

    def stream(self) -> StreamRedactor:
        """Start a stream through both."""
        return _BothStreams(self._first.stream(), self._second.stream())

    def text(self, data: bytes, /) -> bytes:
        """Redact a whole text at once."""
        return self._second.text(self._first.text(data))

    def json(self, data: bytes, /) -> bytes:
        """Redact what may be read as JSON."""
        return self._second.json(self._first.json(data))


class _BothStreams:
    def __init__(self, first: StreamRedactor, second: StreamRedactor) -> None:
        self._first, self._second = first, second

    def feed(self, data: bytes, /) -> bytes:
        """Take the next piece."""
        return self._second.feed(self._first.feed(data))

    def flush(self) -> bytes:
        """End the stream."""
        return self._second.feed(self._first.flush()) + self._second.flush()
