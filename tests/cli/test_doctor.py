"""What `doctor` says of configured engines: there or not, which version, key set or not, what it can't do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.dispatch.agents.base import Card
from interlock.driver.doctor import engines as doctor_engines
from interlock.driver.doctor.checks import Check, check_host
from interlock.driver.doctor.engines import check_engines
from interlock.driver.doctor.env import check_groups
from interlock.model.plan import EnvGroup, SecretSource
from interlock.plan.config import Engine

CARD = Card(
    program="claude",
    cannot=frozenset({"temperature", "max_tokens", "base_url"}),
    caveats=("Denied tools end the attempt.",),
)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Puts shell scripts on a PATH of their own; agents have one card for all."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(doctor_engines, "adapter", lambda _agent: SimpleNamespace(card=CARD))

    def write(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    return write


def check(**fields: Any) -> Check:
    (found,) = check_engines([Engine(**{"name": "coder", "kind": "agent", "agent": "claude", **fields})], Path.cwd())
    return found


def test_of_the_host_it_tells_what_interlock_uses_and_nothing_else(tmp_path: Path) -> None:
    names = [found.name for found in check_host(tmp_path, tmp_path / ".interlock")]
    host = ["python", "sqlite", "git", "shell", "journal place", "filesystem", "disk space", "/proc", "pidfd"]
    assert names == host


def test_an_agent_that_is_there_tells_its_version_and_what_it_cannot_do(programs: Callable[[str, str], Path]) -> None:
    path = programs("claude", '[ "$1" = --version ] && echo "2.1.332 (Claude Code)" && echo more')
    assert check(model="deep") == Check(
        name="engine coder",
        ok=True,
        detail=f"agent claude: 2.1.332 (Claude Code) at {path}, model deep; uses its own login",
        notes=(
            "cannot honour base_url, max_tokens, temperature",
            "a schema is put into the prompt, since it enforces none",
            "Denied tools end the attempt.",
        ),
    )


def test_what_is_configured_and_cannot_be_honoured_is_said_first(programs: Callable[[str, str], Path]) -> None:
    programs("claude", "echo 1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = check(base_url=f"http://127.0.0.1:{server.getsockname()[1]}/v1")
    assert found.notes[:2] == (
        "`base_url` is configured, but it cannot honour that",
        "cannot honour max_tokens, temperature",
    )


@pytest.mark.usefixtures("programs")
def test_an_agent_that_is_not_there_says_how_to_get_it() -> None:
    found = check()
    assert (found.ok, found.detail) == (False, "claude is not on PATH; agent claude; uses its own login")
    assert found.hint == "install claude, or set `command` of [engines.coder] to where it is"


@pytest.mark.parametrize("script", ["exit 3", "echo 1.0; exit 1", "true"])
def test_a_program_that_does_not_tell_its_version_is_not_taken_for_one_that_works(
    programs: Callable[[str, str], Path], script: str
) -> None:
    path = programs("claude", script)
    found = check()
    assert not found.ok
    assert found.detail == f"{path} does not tell its version; agent claude; uses its own login"


def test_a_program_that_hangs_is_ended_with_its_children(
    programs: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("claude", f"sleep 300 & echo $! > {tmp_path}/child; wait")
    monkeypatch.setattr(doctor_engines, "_VERSION_S", 1.0)
    assert not check().ok
    child = (tmp_path / "child").read_text().strip()
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().rpartition(") ")[2].startswith("Z")


def test_the_command_of_an_engine_takes_the_place_of_the_program(programs: Callable[[str, str], Path]) -> None:
    path = programs("mine", '[ "$*" = "run --version" ] && echo 7')
    assert check(command=("mine", "run")).detail == f"agent claude: 7 at {path}; uses its own login"


def test_a_command_of_the_user_s_own_is_not_started(programs: Callable[[str, str], Path], tmp_path: Path) -> None:
    path = programs("mine", f"touch {tmp_path}/started")
    assert check(agent="command", command=("mine",)).detail == f"agent command: {path}"
    assert not (tmp_path / "started").exists()


def test_a_key_s_variable_is_named_and_its_value_never(
    programs: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("claude", "echo 1")
    monkeypatch.delenv("CODER_KEY", raising=False)
    missing = check(api_key="CODER_KEY")
    assert (missing.ok, missing.hint) == (False, "export CODER_KEY=...")
    assert missing.detail.startswith("agent claude: 1 at ")
    assert missing.detail.endswith("; key $CODER_KEY is not set")
    monkeypatch.setenv("CODER_KEY", "hush-hush")
    there = check(api_key="CODER_KEY")
    assert there.ok
    assert there.detail.endswith("; key $CODER_KEY is set")
    assert "hush" not in repr(there)


def test_a_key_that_an_env_group_brings_is_not_missed(
    programs: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs("claude", "echo 1")
    monkeypatch.delenv("CODER_KEY", raising=False)
    (tmp_path / ".env").write_text("CODER_KEY=hush\n", encoding="utf-8")
    engine = Engine(name="coder", kind="agent", agent="claude", api_key="CODER_KEY", env=("keys",))
    secret = SecretSource(name="CODER_KEY", command=("pass", "coder"))
    for group in (EnvGroup(name="keys", secrets=(secret,)), EnvGroup(name="keys", dotenv=(".env",))):
        (found,) = check_engines([engine], tmp_path, {"keys": group})
        assert (found.ok, found.detail.rpartition("; ")[2]) == (True, "key $CODER_KEY comes from env group keys")


def test_a_program_beside_the_project_is_found_wherever_one_stands(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    program = tmp_path / "tools/mine"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    engine = Engine(name="mine", kind="agent", agent="command", command=("./tools/mine",))
    (found,) = check_engines([engine], tmp_path)
    assert (found.ok, found.detail) == (True, f"agent command: {program}")
    (gone,) = check_engines([engine], tmp_path / "tools")
    assert (gone.ok, gone.detail) == (False, "./tools/mine is no program; agent command")


def llm(**fields: Any) -> Check:
    return check(**{"kind": "llm", "agent": None, "api": "openai", **fields})


def test_an_api_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_engines, "_SDKS", {"openai": ("no_such.package", "no-such-package")})
    found = llm(model="small-1")
    assert (found.ok, found.hint) == (False, "install it: pip install 'interlock[llm]'")
    assert found.detail == "the package no-such-package is not installed; API openai, model small-1; no key configured"


def test_an_address_where_nothing_listens_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_engines, "_SDKS", {"openai": ("msgspec", "msgspec")})
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = llm(base_url=f"http://127.0.0.1:{port}/v1")
        assert found.ok
        assert f"127.0.0.1:{port} answers" in found.detail
    silent = llm(base_url=f"http://127.0.0.1:{port}/v1")
    assert not silent.ok
    assert f"nothing answers at 127.0.0.1:{port}" in silent.detail
    assert silent.hint == "start what should listen there, or correct base_url of [engines.coder]"
    assert "base_url is no address" in llm(base_url="localhost").detail


def test_an_env_group_tells_what_it_lacks_and_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGION", "north-1")
    monkeypatch.delenv("GONE", raising=False)
    (tmp_path / "good").write_text("A=hidden-value\n", encoding="utf-8")
    (tmp_path / "bad").write_text("hidden-value\n", encoding="utf-8")
    ran = SecretSource(name="RAN", command=("touch", "ran"))
    lost = SecretSource(name="LOST", command=("./no-such-program",))
    whole = EnvGroup(name="whole", vars=("REGION",), dotenv=("good",), secrets=(ran,))
    broken = EnvGroup(name="broken", vars=("GONE",), dotenv=("none", "bad"), secrets=(lost,))
    good, bad = check_groups([whole, broken], tmp_path)
    assert (good.name, good.ok, good.detail) == ("env whole", True, "3 of 3 sources there; no command run")
    assert not (tmp_path / "ran").exists()
    assert (bad.name, bad.ok) == ("env broken", False)
    assert bad.detail == (
        "not set: 'GONE'; dotenv file 'none': no such file or directory; dotenv file 'bad': line 1: expected "
        "NAME=value, a comment or a blank line; the program './no-such-program' for LOST is not there"
    )
    assert bad.hint == "set them before you start interlock, or correct [env.broken]"


def test_doctor_lists_the_engines_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_text(
        '[engines.mine]\nkind = "agent"\nagent = "command"\ncommand = ["/bin/cat"]\n'
        '[engines.gone]\nkind = "agent"\nagent = "command"\ncommand = ["/no/such/program"]\n',
        encoding="utf-8",
    )
    program = [sys.executable, "-c", "from interlock.cli.entry import main; main()", "doctor"]
    done = subprocess.run([*program, "--json"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    found = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert done.returncode == 1
    assert (found["engine mine"]["ok"], found["engine gone"]["ok"]) == (True, False)
    assert found["engine mine"]["detail"] == "agent command: /bin/cat"
    told = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60).stdout
    assert "engine gone" in told
    assert "hint: correct `command` of [engines.gone]" in told
