"""A CLI in Claude Code's manner that does what its prompt says: a JSON object of steps, else it answers with the prompt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def result(text: str, **more: Any) -> str:
    event = {"type": "result", "subtype": "success", "is_error": False, "result": text, "session_id": session()}
    return json.dumps(event | more)


def session() -> str:
    flag = "--resume" if "--resume" in sys.argv else "--session-id"
    return sys.argv[sys.argv.index(flag) + 1]


def say(text: str, out: Any = None) -> None:
    print(text, file=out or sys.stdout, flush=True)


def speak_when_ended(words: dict[str, Any]) -> None:
    def leave(*_: object) -> None:
        say(result("", **words))
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)


def act(steps: dict[str, Any]) -> None:
    if "gone" in steps and "--resume" in sys.argv:
        say(json.dumps({"type": "result", "is_error": True, "errors": ["No conversation found with session ID: x"]}))
        sys.exit(1)
    say(json.dumps({"type": "system", "subtype": "init", "session_id": session()}))
    for _ in range(steps.get("ticks", 0)):
        say('{"type":"system","subtype":"tick"}')
        time.sleep(0.1)
    if "stray" in steps:
        stray = subprocess.Popen(["sleep", "300"], start_new_session=True, stdout=subprocess.DEVNULL)
        Path(steps["stray"]).write_text(str(stray.pid), encoding="utf-8")
    if "noise" in steps:
        for _ in range(steps["noise"]):
            say(json.dumps({"type": "noise", "text": "x" * 1_000_000}))
    if "err" in steps:
        say(steps["err"], sys.stderr)
    if "show" in steps:
        say(result(os.environ.get(steps["show"], "")))
    if "result" in steps:
        say(result(steps["result"]))
    if "last_words" in steps:
        speak_when_ended(steps["last_words"])
    if "hang" in steps:
        while True:
            time.sleep(0.02)
    sys.exit(steps.get("exit", 0))


def main() -> None:
    prompt = sys.stdin.buffer.read()
    if prompt.startswith(b"{"):
        act(json.loads(prompt))
    say(result(prompt.decode()))


main()
