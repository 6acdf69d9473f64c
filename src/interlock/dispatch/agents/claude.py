"""Claude Code: `claude -p` with JSON lines on stdout.

The session's id is ours, so a second start of the same attempt is refused by Claude itself. A failed call comes as
`subtype: success` with `is_error`; totals of a continued session are those of its whole life, so what this prompt
cost is read from what was added since the last result. Measured with 2.1.332.
"""

from __future__ import annotations

from typing import Final

import msgspec

from interlock.dispatch.agents import messages, slash
from interlock.dispatch.agents.base import Answer, Ask, Card, Launch, Reply
from interlock.dispatch.agents.endings import failed, unfinished
from interlock.dispatch.agents.faults import status_in
from interlock.dispatch.agents.jsonl import Event, count_at, dig, events, text_at, total
from interlock.dispatch.agents.messages import Seen, see
from interlock.model.events import Usage
from interlock.model.states import Reason

_CARD: Final = Card(
    program="claude",
    enforces_schema=True,
    cannot=frozenset({"temperature", "extra_params"}),
    caveats=(
        'edits files in the working directory; commands that change things take `args = ["--allowedTools", "Bash"]`',
        "`Retry-After` is not shown by the CLI: rate limits wait for the step's own backoff",
    ),
)
_MODES: Final = ("--permission-mode", "--dangerously-skip-permissions")
_CUT: Final = frozenset({"max_output_tokens"})


class Claude:
    """The adapter."""

    card = _CARD

    def launch(self, ask: Ask) -> Launch:
        """Start it on the prompt, in a new session of a known id or in the one asked for."""
        session = ("--session-id", ask.new_session) if ask.session is None else ("--resume", ask.session)
        model = () if ask.model is None else ("--model", ask.model)
        schema = () if ask.schema_json is None else ("--json-schema", ask.schema_json)
        as_json = ("--input-format", "stream-json") if slash.is_command(ask.prompt) else ()
        return Launch(
            argv=(
                *ask.program(self.card),
                *("-p", "--output-format", "stream-json", "--verbose"),
                *as_json,
                *model,
                *session,
                *schema,
                *ask.unless(_MODES, ("--permission-mode", "acceptEdits")),
                *ask.args,
            ),
            stdin=messages.user_message(ask.prompt, slash.AFTER) if as_json else ask.prompt.encode("utf-8", "replace"),
            env=_env(ask),
            notices=slash.notice(ask.engine, self.card.program, ask.prompt),
            continues_session=ask.session is not None,
        )

    def is_terminal(self, line: bytes) -> bool:
        """Tell whether it is the result."""
        return messages.is_result(line)

    def read(self, reply: Reply) -> Answer:
        """Read the result, whatever the exit code."""
        found = list(events(reply.out))
        seen = see(found)
        result = seen.result
        if result is None:
            return unfinished(reply, messages.LAST_EVENT, acted=seen.acted, session=seen.session)
        usage = _usage(result)
        if result.get("is_error") is not False or text_at(result, "subtype") != "success":
            return _failure(reply, result, seen, found, usage)
        structured = result.get("structured_output")
        return Answer(
            text=text_at(result, "result"),
            structured_json=None if structured is None else msgspec.json.encode(structured).decode(),
            denied=messages.denied(result),
            session=seen.session,
            model=seen.model,
            usage=usage,
        )


def _env(ask: Ask) -> dict[str, str]:
    env = {
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    if ask.base_url is not None:
        env["ANTHROPIC_BASE_URL"] = ask.base_url
    if ask.api_key is not None:
        env["ANTHROPIC_API_KEY"] = ask.api_key
    if ask.max_tokens is not None:
        env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(ask.max_tokens)
    return env


def _failure(reply: Reply, result: Event, seen: Seen, found: list[Event], usage: Usage | None) -> Answer:
    said = result.get("errors")
    text = text_at(result, "result") or "; ".join(str(line) for line in (said if isinstance(said, list) else []))
    gone = reply.ask.session is not None and "No conversation found" in text
    if text_at(result, "api_error") in _CUT or text_at(result, "terminal_reason") == "max_turns":
        answer = Answer(reason=Reason.LLM_BAD_RESPONSE, error=text, acted=seen.acted)
    else:
        status = count_at(result, "api_error_status") or status_in(text)
        answer = failed(reply, text or text_at(result, "subtype"), status, acted=seen.acted)
    resets = _resets_at(found)
    if answer.reason in {Reason.LLM_RATE_LIMIT, Reason.LLM_QUOTA} and resets is not None:
        answer = msgspec.structs.replace(answer, reason=Reason.LLM_QUOTA, quota_until=resets, retry_after_ms=None)
    return msgspec.structs.replace(
        answer,
        session=None if gone else seen.session,
        session_gone=gone,
        model=seen.model,
        usage=usage,
    )


def _resets_at(found: list[Event]) -> int | None:
    """Return when a used-up allowance is filled again (epoch ms), from the event that says so."""
    for event in reversed(found):
        info = event.get("rate_limit_info")
        if event.get("type") == "rate_limit_event" and text_at(info, "status") == "rejected":
            seconds = count_at(info, "resetsAt")
            return None if seconds is None else seconds * 1_000
    return None


def _usage(result: Event) -> Usage | None:
    by_model = result.get("model_usage_since_last_result")
    if not isinstance(by_model, dict) or not by_model:
        return _plain_usage(result.get("usage"))
    spent = list(by_model.values())
    cached = total(*(count_at(model, "cacheReadInputTokens") for model in spent))
    written = total(*(count_at(model, "cacheCreationInputTokens") for model in spent))
    return Usage(
        input_tokens=total(*(count_at(model, "inputTokens") for model in spent), cached, written),
        output_tokens=total(*(count_at(model, "outputTokens") for model in spent)),
        cached_tokens=cached,
        reasoning_tokens=total(*(count_at(model, "thinkingTokens") for model in spent)),
        cost_usd=_cost(spent),
    )


def _plain_usage(usage: object) -> Usage | None:
    cached, written = count_at(usage, "cache_read_input_tokens"), count_at(usage, "cache_creation_input_tokens")
    used = total(count_at(usage, "input_tokens"), cached, written)
    if used is None:
        return None
    return Usage(input_tokens=used, output_tokens=count_at(usage, "output_tokens"), cached_tokens=cached)


def _cost(spent: list[object]) -> float | None:
    """Add up list prices; one model of unknown price makes the whole unknown."""
    costs = [dig(model, "costUSD") for model in spent]
    if any(text_at(model, "costBasis") == "unknown" for model in spent):
        return None
    return float(sum(costs)) if all(isinstance(cost, int | float) for cost in costs) else None


CLAUDE: Final = Claude()
