"""What an answer cost, by a maintained list of prices; what the list does not know stays unknown.

Guarantee: None rather than a guess: an unknown model, an endpoint of one's own, a list that is not installed.
"""

from __future__ import annotations

import contextlib
from typing import Final

from interlock.dispatch.llm.base import Reply

_PROVIDERS: Final = {"openai": "openai", "anthropic": "anthropic", "gemini": "google"}


def load_prices() -> None:
    """Load the list now, so that no call waits for it."""
    with contextlib.suppress(ImportError):
        import genai_prices  # noqa: F401, PLC0415 - an extra, and slow to load


def cost_usd(driver: str, base_url: str | None, model: str, reply: Reply) -> float | None:
    """Return the price of the answer in US dollars."""
    usage = reply.usage
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    try:
        import genai_prices  # noqa: PLC0415 - an extra, and slow to load
    except ImportError:
        return None
    counts = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=reply.cache_write_tokens,
    )
    try:
        if base_url is None:
            price = genai_prices.calc_price(counts, reply.model or model, provider_id=_PROVIDERS.get(driver))
        else:
            price = genai_prices.calc_price(counts, reply.model or model, provider_api_url=base_url)
    except (LookupError, ValueError):
        return None
    return float(price.total_price)
