from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.dispatch.env import dotenv
from interlock.dispatch.env.redact_base import EnvUnresolvedError, NullRedactor
from interlock.dispatch.env.secrets import EnvResolver
from interlock.model.plan import EnvGroup, SecretSource


def command(*argv: str) -> EnvGroup:
    return EnvGroup(name="vault", secrets=(SecretSource(name="TOKEN", command=argv),))


def failure(resolver: EnvResolver, name: str) -> tuple[str, str]:
    with pytest.raises(EnvUnresolvedError) as caught:
        resolver.resolve((name,))
    assert caught.value.code == "env-unresolved"
    return caught.value.message, caught.value.hint


def test_values_come_from_variables_files_and_commands_and_later_ones_stand_over_earlier(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=from file\nB=from file\nC=from file\n", encoding="utf-8")
    (tmp_path / "more.env").write_text("C=from second file\n", encoding="utf-8")
    group = EnvGroup(
        name="staging",
        vars=("A", "REGION"),
        dotenv=(".env", "more.env"),
        secrets=(
            SecretSource(name="B", command=("printf", "from command\n\n")),
            SecretSource(name="KEY", var="OTHER_KEY"),
        ),
    )
    last = EnvGroup(name="last", vars=("REGION",))
    environ = {"A": "from environment", "REGION": "eu-west-1", "OTHER_KEY": "key value", "UNUSED": "x"}
    environ["PATH"] = os.environ["PATH"]
    resolved = EnvResolver((group, last), tmp_path, environ=environ).resolve(("staging", "last"))
    assert resolved.values == {
        "A": "from file",
        "REGION": "eu-west-1",
        "B": "from command\n",
        "C": "from second file",
        "KEY": "key value",
    }
    assert resolved.names == ("A", "B", "C", "KEY", "REGION")
    assert resolved.warnings == ()


def test_every_value_is_redacted_even_one_that_another_stands_over(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=from the file\n", encoding="utf-8")
    group = EnvGroup(name="g", vars=("A",), dotenv=(".env",), secrets=(SecretSource(name="B", var="SOURCE"),))
    other = EnvGroup(name="h", vars=("B",))
    environ = {"A": "outer value", "SOURCE": "first value", "B": "second value"}
    resolver = EnvResolver((group, other), tmp_path, [("password", "a param")], environ)
    text = resolver.resolve(("g", "h")).redactor.text(b"from the file, first value, second value, a param")
    assert text == b"[redacted:A], [redacted:B], [redacted:B], [redacted:password]"


def test_what_is_secret_is_hidden_from_jobs_that_name_no_group(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FILE=from the file\n", encoding="utf-8")
    secrets = (SecretSource(name="S", var="SOURCE"), SecretSource(name="C", command=("echo", "from the command")))
    group = EnvGroup(name="g", vars=("REGION",), dotenv=(".env",), secrets=secrets)
    environ = {"SOURCE": "the source", "REGION": "north-1", "KEY": "the engine's key", "PIN": "1234"}
    resolver = EnvResolver((group,), tmp_path, environ=environ, keys=("KEY", "PIN", "UNSET"))
    said = b"the source, the engine's key, from the file, from the command, north-1, 1234"
    before = resolver.resolve(())
    assert before.redactor.text(said).startswith(b"[redacted:SOURCE], [redacted:KEY], from the file, from the command")
    assert (before.values, before.names, before.warnings) == ({}, (), ())
    resolver.resolve(("g",))
    # what is passed through is no secret: a region or a path stands in ordinary text
    hidden = b"[redacted:SOURCE], [redacted:KEY], [redacted:FILE], [redacted:C], north-1, 1234"
    assert resolver.resolve(()).redactor.text(said) == hidden


def test_a_secret_that_stands_over_another_value_is_hidden_everywhere_and_so_is_what_it_stands_over(
    tmp_path: Path,
) -> None:
    (tmp_path / ".env").write_text("A=from the file\nB=also from the file\n", encoding="utf-8")
    secrets = (SecretSource(name="B", command=("echo", "from the command")),)
    group = EnvGroup(name="g", vars=("A", "B"), dotenv=(".env",), secrets=secrets)
    environ = {"A": "passed through", "B": "passed through", "PATH": os.environ["PATH"]}
    resolver = EnvResolver((group,), tmp_path, environ=environ)
    assert resolver.resolve(("g",)).values == {"A": "from the file", "B": "from the command"}
    said = b"from the file, also from the file, from the command, passed through"
    hidden = b"[redacted:A], [redacted:B], [redacted:B], passed through"
    assert resolver.resolve(()).redactor.text(said) == hidden


def test_what_becomes_known_is_hidden_from_jobs_and_streams_that_began_before(tmp_path: Path) -> None:
    resolver = EnvResolver((command("echo", "from the command"),), tmp_path)
    redactor = resolver.resolve(()).redactor
    stream = redactor.stream()
    assert stream.feed(b"one; ") == b"one; "
    resolver.resolve(("vault",))
    assert stream.feed(b"from the comm") + stream.feed(b"and!") + stream.flush() == b"[redacted:TOKEN]!"
    assert redactor.text(b"from the command") == b"[redacted:TOKEN]"
    assert redactor.json(b'["from the comm\\u0061nd"]') == b'["[redacted:TOKEN]"]'


def test_what_earlier_steps_were_given_is_had_again_and_what_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FILE=from the file\n", encoding="utf-8")
    groups = (
        EnvGroup(name="read", dotenv=(".env", "missing.env")),
        EnvGroup(
            name="had", secrets=(SecretSource(name="C", command=("sh", "-c", "echo x >> calls; echo the value")),)
        ),
        EnvGroup(name="lost", secrets=(SecretSource(name="L", command=("false",)),)),
        EnvGroup(name="unasked", secrets=(SecretSource(name="U", command=("touch", "asked")),)),
    )
    resolver = EnvResolver(groups, tmp_path)
    [lost] = resolver.recall(("read", "had", "lost"))
    assert lost == (
        "env group lost: the command `false` for L failed with exit code 1; "
        "until it resolves, what it gave earlier steps cannot be redacted"
    )
    assert resolver.resolve(()).redactor.text(b"from the file, the value") == b"[redacted:FILE], [redacted:C]"
    assert resolver.resolve(("had",)).values == {"C": "the value"}
    assert (tmp_path / "calls").read_text(encoding="ascii") == "x\n"
    assert not (tmp_path / "asked").exists()


def test_params_are_redacted_without_any_group(tmp_path: Path) -> None:
    resolved = EnvResolver((), tmp_path, [("password", "hunter22")]).resolve(())
    assert resolved.redactor.text(b"hunter22") == b"[redacted:password]"
    assert resolved.values == {}


def test_no_groups_and_nothing_to_hide_cost_nothing(tmp_path: Path) -> None:
    assert isinstance(EnvResolver((), tmp_path).resolve(()).redactor, NullRedactor)


def test_short_values_are_warned_about_by_name(tmp_path: Path) -> None:
    resolved = EnvResolver((EnvGroup(name="g", vars=("PIN",)),), tmp_path, environ={"PIN": "1234"}).resolve(("g",))
    assert resolved.warnings == ("the value of PIN is shorter than 6 characters, so it cannot be redacted",)


def test_a_missing_variable_names_itself_and_its_group(tmp_path: Path) -> None:
    resolver = EnvResolver((EnvGroup(name="g", vars=("REGION",)),), tmp_path, environ={})
    assert failure(resolver, "g") == (
        "env group g: the variable REGION is not set",
        "set REGION before you start interlock, or take it out of [env.g]",
    )


def test_a_missing_source_of_a_secret_names_both(tmp_path: Path) -> None:
    group = EnvGroup(name="g", secrets=(SecretSource(name="KEY", var="OTHER"),))
    message, _ = failure(EnvResolver((group,), tmp_path, environ={}), "g")
    assert message == "env group g: the variable OTHER, source of KEY, is not set"


def test_an_unknown_group_is_named(tmp_path: Path) -> None:
    message, hint = failure(EnvResolver((), tmp_path), "gone")
    assert (message, hint) == ("env group gone is not configured", "add [env.gone] to interlock.toml")


def test_a_file_that_is_missing_or_wrong_is_named_with_the_line_but_not_its_content(tmp_path: Path) -> None:
    resolver = EnvResolver((EnvGroup(name="g", dotenv=(".env",)),), tmp_path)
    path = tmp_path / ".env"
    assert failure(resolver, "g")[0] == f"env group g: dotenv file {path}: No such file or directory"
    path.write_text("A=1\nsecret words\n", encoding="utf-8")
    message, _ = failure(resolver, "g")
    assert message == f"env group g: dotenv file {path}: line 2: expected NAME=value, a comment or a blank line"
    path.write_bytes(b"A=\xff\n")
    assert failure(resolver, "g")[0] == f"env group g: dotenv file {path}: not UTF-8"
    path.write_text("A=mended\n", encoding="utf-8")
    assert resolver.resolve(("g",)).values == {"A": "mended"}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo the-secret; echo the-secret >&2; exit 3", "failed with exit code 3"),
        ("kill -9 $$", "was killed by signal 9"),
        ("true", "printed nothing"),
        ("printf '\\377'", "printed what is not UTF-8"),
        ("printf 'a\\0b'", "printed a NUL byte, which no variable can hold"),
    ],
)
def test_a_secret_command_that_fails_is_told_without_what_it_said(tmp_path: Path, script: str, problem: str) -> None:
    message, hint = failure(EnvResolver((command("sh", "-c", script),), tmp_path), "vault")
    assert message == f"env group vault: the command `sh` for TOKEN {problem}"
    assert hint == f"run it by hand in {tmp_path} to see what it says"


def test_a_secret_command_that_does_not_exist_is_told(tmp_path: Path) -> None:
    message, _ = failure(EnvResolver((command("no-such-program"),), tmp_path), "vault")
    assert message == (
        "env group vault: the command `no-such-program` for TOKEN cannot be started: No such file or directory"
    )


def test_a_secret_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path}/pid; wait"
    resolver = EnvResolver((command("sh", "-c", script),), tmp_path, command_timeout_s=0.5)
    message, _ = failure(resolver, "vault")
    assert message == "env group vault: the command `sh` for TOKEN gave no answer within 0.5 s"
    pid = int((tmp_path / "pid").read_text(encoding="ascii"))
    until = time.monotonic() + 10
    while _runs(pid):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_stop_in_the_midst_of_a_command_s_start_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = EnvResolver((command("sleep", "60"),), tmp_path, command_timeout_s=20)
    start = subprocess.Popen

    def start_when_a_signal_comes(*args: Any, **named: Any) -> subprocess.Popen[bytes]:
        process = start(*args, **named)
        resolver.stop()
        return process

    monkeypatch.setattr(subprocess, "Popen", start_when_a_signal_comes)
    began = time.monotonic()
    assert failure(resolver, "vault")[0] == "cancelled while its secrets were asked for"
    assert time.monotonic() - began < 10


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_value_too_large_for_an_environment_is_told(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", "print('x' * 131072)")
    message, _ = failure(EnvResolver((command(*argv),), tmp_path), "vault")
    assert message == "env group vault: the value of TOKEN is larger than 128 KiB"


def test_a_group_is_resolved_once_by_many_threads_and_again_after_a_failure(tmp_path: Path) -> None:
    script = "echo x >> calls; test -e ready && cat ready"
    resolver = EnvResolver((command("sh", "-c", script),), tmp_path)
    failure(resolver, "vault")
    (tmp_path / "ready").write_text("the value\n", encoding="utf-8")
    found: list[dict[str, str]] = []
    threads = [threading.Thread(target=lambda: found.append(resolver.resolve(("vault",)).values)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [{"TOKEN": "the value"}] * 5
    assert (tmp_path / "calls").read_text(encoding="ascii") == "x\nx\n"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("A=1\nB = two words \n", {"A": "1", "B": "two words"}),
        ("\ufeffexport A=1\r\n\r\n# note\r\nB=2", {"A": "1", "B": "2"}),
        ("A=a#b # note\nB=# note\nC=\n", {"A": "a#b", "B": "", "C": ""}),
        ("A='$x \\n # kept' # note\n", {"A": "$x \\n # kept"}),
        ('A="a\\n\\"b\\" \\\\ \\$ \\q"\n', {"A": 'a\n"b" \\ $ \\q'}),
        ("A=\"one\ntwo\"\nB='x\ny'\n", {"A": "one\ntwo", "B": "x\ny"}),
        ("A=$HOME ${B} `c`\n", {"A": "$HOME ${B} `c`"}),
        ("  A=1\n\tB=2\nA=3\n", {"A": "3", "B": "2"}),
        ("", {}),
    ],
)
def test_dotenv_files_are_read(text: str, values: dict[str, str]) -> None:
    assert dotenv.parse(text) == values


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("A=1\nB\n", "line 2: expected NAME=value, a comment or a blank line"),
        ("1A=1\n", "line 1: expected NAME=value, a comment or a blank line"),
        ("A-B=1\n", "line 1: expected NAME=value, a comment or a blank line"),
        ("\n\nA='x\n", "line 3: the ' that opens the value is never closed"),
        ('A="x" y\n', "line 1: only a comment may follow a quoted value"),
        ("A=1\nB=a\0b\n", "line 2: a NUL byte cannot stand in a variable"),
    ],
)
def test_dotenv_faults_name_the_line(text: str, error: str) -> None:
    with pytest.raises(dotenv.DotenvError, match=f"^{error}$"):
        dotenv.parse(text)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0'\r")))
def test_anything_without_a_quote_survives_single_quotes(value: str) -> None:
    assert dotenv.parse(f"A='{value}'\nB=1\n") == {"A": value, "B": "1"}


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(dotenv.DotenvError):
        assert isinstance(dotenv.parse(text), dict)
