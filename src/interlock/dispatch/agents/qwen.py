"""Qwen Code: JSON lines in Claude's manner on stdout, the prompt on stdin.

Totals of a continued session are its whole life's, so then the messages of this prompt are added up. An answer that
broke off is continued by the CLI itself and stitched together; the seams show as `retry` events, and such an answer
fails. Measured with 0.24.4.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from interlock.dispatch.agents import messages, slash
from interlock.dispatch.agents.base import Answer, Ask, Card, Launch, Reply
from interlock.dispatch.agents.endings import failed, unfinished
from interlock.dispatch.agents.jsonl import Event, count_at, dig, events, text_at, total
from interlock.dispatch.agents.messages import see
from interlock.model.events import Usage
from interlock.model.states import Reason

_SETTINGS: Final = "settings.json"
_CARD: Final = Card(
    program="qwen",
    cannot=frozenset({"extra_params"}),
    caveats=(
        'edits files in the working directory, runs no commands; more takes `args = ["--approval-mode", "yolo"]`',
        "it tries 429 and 5xx up to seven times itself, unseen, for a minute or more: set `idle_timeout`",
        'with `base_url` or `api_key` it speaks the OpenAI API unless `args` hold `"--auth-type"`',
    ),
)
_MODES: Final = ("--approval-mode", "-y", "--yolo")
_COMMANDS: Final = "run_shell_command,monitor"
_AUTH: Final = ("--auth-type",)


class Qwen:
    """The adapter."""

    card = _CARD

    def launch(self, ask: Ask) -> Launch:
        """Start it on the prompt, in a new session of a known id or in the one asked for."""
        session = ("--session-id", ask.new_session) if ask.session is None else ("--resume", ask.session)
        keyed = ask.api_key is not None or ask.base_url is not None
        files = {_SETTINGS: json.dumps(_settings(ask)).encode()}
        return Launch(
            argv=(
                *ask.program(self.card),
                # as plain text the prompt would get two line ends more; but so its --json-schema can't be had
                *("--input-format", "stream-json", "-o", "stream-json"),
                *(() if ask.model is None else ("-m", ask.model)),
                *session,
                *(ask.unless(_AUTH, ("--auth-type", "openai")) if keyed else ()),
                *ask.unless(_MODES, ("--approval-mode", "auto-edit")),
                *_withheld(ask),
                *ask.args,
            ),
            stdin=messages.user_message(slash.guarded(ask.prompt)),
            env=_env(ask),
            files=files,
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
        if seen.result is None:
            gone = reply.ask.session is not None and b"No saved session found" in reply.err
            answer = unfinished(reply, messages.LAST_EVENT, acted=seen.acted, session=seen.session)
            return msgspec.structs.replace(answer, session_gone=gone)
        answer = _answer(reply, seen.result, found, acted=seen.acted)
        usage = _usage(seen.result) if reply.ask.session is None else _added_up(found)
        return msgspec.structs.replace(answer, session=seen.session, model=seen.model, usage=usage)


def _withheld(ask: Ask) -> tuple[str, ...]:
    """Return what keeps it from tools that it would ask a person for: it waits for that answer for ever."""
    if "default" in ask.args or "--approval-mode=default" in ask.args:
        return (f"--exclude-tools={_COMMANDS},edit,write_file,notebook_edit",)
    return ask.unless((*_MODES, "--allowed-tools", "--exclude-tools"), (f"--exclude-tools={_COMMANDS}",))


def _answer(reply: Reply, result: Event, found: list[Event], *, acted: bool) -> Answer:
    if result.get("is_error") is not False or text_at(result, "subtype") != "success":
        text = text_at(result, "error", "message") or text_at(result, "result") or text_at(result, "subtype")
        return failed(reply, text, acted=acted)
    if any(_is_seam(event) for event in found):
        error = "the model's answer broke off (cut connection or token limit) and was stitched together by the CLI"
        return Answer(reason=Reason.LLM_BAD_RESPONSE, error=error, acted=acted)
    return Answer(text=text_at(result, "result"), denied=messages.denied(result))


def _is_seam(event: Event) -> bool:
    return event.get("subtype") == "retry" and dig(event, "data", "preserveText") is True


def _settings(ask: Ask) -> dict[str, Any]:
    sampling = {"temperature": ask.temperature, "max_tokens": ask.max_tokens}
    given = {name: value for name, value in sampling.items() if value is not None}
    generation = {"maxRetries": 0} | ({"samplingParams": given} if given else {})
    return {
        "model": {"generationConfig": generation},
        "memory": {"enableManagedAutoMemory": False},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
    }


def _env(ask: Ask) -> dict[str, str]:
    # defaults, not the machine's settings: those may hold rules of an administrator
    env = {"QWEN_CODE_SYSTEM_DEFAULTS_PATH": f"{ask.folder}/{_SETTINGS}"}
    if ask.base_url is not None:
        env["OPENAI_BASE_URL"] = ask.base_url
    if ask.api_key is not None:
        env["OPENAI_API_KEY"] = ask.api_key
    return env


def _usage(result: Event) -> Usage | None:
    usage = result.get("usage")
    used, said = count_at(usage, "input_tokens"), count_at(usage, "output_tokens")
    if used is None and said is None:
        return None
    return Usage(input_tokens=used, output_tokens=said, cached_tokens=count_at(usage, "cache_read_input_tokens"))


def _added_up(found: list[Event]) -> Usage | None:
    calls = {text_at(event, "message", "id"): event for event in found if event.get("type") == "assistant"}
    usages = [usage for event in calls.values() if (usage := _usage(event.get("message") or {})) is not None]
    if not usages:
        return None
    return Usage(
        input_tokens=total(*(usage.input_tokens for usage in usages)),
        output_tokens=total(*(usage.output_tokens for usage in usages)),
        cached_tokens=total(*(usage.cached_tokens for usage in usages)),
    )


QWEN: Final = Qwen()
