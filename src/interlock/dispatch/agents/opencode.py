"""opencode, started for each prompt: `opencode run`.

Guarantees: only a last step that says `stop` is an answer; a permission that opencode refused by itself is a failure
that names the tool, though it exits 0. opencode repeats failing calls without end and says nothing of it:
only the step's timeouts end that, so `opencode-serve`, where it can be seen, is the better choice.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from interlock.dispatch.agents.base import Answer, Ask, Card, Launch, Reply
from interlock.dispatch.agents.jsonl import Event, dig, events, parse, text_at
from interlock.dispatch.agents.opencode_config import environment, provider_and_model
from interlock.dispatch.agents.opencode_words import error_answer, finish_answer, is_refusal, usage_of

_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
_GONE: Final = re.compile(r"Session not found", re.IGNORECASE)


class OpencodeAdapter:
    """`opencode run --format json`, the prompt on stdin."""

    card: Final = Card(
        program="opencode",
        cannot=frozenset({"temperature", "max_tokens", "extra_params"}),
        caveats=(
            "It repeats overloaded and rate-limited calls without end: give its steps a `timeout`, or use `opencode-serve`.",
            "Folders outside of the working directory are refused to it, unless `args` say `--auto`.",
        ),
    )

    def launch(self, ask: Ask) -> Launch:
        """Say how to start it."""
        named = provider_and_model(ask)
        model = () if named is None else ("-m", "/".join(filter(None, named)))
        session = ("--title", f"interlock {ask.new_session[:8]}") if ask.session is None else ("-s", ask.session)
        return Launch(
            argv=(*ask.program(self.card), "run", "--format", "json", *model, *session, *ask.args),
            stdin=ask.prompt.encode("utf-8", "replace"),
            env=environment(ask),
            continues_session=ask.session is not None,
        )

    def read(self, reply: Reply) -> Answer:
        """Say what came of it."""
        seen = list(events(reply.out))
        said = _ANSI.sub("", reply.err.decode("utf-8", "replace")).strip()
        steps = [part for event in seen if event.get("type") == "step_finish" and (part := dig(event, "part"))]
        known = Answer(
            session=next((text_at(event, "sessionID") for event in reversed(seen) if event.get("sessionID")), None),
            denied=tuple(
                text_at(event, "part", "tool") for event in seen if is_refusal(text_at(event, "part", "state", "error"))
            ),
            usage=usage_of(steps),
            acted=any(event.get("type") == "tool_use" for event in seen),
        )
        if reply.ask.session is not None and not seen and _GONE.search(said):
            gone = msgspec.structs.replace(known, session_gone=True, acted=False)
            return error_answer(gone, {"data": {"message": said}}, reply.now_ms)
        failed = next(
            (event["error"] for event in reversed(seen) if event.get("type") == "error" and "error" in event), None
        )
        if failed is not None:
            return error_answer(known, failed, reply.now_ms)
        if not steps:
            silent = f"it gave no answer: {said}" if said else "it gave no answer"
            return error_answer(known, {"data": {"message": silent}}, reply.now_ms)
        return finish_answer(known, text_at(steps[-1], "reason"), _last_text(seen))

    def is_terminal(self, line: bytes) -> bool:
        """Tell whether a line is the end of the last step."""
        event = parse(line) if b'"step_finish"' in line else None
        return text_at(event, "type") == "step_finish" and text_at(event, "part", "reason") not in {"", "tool-calls"}


def _last_text(seen: list[Event]) -> str:
    """Return the text of the last step: earlier ones are what the agent said while it worked."""
    texts: list[str] = []
    for event in seen:
        if event.get("type") == "step_start":
            texts = []
        elif event.get("type") == "text":
            texts.append(text_at(event, "part", "text"))
    return "".join(texts)


OPENCODE: Final = OpencodeAdapter()
