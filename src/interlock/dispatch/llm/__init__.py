"""LLM APIs: OpenAI-compatible, Anthropic and Gemini, through their official SDKs, which are an extra."""

from __future__ import annotations

from interlock.dispatch.llm.engines import KEY_VARIABLES, Ending, Lines, LlmEngines

__all__ = ["KEY_VARIABLES", "Ending", "Lines", "LlmEngines"]
