"""What lies on disk of a plan's scripts may be changed by whoever runs: what is started is what was frozen."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.dispatch.shop import Shop, until

from interlock.dispatch.base import Outcome
from interlock.dispatch.commands.scripts import ScriptStore
from interlock.model.plan import Script
from interlock.model.states import Reason


def script(text: str, *interpreter: str, name: str = "tools/say.sh") -> Script:
    content = text.encode()
    return Script(
        path=name,
        sha256="sha256:" + hashlib.sha256(content).hexdigest(),
        content_b64=base64.b64encode(content).decode(),
        interpreter=interpreter,
    )


def in_a_row(shop: Shop, target: Script, count: int) -> list[Outcome]:
    """Run the attempts of one job one after the other."""
    job = shop.job(target)
    found = []
    for _ in range(count):
        request = shop.request(job)
        shop.runner.start(request)
        found.append(shop.outcome(request))
    return found


# each keeps to one compound command: bash reads on in the file that it runs
@pytest.mark.parametrize(
    "mischief",
    [
        'echo "echo tampered" > "$0"',
        'chmod u+w "$0"; echo "echo tampered" > "$0"',
        'rm -f "$0"',
        'rm -f "$0"; echo "echo tampered" > "$0"; chmod 700 "$0"',
        'chmod 000 "$0"',
        'echo "echo tampered" > other; chmod 700 other; ln -sf "$PWD/other" "$0"',
        'echo "echo tampered" > other; chmod 700 other; mv -f other "$0"',
        'rm -f "$0"; mkfifo "$0"',
        'rm -rf "$(dirname "$0")"',
        'touch -d @0 "$0"',
    ],
)
@pytest.mark.parametrize("interpreter", [(), ("bash",)])
def test_whatever_an_attempt_does_to_its_script_the_next_one_runs_what_was_frozen(
    shop: Shop, mischief: str, interpreter: tuple[str, ...]
) -> None:
    text = f"#!/bin/bash\n{{ {mischief}; echo frozen; exit; }}\n"
    assert [outcome.output for outcome in in_a_row(shop, script(text, *interpreter), 3)] == [b"frozen\n"] * 3


def test_a_change_within_a_tick_of_the_clock_that_keeps_size_and_times_is_seen(tmp_path: Path) -> None:
    copy = ScriptStore(tmp_path).copy(script("echo frozen"))
    path = copy.path
    copy.renew()
    path.chmod(0o700)
    path.write_text("echo FROZEN")
    path.chmod(0o500)
    copy.renew()
    assert path.read_text() == "echo frozen"


def test_an_old_file_is_looked_at_and_neither_read_nor_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    read_bytes = Path.read_bytes

    def reading(path: Path) -> bytes:
        reads.append(path)
        return read_bytes(path)

    def is_settled() -> bool:
        reads.clear()
        copy.renew()
        return not reads

    monkeypatch.setattr(Path, "read_bytes", reading)
    copy = ScriptStore(tmp_path).copy(script("echo frozen"))
    copy.renew()
    inode = copy.path.stat().st_ino
    until(is_settled)
    assert copy.path.stat().st_ino == inode


def test_one_that_is_taken_away_while_it_is_looked_at_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = ScriptStore(tmp_path).copy(script("echo frozen"))
    copy.renew()
    read_bytes = Path.read_bytes

    def reading(path: Path) -> bytes:
        path.unlink()
        return read_bytes(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", reading)
        copy.renew()
    assert copy.path.read_text() == "echo frozen"


def test_it_may_not_be_written_to_and_keeps_its_name(shop: Shop) -> None:
    [outcome] = in_a_row(shop, script('stat -c %a "$0"; basename "$0"; ls "$(dirname "$0")"', "sh"), 1)
    mode, name, *siblings = outcome.output.decode().split()
    assert (mode, siblings) == ("500", [name])
    assert name.endswith("-say.sh")


def test_what_happens_to_one_driver_s_file_reaches_no_other_driver(open_shop: Callable[..., Shop]) -> None:
    one, other = open_shop(), open_shop()
    target = script('echo "$0"', "bash")
    [first], [second] = in_a_row(one, target, 1), in_a_row(other, target, 1)
    mine, theirs = (Path(outcome.output.decode().strip()) for outcome in (first, second))
    assert mine != theirs
    mine.chmod(0o700)
    mine.write_text("echo tampered")
    inode = theirs.stat().st_ino
    assert in_a_row(other, target, 1)[0].output == second.output
    assert theirs.stat().st_ino == inode
    assert in_a_row(one, target, 1)[0].output == first.output


def test_many_at_a_time_that_replace_their_script_all_run(shop: Shop) -> None:
    text = '#!/bin/bash\n{ cp "$0" new.$$; chmod 700 new.$$; mv -f new.$$ "$0"; echo frozen; exit; }\n'
    job = shop.job(script(text))
    requests = [shop.request(job) for _ in range(40)]
    for request in requests:
        shop.runner.start(request)
    assert {shop.outcome(request).output for request in requests} == {b"frozen\n"}


def test_a_script_that_cannot_be_written_anew_is_not_run(shop: Shop) -> None:
    text = '{ rm -f "$0"; mkdir "$0"; echo "$0"; exit; }'
    first, second = in_a_row(shop, script(text, "bash"), 2)
    path = first.output.decode().strip()
    assert (second.status, second.reason, second.answered) == ("failed", Reason.DISPATCH_ERROR, True)
    assert second.error == f"`{path}.new` could not be written: Is a directory"


def test_the_folder_goes_with_its_driver_and_that_of_a_killed_one_with_the_next(
    open_shop: Callable[..., Shop], tmp_path: Path
) -> None:
    place = tmp_path / "scratch" / "scripts"
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            ScriptStore(place).copy(script("echo")).renew()
        os._exit(0)
    os.waitpid(pid, 0)
    [left] = place.iterdir()
    shop = open_shop()
    in_a_row(shop, script("echo", "sh"), 1)
    [own] = place.iterdir()
    assert own != left
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    shop.close()
    assert list(place.iterdir()) == []
