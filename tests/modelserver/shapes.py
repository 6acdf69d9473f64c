"""Answers in the words of the four APIs: one whole body, or the events of a stream."""

from __future__ import annotations

import itertools
import time
import uuid
from typing import Any

from tests.modelserver.answers import Answer
from tests.modelserver.calls import Call

Json = dict[str, Any]
Event = tuple[str | None, Json | str]
Headers = list[tuple[str, str]]


def fresh(prefix: str, length: int = 20) -> str:
    return prefix + uuid.uuid4().hex[:length]


def anthropic_body(call: Call, answer: Answer) -> Json:
    tool = answer.tool
    ended = "max_tokens" if answer.by_length else "end_turn"
    block: Json = {"type": "text", "text": answer.text}
    if tool:
        block = {"type": "tool_use", "id": fresh("toolu_"), "name": tool.name, "input": tool.input}
    return {
        "id": fresh("msg_"),
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "content": [block],
        "stop_reason": "tool_use" if tool else ended,
        "stop_sequence": None,
        "usage": {
            "input_tokens": answer.input_tokens,
            "output_tokens": answer.output_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": answer.cached_tokens,
        },
    }


def anthropic_events(call: Call, answer: Answer) -> list[Event]:
    body = anthropic_body(call, answer)
    block, usage = body["content"][0], body["usage"]
    opened = {**body, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    if answer.tool:
        start: Json = {**block, "input": {}}
        deltas: list[Json] = [{"type": "input_json_delta", "partial_json": answer.tool.json}]
    else:
        start = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in answer.pieces]
    stop = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    events: list[Json] = [
        {"type": "message_start", "message": opened},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": usage},
        {"type": "message_stop"},
    ]
    return [(str(event["type"]), event) for event in events]


def chat_usage(answer: Answer) -> Json:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }


def chat_ending(answer: Answer) -> str:
    return "tool_calls" if answer.tool else "length" if answer.by_length else "stop"


def chat_tool(answer: Answer) -> Json:
    assert answer.tool is not None
    function = {"name": answer.tool.name, "arguments": answer.tool.json}
    return {"id": fresh("call_", 16), "type": "function", "function": function}


def chat_body(call: Call, answer: Answer) -> Json:
    message: Json = {"role": "assistant", "content": None if answer.tool else answer.text, "refusal": None}
    if answer.tool:
        message["tool_calls"] = [chat_tool(answer)]
    choice = {"index": 0, "message": message, "finish_reason": chat_ending(answer), "logprobs": None}
    head = {"id": fresh("chatcmpl-"), "object": "chat.completion", "created": int(time.time()), "model": call.model}
    return {**head, "choices": [choice], "usage": chat_usage(answer)}


def chat_events(call: Call, answer: Answer) -> list[Event]:
    head = {
        "id": fresh("chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": call.model,
    }

    def chunk(delta: Json, ending: str | None = None) -> Event:
        return None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": ending}]}

    if answer.tool:
        middle = [chunk({"tool_calls": [{"index": 0, **chat_tool(answer)}]})]
    else:
        middle = [chunk({"content": piece}) for piece in answer.pieces]
    first = chunk({"role": "assistant", "content": None if answer.tool else ""})
    events = [first, *middle, chunk({}, chat_ending(answer))]
    if (call.body.get("stream_options") or {}).get("include_usage"):
        events.append((None, {**head, "choices": [], "usage": chat_usage(answer)}))
    return [*events, (None, "[DONE]")]


def responses_item(answer: Answer) -> Json:
    if answer.tool:
        named = {"name": answer.tool.name, "arguments": answer.tool.json, "call_id": fresh("call_", 16)}
        return {"id": fresh("fc_", 16), "type": "function_call", "status": "completed", **named}
    part = {"type": "output_text", "text": answer.text, "annotations": []}
    head = {"id": fresh("msg_", 16), "type": "message", "status": "completed", "role": "assistant"}
    return {**head, "content": [part]}


def responses_body(call: Call, answer: Answer) -> Json:
    cut_off = {"reason": "max_output_tokens"} if answer.by_length else None
    return {
        "id": fresh("resp_", 24),
        "object": "response",
        "created_at": int(time.time()),
        "model": call.model,
        "status": "incomplete" if answer.by_length else "completed",
        "error": None,
        "incomplete_details": cut_off,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "output": [responses_item(answer)],
        "usage": {
            "input_tokens": answer.input_tokens,
            "input_tokens_details": {"cached_tokens": answer.cached_tokens},
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.input_tokens + answer.output_tokens,
        },
    }


def responses_events(call: Call, answer: Answer) -> list[Event]:
    done = responses_body(call, answer)
    item = done["output"][0]
    pending = {**done, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    blank = {**item, "status": "in_progress", **({"arguments": ""} if answer.tool else {"content": []})}
    ending = "response.incomplete" if answer.by_length else "response.completed"
    events: list[Json] = [
        {"type": "response.created", "response": pending},
        {"type": "response.in_progress", "response": pending},
        {"type": "response.output_item.added", "output_index": 0, "item": blank},
        *(responses_arguments(item) if answer.tool else responses_text(item, answer)),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": ending, "response": done},
    ]
    count = itertools.count()
    return [(str(event["type"]), {**event, "sequence_number": next(count)}) for event in events]


def responses_arguments(item: Json) -> list[Json]:
    place = {"item_id": item["id"], "output_index": 0}
    kind = "response.function_call_arguments"
    return [
        {"type": f"{kind}.delta", **place, "delta": item["arguments"]},
        {"type": f"{kind}.done", **place, "name": item["name"], "arguments": item["arguments"]},
    ]


def responses_text(item: Json, answer: Answer) -> list[Json]:
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    part = item["content"][0]
    return [
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []} for piece in answer.pieces),
        {"type": "response.output_text.done", **place, "text": answer.text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
    ]


def gemini_chunks(call: Call, answer: Answer) -> list[Json]:
    head = {
        "usageMetadata": {
            "promptTokenCount": answer.input_tokens,
            "candidatesTokenCount": answer.output_tokens,
            "totalTokenCount": answer.input_tokens + answer.output_tokens,
            "cachedContentTokenCount": answer.cached_tokens,
        },
        "modelVersion": call.model,
        "responseId": fresh("", 16),
    }
    if answer.tool:
        parts: list[Json] = [{"functionCall": {"name": answer.tool.name, "args": answer.tool.input}}]
    else:
        parts = [{"text": piece} for piece in answer.pieces]
    found = [{"index": 0, "content": {"role": "model", "parts": [part]}} for part in parts]
    found[-1]["finishReason"] = "MAX_TOKENS" if answer.by_length else "STOP"
    return [{"candidates": [candidate], **head} for candidate in found]


def gemini_body(call: Call, answer: Answer) -> Json:
    chunks = gemini_chunks(call, answer)
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    candidate = {**chunks[-1]["candidates"][0], "content": {"role": "model", "parts": parts}}
    return {**chunks[-1], "candidates": [candidate]}


def gemini_events(call: Call, answer: Answer) -> list[Event]:
    return [(None, chunk) for chunk in gemini_chunks(call, answer)]


BODIES = {"anthropic": anthropic_body, "chat": chat_body, "responses": responses_body, "gemini": gemini_body}
EVENTS = {
    "anthropic": anthropic_events,
    "chat": chat_events,
    "responses": responses_events,
    "gemini": gemini_events,
}
