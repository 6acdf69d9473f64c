"""What a prompt asked for that its CLI cannot honour, a sentence each."""

from __future__ import annotations

from interlock.dispatch.agents.base import Ask, Card, Feature, Launch


def notices(card: Card, ask: Ask, launch: Launch) -> tuple[str, ...]:
    """Return the sentences: what the CLI never can, then what the adapter found out about this prompt."""
    name = f"engine `{ask.engine}` ({card.program})"
    never = [f"{name} cannot honour `{feature}`" for feature in _asked(ask) if feature in card.cannot]
    if ask.session is not None and not launch.continues_session:
        never.append(f"{name} cannot go on in a session; a new one was started")
    return (*never, *launch.notices)


def _asked(ask: Ask) -> list[Feature]:
    asked: dict[Feature, bool] = {
        "model": ask.model is not None,
        "base_url": ask.base_url is not None,
        "api_key": ask.api_key is not None,
        "temperature": ask.temperature is not None,
        "max_tokens": ask.max_tokens is not None,
        "extra_params": ask.extra_params_json not in {"", "{}"},
    }
    return [feature for feature, wanted in asked.items() if wanted]
