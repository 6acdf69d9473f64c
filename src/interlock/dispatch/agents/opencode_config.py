"""What opencode is told beyond its arguments, the same for `opencode run` and `opencode serve`.

It goes through a variable, so nothing is written into the user's folders and the user's own configuration stands
wherever this says nothing: permissions above all. Guarantee: the key is named there, never written there.
"""

from __future__ import annotations

import json
from typing import Any, Final

from interlock.dispatch.agents.base import Ask
from interlock.dispatch.agents.jsonl import parse

CONTENT: Final = "OPENCODE_CONFIG_CONTENT"
_KEY: Final = "INTERLOCK_API_KEY"
_OWN_PROVIDER: Final = "interlock"
_COMPATIBLE: Final = "@ai-sdk/openai-compatible"


def provider_and_model(ask: Ask) -> tuple[str, str] | None:
    """Return the two halves of the model's name; a plain name belongs to the endpoint at `base_url`."""
    if ask.model is None:
        return None
    provider, slash, model = ask.model.partition("/")
    if not slash or (ask.base_url is not None and provider not in _KNOWN):
        return (_OWN_PROVIDER, ask.model) if ask.base_url is not None else ("", ask.model)
    return provider, model


_KNOWN: Final = frozenset({"anthropic", "google", "groq", "mistral", "openai", "openrouter", "xai"})
"""Providers that opencode brings along, whose endpoint `base_url` replaces."""


def environment(ask: Ask) -> dict[str, str]:
    """Return the variables to add."""
    env = {CONTENT: json.dumps(_config(ask)), "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    if ask.base_url is not None:
        # all that would be fetched is a list of models, and the one asked for is declared here
        env["OPENCODE_DISABLE_MODELS_FETCH"] = "1"
    if ask.api_key is not None:
        env[_KEY] = ask.api_key
    return env


def _config(ask: Ask) -> dict[str, Any]:
    given = parse(ask.env.get(CONTENT, "").encode("utf-8", "replace"))
    config: dict[str, Any] = given if isinstance(given, dict) else {}
    config |= {"autoupdate": False, "share": "disabled"}
    named = provider_and_model(ask)
    if named is None:
        return config
    provider, model = named
    # titles and summaries would go to another model, and to another provider's account
    config["small_model"] = config["model"] = f"{provider}/{model}" if provider else model
    own = _provider(ask, provider, model)
    if provider and own:
        others = config.get("provider")
        config["provider"] = (others if isinstance(others, dict) else {}) | {provider: own}
    return config


def _provider(ask: Ask, provider: str, model: str) -> dict[str, Any]:
    options = {}
    if ask.base_url is not None:
        options["baseURL"] = ask.base_url
    if ask.api_key is not None:
        options["apiKey"] = f"{{env:{_KEY}}}"
    own: dict[str, Any] = {"options": options} if options else {}
    if ask.base_url is not None:
        own["models"] = {model: {}}
    if provider == _OWN_PROVIDER:
        own["npm"] = _COMPATIBLE
    return own
