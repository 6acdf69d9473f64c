"""The ways in which a prompt can end: what the server does, and what interlock makes of it, for each agent.

A case is a step whose prompt names it; the server answers every call about it in the case's way. `END` is what
becomes of a step, `CAVEATS` where a CLI gives no way to do better, each with the reason.
"""

from __future__ import annotations

from typing import Any

import msgspec
from tests.modelserver.script import Step


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the workflow."""

    server: tuple[Step, ...]
    end: str
    """The unit's state, or its reason when it failed."""
    settings: str = ""


RETRY = "retry: { max: 1, on: [llm_rate_limit], backoff: { initial: 10ms } }"
SCHEMA = "output: { type: object, required: [n], properties: { n: { type: integer } }, additionalProperties: false }"
WAIT_S = 2
IMPATIENT = "idle_timeout: {idle}"
CASES = {
    "success": Case(server=({"text": "the answer", "usage": {"in": 70, "out": 30}},), end="completed"),
    "schema": Case(server=({"json": {"n": 3}},), end="completed", settings=SCHEMA),
    "unauthorised": Case(server=({"status": 401},), end="llm_auth"),
    "limited": Case(
        server=({"status": 429, "retry_after": WAIT_S}, {"text": "later"}), end="completed", settings=RETRY
    ),
    "broken": Case(server=({"status": 500},), end="llm_overloaded", settings=IMPATIENT),
    "overloaded": Case(server=({"status": 529},), end="llm_overloaded", settings=IMPATIENT),
    "cut": Case(server=({"text": "half of it " * 20, "cut": True},), end="network_error", settings=IMPATIENT),
    "length": Case(server=({"text": "all that fits", "stop": "length"},), end="llm_bad_response"),
    "hang": Case(server=({"hang": True},), end="idle_timeout", settings="idle_timeout: 4s"),
}
FOREVER = dict.fromkeys(("broken", "overloaded"), "idle_timeout")
"""It tries again without an end and says nothing, so that only interlock's own clock ends it."""
FOREVER_S = 10
PATIENT_S = 20
"""Longer than several starts at once wait for each other's locks, and than the pauses between an agent's own tries."""
UNSAID = {"length": "completed"}
"""It does not say that the answer was cut at the limit, or goes on by itself until it is whole."""
CAVEATS: dict[str, dict[str, str]] = {
    "opencode": {**FOREVER, "cut": "idle_timeout"},
    "gemini": UNSAID,
    "qwen": FOREVER,
    "acp-opencode": {**FOREVER, **UNSAID, "cut": "idle_timeout"},
    # for whatever breaks a call its ACP error has the code 500
    "acp-gemini": {**UNSAID, "cut": "llm_overloaded"},
    "acp-qwen": {**FOREVER, **UNSAID},
    "acp-copilot": UNSAID,
}

TITLED = frozenset({"acp-opencode"})
"""It asks for a title beside the first call of a session, and that may be the call that is told to wait."""


def prompt(case: str) -> str:
    return f"CASE-{case} please."


def script(case: str) -> list[Step]:
    """Return the steps for the server: the last one serves all further calls."""
    steps = CASES[case].server
    match: dict[str, Any] = {"match": f"any:CASE-{case} please"}
    return [{**match, **step, "times": 1 if step is not steps[-1] else 1_000} for step in steps]


def workflow(agent: str, cases: list[str]) -> str:
    idle = f"{FOREVER_S if FOREVER.items() <= CAVEATS.get(agent, {}).items() else PATIENT_S}s"
    head = "---\ntype: workflow\ndefaults: { on_error: continue, timeout: 150s, retry: { max: 0 } }\nsteps:\n"
    # the first alone: an agent makes its folders and databases in a new home then
    needs = ["[]"] + [f"[{cases[0]}]"] * (len(cases) - 1)
    entries = [
        f"  - id: {case}\n    needs: {need}\n" + entry(CASES[case].settings.replace("{idle}", idle))
        for case, need in zip(cases, needs, strict=True)
    ]
    sections = [f"## {case}\n{prompt(case)}\n" for case in cases]
    return head + "".join(entries) + "---\n" + "".join(sections)


def entry(settings: str) -> str:
    return f"    {settings}\n" if settings else ""
