"""LLM APIs: OpenAI-compatible, Anthropic and Gemini, through their official SDKs, which are an extra."""

from __future__ import annotations

from interlock.dispatch.llm.engines import Ending, Lines, LlmEngines

__all__ = ["Ending", "Lines", "LlmEngines"]
