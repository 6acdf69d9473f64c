"""Whatever a worker process says, one unit fails with a clear text, the others go on, and the driver lives."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from interlock.decide.output import Failure, extract
from interlock.dispatch.env.redact import PatternRedactor
from interlock.dispatch.env.redact_base import NullRedactor, Redactor, ResolvedEnv
from interlock.model.states import Reason

Make = Callable[..., Any]

WORK = r"""
import os, socket, stat, struct, sys, time

def raise_it(context):
    text = os.fsdecode(b"caf\xe9")
    how = context["item"]
    if how == "text":
        raise ValueError(text)
    if how == "pair":
        raise ValueError("\ud83d" + "\ude00")
    if how == "exit":
        sys.exit(text)
    if how == "long":
        raise ValueError(text * 100_000)
    if how == "chained":
        raise ValueError(text) from OSError(2, "gone", text)
    if how == "no text":
        class Silent(Exception):
            def __str__(self):
                sys.exit(3)
        raise Silent
    if how == "huge status":
        sys.exit(10 ** 30)
    if how == "status":
        sys.exit(-1)
    return how

def give(context):
    how = context["item"]
    if how == "text":
        return {"name": os.fsdecode(b"caf\xe9")}
    if how == "broken":
        class Broken(dict):
            def items(self):
                raise KeyError("lost")
        return Broken(a={1})
    return how

def answer_socket():
    # the first of two that came with the fork: both ends of the other are messages
    for fd in range(3, 64):
        try:
            if socket.socket(fileno=os.dup(fd)).type == socket.SOCK_STREAM:
                return fd
        except OSError:
            pass

def forge(context):
    how = context["item"]
    if "kind" not in how:
        return "true"
    body = bytes.fromhex(how["hex"])
    print("before the lie", flush=True)
    os.write(answer_socket(), struct.pack("<BII", ord(how["kind"]), len(body), how.get("us", 0)) + body)
    time.sleep(60)
"""


def test_text_that_is_no_utf_8_is_told_as_a_traceback_tells_it(make_functions: Make) -> None:
    functions = make_functions(WORK)
    hows = ("text", "pair", "exit", "chained", "no text", "fine")
    outcomes = functions.run("raise_it", *hows)
    assert [outcome.error for outcome in outcomes] == [
        r"ValueError: caf\udce9",
        r"ValueError: \ud83d\ude00",
        r"SystemExit: caf\udce9",
        r"ValueError: caf\udce9",
        "Silent: (its text cannot be had)",
        "",
    ]
    assert {outcome.reason for outcome in outcomes} == {Reason.NON_ZERO_EXIT, None}
    assert all(outcome.answered for outcome in outcomes)
    assert outcomes[-1].output == b'"fine"'
    [long] = functions.run("raise_it", "long")
    assert long.error == "ValueError: " + (r"caf\udce9" * 1_000)[: 4_096 - len("ValueError: ")] + "..."


def test_a_module_that_cannot_be_imported_may_say_so_in_any_bytes(make_functions: Make) -> None:
    functions = make_functions("import os\nraise ImportError(os.fsdecode(b'caf\\xe9'))\n")
    outcomes = functions.run("go", 1, 2)
    assert {outcome.reason for outcome in outcomes} == {Reason.SPAWN_FAILED}
    assert all(r"ImportError: caf\udce9; looked in" in outcome.error for outcome in outcomes)


def test_an_exit_status_is_one_that_a_process_can_have(make_functions: Make) -> None:
    functions = make_functions(WORK)
    huge, negative = functions.run("raise_it", "huge status", "status")
    assert (huge.exit_code, negative.exit_code) == (1, 255)
    assert huge.error == f"SystemExit: {10**30}"


def test_a_result_that_is_no_text_or_breaks_its_encoder_fails_that_unit(make_functions: Make) -> None:
    functions = make_functions(WORK)
    text, broken, fine = functions.run("give", "text", "broken", "fine")
    assert text.error == "the function returned what is not JSON: $.name holds a lone surrogate"
    assert (text.status, text.reason, text.answered) == ("failed", Reason.PARSE_ERROR, True)
    assert broken.error == "the worker failed at it: KeyError: 'lost'"
    assert (broken.status, broken.reason) == ("failed", Reason.DISPATCH_ERROR)
    assert fine.output == b'"fine"'


FORGED = {
    "garbage": (b"\xff\xfe\x00", "DecodeError: JSON is malformed: invalid character (byte 0)"),
    "cut off": (b'["timeout"', "DecodeError: Input data was truncated"),
    "nothing": (b"", "DecodeError: Input data was truncated"),
    "a lone surrogate": (
        rb'["timeout","\udce9",1]',
        "DecodeError: JSON is malformed: invalid utf-16 surrogate pair (byte 18)",
    ),
    "another type": (b'{"a":1}', "ValidationError: Expected `array`, got `object`"),
    "too short": (b'["timeout"]', "ValidationError: Expected `array` of length 4"),
    "no reason": (b'["because","",1,false]', "ValidationError: Invalid enum value 'because' - at `$[0]`"),
    "no number": (b'["timeout","",NaN,false]', "DecodeError: JSON is malformed: invalid character (byte 14)"),
    "a huge number": (
        b'["timeout","",1' + b"0" * 30 + b",false]",
        "ValidationError: Expected `int` <= 255 - at `$[2]`",
    ),
    "no status": (b'["timeout","",256,false]', "ValidationError: Expected `int` <= 255 - at `$[2]`"),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_failure_that_cannot_be_read_is_a_dispatch_error_of_that_unit(make_functions: Make, how: str) -> None:
    body, why = FORGED[how]
    functions = make_functions(WORK)
    lie, other = functions.run("forge", {"kind": "F", "hex": body.hex()}, {})
    assert (lie.status, lie.reason, lie.answered) == ("failed", Reason.DISPATCH_ERROR, False)
    assert lie.error == f"interlock failed to take in the worker's answer: {why}"
    assert b"before the lie" in functions.log_path.read_bytes()[lie.log.offset :]
    assert other.output == b'"true"'


def test_a_failure_of_ten_thousand_levels_is_a_dispatch_error_of_that_unit(make_functions: Make) -> None:
    functions = make_functions(WORK)
    [lie] = functions.run("forge", {"kind": "F", "hex": (b"[" * 10_000).hex()})
    assert (lie.reason, lie.answered) == (Reason.DISPATCH_ERROR, False)


@pytest.mark.parametrize("redactor", [NullRedactor(), PatternRedactor({"TOKEN": "secret-value"})])
def test_a_forged_result_never_gets_past_the_boundary_of_results(make_functions: Make, redactor: Redactor) -> None:
    functions = make_functions(WORK, env_for=lambda _job: ResolvedEnv({}, redactor))
    dice = random.Random(7)  # noqa: S311 - the same bytes each time
    bodies = [
        b"\xff" * 20,
        b"[" * 5_000,
        b"1" + b"0" * 5_000,
        b"NaN",
        b'{"a":1,"a":2}',
        rb'{"secret-value":"\udce9"}',
        b'"secret-value',
        *(dice.randbytes(dice.randrange(40)) for _ in range(4)),
    ]
    # at once, so that each lies in a worker of its own: one that lied still sleeps
    lies = functions.run("forge", *({"kind": "R", "hex": body.hex(), "us": 0xFFFFFFFF} for body in bodies))
    for body, lie in zip(bodies, lies, strict=True):
        found = extract(lie.output, is_json=True, schema_json='{"type":"object"}', max_bytes=1_000)
        assert isinstance(found, Failure), body
        json.dumps(found.error).encode()
        assert b"secret-value" not in (lie.output if type(redactor) is PatternRedactor else b"")


def test_what_the_environment_holds_in_other_bytes_reaches_the_function(make_functions: Make) -> None:
    functions = make_functions(
        "import os\ndef look(context):\n    return os.environb[b'NAME'].hex()\n",
        env_for=lambda _job: ResolvedEnv({"NAME": "caf\udce9"}, NullRedactor()),
    )
    assert functions.run("look", env=("g",))[0].output == b'"636166e9"'
