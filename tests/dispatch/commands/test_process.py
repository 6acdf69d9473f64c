from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.dispatch.shop import PATIENCE_S, Shop, runs, until

from interlock.dispatch.base import Job
from interlock.dispatch.commands.output import CHECK_BYTES
from interlock.dispatch.env.redact_base import NullRedactor, ResolvedEnv
from interlock.model.plan import Command
from interlock.model.states import Reason


def test_a_command_that_succeeds_gives_its_stdout_and_its_process(shop: Shop) -> None:
    request = shop.start("echo hello")
    outcome = shop.outcome(request)
    assert (outcome.status, outcome.output, outcome.exit_code) == ("ok", b"hello\n", 0)
    assert outcome.answered
    assert outcome.process == shop.started(request).process
    assert 0 < outcome.started_at <= outcome.ended_at


def test_argv_is_run_without_a_shell(shop: Shop) -> None:
    outcome = shop.run(Command(argv=("printf", "%s|", "a b", "$HOME", "*")))
    assert outcome.output == b"a b|$HOME|*|"


def test_shell_text_runs_under_the_plans_shell_options(shop: Shop) -> None:
    outcome = shop.run("false | cat; echo not reached")
    assert (outcome.reason, outcome.output) == (Reason.NON_ZERO_EXIT, b"")


def test_a_non_zero_exit_fails_with_the_end_of_stderr(shop: Shop) -> None:
    outcome = shop.run("echo out; echo why >&2; exit 3")
    assert (outcome.status, outcome.reason, outcome.exit_code) == ("failed", Reason.NON_ZERO_EXIT, 3)
    assert outcome.error == "exit code 3: why"
    assert outcome.answered


def test_a_non_zero_exit_without_stderr_shows_the_end_of_stdout(shop: Shop) -> None:
    assert shop.run("echo 1 failed; exit 1").error == "exit code 1: 1 failed"
    assert shop.run("exit 4").error == "exit code 4"


def test_only_the_last_2_kib_of_stderr_stand_in_the_error(shop: Shop) -> None:
    outcome = shop.run("head -c 300000 /dev/zero >&2; printf END >&2; exit 1")
    assert outcome.error.endswith("END")
    assert len(outcome.error) <= 2048 + len("exit code 1: ")


def test_a_check_may_exit_as_it_likes(shop: Shop) -> None:
    outcome = shop.run("echo feedback; echo detail >&2; exit 7", accepts_any_exit=True)
    assert (outcome.status, outcome.exit_code, outcome.output) == ("ok", 7, b"feedback\ndetail\n")
    assert outcome.error == "exit code 7: detail"


@pytest.mark.parametrize(
    ("check", "output"),
    [
        ("echo why >&2; exit 1", b"why\n"),
        ("printf so; echo why >&2; exit 1", b"so\nwhy\n"),
        ("exit 1", b""),
        ("echo fine; echo noise >&2", b"fine\n"),
    ],
)
def test_what_a_check_that_does_not_pass_says_on_either_stream_is_its_output(
    shop: Shop, check: str, output: bytes
) -> None:
    assert shop.run(check, accepts_any_exit=True).output == output


@pytest.mark.parametrize("code", [0, 3])
def test_a_check_is_judged_by_its_exit_however_much_it_prints(shop: Shop, code: int) -> None:
    check = f"seq 800000; echo END; echo why >&2; exit {code}"
    outcome = shop.run(check, accepts_any_exit=True, keeps_end=True)
    assert (outcome.status, outcome.reason, outcome.exit_code) == ("ok", None, code)
    assert outcome.output.endswith(b"\n800000\nEND\nwhy\n" if code else b"\n800000\nEND\n")
    assert len(outcome.output) <= CHECK_BYTES + len("why\n"), "of what is not wanted nothing is kept"


def test_a_probe_that_says_no_may_print_as_much_as_it_likes_and_one_that_says_yes_gives_its_result(shop: Shop) -> None:
    no = shop.run("seq 800000; exit 1", accepts_any_exit=True)
    assert (no.status, no.reason, no.exit_code) == ("ok", None, 1)
    yes = shop.run("seq 800000", accepts_any_exit=True)
    assert (yes.status, yes.reason, yes.exit_code) == ("failed", Reason.OUTPUT_TOO_LARGE, 0)


def test_death_by_a_signal_is_killed_and_no_answer(shop: Shop) -> None:
    outcome = shop.run("kill -KILL $$", accepts_any_exit=True)
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.KILLED, False)
    assert outcome.error == "ended by SIGKILL"


def test_a_20_mb_line_on_both_streams_at_once_arrives_whole(shop: Shop) -> None:
    text = "import sys; sys.stderr.write('e' * 20_000_000); sys.stdout.write('o' * 20_000_000)"
    outcome = shop.run(Command(argv=("python3", "-c", text)), max_result_bytes=30_000_000)
    assert outcome.status == "ok"
    assert outcome.output == b"o" * 20_000_000


def test_bytes_that_are_no_text_are_kept_in_the_result_and_replaced_in_the_error(shop: Shop) -> None:
    assert shop.run(r"printf 'a\377\000b'").output == b"a\xff\x00b"
    assert shop.run(r"printf 'a\377b' >&2; exit 1").error == "exit code 1: a�b"


def test_a_result_of_exactly_the_limit_passes_with_its_newline_and_one_byte_more_fails(shop: Shop) -> None:
    assert shop.run("printf '12345678\n'", max_result_bytes=8).output == b"12345678\n"
    outcome = shop.run("printf 123456789", max_result_bytes=8)
    assert (outcome.status, outcome.reason, outcome.output) == ("failed", Reason.OUTPUT_TOO_LARGE, b"")
    assert (
        outcome.error
        == "the result is larger than 8 bytes (max_result_bytes of [limits]); write it to a file and print the path"
    )


def test_a_command_that_never_stops_printing_is_ended_as_output_too_large(shop: Shop) -> None:
    request = shop.start("yes", max_result_bytes=100_000)
    outcome = shop.outcome(request)
    assert (outcome.reason, outcome.answered) == (Reason.OUTPUT_TOO_LARGE, False)
    assert not runs(shop.started(request).process.pid)


def test_stdin_is_empty(shop: Shop) -> None:
    assert shop.run("wc -c").output.strip() == b"0"


def test_a_child_that_closes_its_stdin_and_output_is_judged_by_its_exit(shop: Shop) -> None:
    outcome = shop.run("exec 0<&- 1>&- 2>&-; sleep 0.2; exit 5")
    assert (outcome.reason, outcome.exit_code) == (Reason.NON_ZERO_EXIT, 5)


def test_every_attempt_leads_a_session_and_a_group_of_its_own(shop: Shop) -> None:
    outcome = shop.run("echo $$; ps -o pgid=,sid= -p $$")
    leader, group, session = outcome.output.split()
    assert leader == group == session
    assert int(group) != os.getpgrp()


def test_no_descriptor_of_ours_reaches_a_child(shop: Shop) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)  # noqa: FBT003 - the only form there is
    try:
        names = shop.run("for fd in /proc/self/fd/*; do echo ${fd##*/}; done; :").output
    finally:
        os.close(reading)
        os.close(writing)
    assert int(max(names.split(), key=int)) <= 3, "the shell reads the folder itself through 3"


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (("no-such-program",), "program `no-such-program` was not found on PATH; install it or give its full path"),
        (("./missing",), "program `./missing` does not exist; check the path"),
        (("./plain",), "`./plain` is not executable; run `chmod +x` on it or name its interpreter"),
        (
            ("./orphan",),
            "`./orphan` names an interpreter in its `#!` line that does not exist; install it or mend the line",
        ),
        (
            ("./noise",),
            "`./noise` is not a program that this machine can run; give it a `#!` line or name its interpreter",
        ),
        (("true", "a\0b"), "the command cannot be run: embedded null byte"),
    ],
)
def test_what_cannot_be_started_says_what_and_what_to_do(shop: Shop, argv: tuple[str, ...], error: str) -> None:
    (shop.folder / "plain").write_text("text")
    for name, text in (("orphan", "#!/no/such/interpreter\n"), ("noise", "\1\2\3")):
        (shop.folder / name).write_text(text)
        (shop.folder / name).chmod(0o755)
    outcome = shop.run(Command(argv=argv))
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.SPAWN_FAILED, True)
    assert outcome.error == error
    assert outcome.process is None


def test_a_working_directory_that_is_gone_is_named(shop: Shop) -> None:
    outcome = shop.run("true", cwd=str(shop.folder / "gone"))
    assert outcome.reason is Reason.SPAWN_FAILED
    assert outcome.error == (f"the working directory `{shop.folder}/gone` does not exist; create it or change `cwd`")


def test_arguments_beyond_what_the_system_takes_are_a_failure_with_its_size(shop: Shop) -> None:
    outcome = shop.run(Command(argv=("true", "x" * 3_000_000)))
    assert outcome.reason is Reason.SPAWN_FAILED
    assert outcome.error.startswith("arguments and environment of `true` are too large (")
    assert outcome.error.endswith(" bytes); pass data in files")


def test_params_that_are_too_much_together_are_left_out_and_the_command_runs(shop: Shop) -> None:
    params = {f"p{n}": "x" * 60_000 for n in range(60)} | {"small": "here"}
    outcome = shop.run('echo "$INTERLOCK_PARAM_SMALL"', params_json=json.dumps(params).encode())
    assert (outcome.status, outcome.output) == ("ok", b"here\n")


def test_a_timeout_ends_a_whole_tree_that_ignores_sigterm_after_the_grace(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.dispatch.commands.supervisor.KILL_AFTER_S", 0.3)
    request = shop.start(
        "trap '' TERM; bash -c 'while :; do sleep 1; done' & while :; do sleep 1; done", timeout_ms=300
    )
    outcome = shop.outcome(request)
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.TIMEOUT, False)
    assert outcome.error == "timed out after 300ms"


def test_a_timeout_lets_a_child_end_in_its_own_way(shop: Shop) -> None:
    outcome = shop.run("trap 'echo tidy > done; exit 0' TERM; while :; do sleep 0.05; done", timeout_ms=300)
    assert outcome.reason is Reason.TIMEOUT
    assert (shop.folder / "done").read_text() == "tidy\n"


def test_silence_without_work_is_an_idle_timeout(shop: Shop) -> None:
    began = time.monotonic()
    outcome = shop.run("sleep 60", idle_timeout_ms=300)
    assert (outcome.reason, outcome.answered) == (Reason.IDLE_TIMEOUT, False)
    assert outcome.error == "no output and no processor time for 300ms"
    assert time.monotonic() - began < 20


def test_output_and_processor_time_hold_off_an_idle_timeout(shop: Shop) -> None:
    talks = shop.run("for i in 1 2 3 4 5 6 7 8; do echo .; sleep 0.2; done", idle_timeout_ms=800)
    works = shop.run("end=$((SECONDS + 2)); (while [ $SECONDS -lt $end ]; do :; done)", idle_timeout_ms=800)
    assert (talks.status, works.status) == ("ok", "ok")


def test_a_cancel_ends_the_attempt_as_aborted(shop: Shop) -> None:
    request = shop.start("sleep 60")
    pid = shop.started(request).process.pid
    shop.runner.cancel([request.dispatch], 5.0)
    outcome = shop.outcome(request)
    assert (outcome.status, outcome.reason, outcome.answered) == ("aborted", Reason.ABORTED, False)
    assert not runs(pid)


def test_a_second_cancel_with_no_grace_kills_at_once(shop: Shop) -> None:
    request = shop.start("trap 'echo > asked' TERM; echo > up; while :; do sleep 0.05; done")
    until((shop.folder / "up").exists)
    shop.runner.cancel(None, 600.0)
    until((shop.folder / "asked").exists)
    shop.runner.cancel(None, 0.0)
    assert shop.outcome(request).status == "aborted"


def test_cancelling_what_is_unknown_or_over_does_nothing(shop: Shop) -> None:
    request = shop.start("true")
    shop.outcome(request)
    shop.runner.cancel([request.dispatch, "never heard of"], 0.0)
    assert shop.run("echo fine").output == b"fine\n"


def test_eight_at_a_time_each_get_exactly_one_outcome(shop: Shop) -> None:
    job = shop.job('echo "$INTERLOCK_ITEM"')
    requests = [shop.request(job, index=n, item_json=b"%d" % n) for n in range(40)]
    for request in requests:
        shop.runner.start(request)
    assert [shop.outcome(request).output for request in requests] == [b"%d\n" % n for n in range(40)]


def test_close_ends_what_runs_and_can_be_repeated(shop: Shop) -> None:
    requests = [shop.start("trap '' TERM; sleep 60") for _ in range(3)]
    pids = [shop.started(request).process.pid for request in requests]
    shop.runner.close()
    shop.runner.close()
    assert [shop.outcome(request).status for request in requests] == ["aborted"] * 3
    assert not any(map(runs, pids))


def test_a_fault_of_our_own_is_an_outcome_too(shop: Shop) -> None:
    outcome = shop.run("true", params_json=b"not json")
    assert outcome.reason is Reason.DISPATCH_ERROR
    assert outcome.error.startswith("interlock failed to carry out the attempt: DecodeError: ")
    assert shop.run("echo fine").output == b"fine\n"


def test_a_scratch_folder_that_cannot_be_made_is_named(shop: Shop) -> None:
    (shop.folder / "scratch").write_text("in the way")
    outcome = shop.run("true")
    assert (outcome.reason, outcome.answered) == (Reason.DISPATCH_ERROR, True)
    assert str(shop.folder / "scratch") in outcome.error


def test_no_context_is_left_after_close(shop: Shop) -> None:
    assert shop.run("test -s $INTERLOCK_CONTEXT").status == "ok"
    shop.runner.close()
    assert list(Path(shop.folder / "scratch").rglob("*.json")) == []


def test_nothing_starts_after_close(shop: Shop) -> None:
    shop.runner.close()
    outcome = shop.run("touch ran")
    assert (outcome.status, outcome.answered, outcome.error) == ("aborted", True, "cancelled before it began")
    assert not (shop.folder / "ran").exists()


def test_a_cancel_while_the_environment_is_resolved_starts_nothing(shop: Shop) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slow(_: Job) -> ResolvedEnv:
        asked.set()
        assert go_on.wait(PATIENCE_S)
        return ResolvedEnv({}, NullRedactor())

    shop.env_for = slow
    request = shop.start("touch ran", env=("slow",))
    assert asked.wait(PATIENCE_S)
    shop.runner.cancel(None, 5.0)
    go_on.set()
    outcome = shop.outcome(request)
    assert (outcome.status, outcome.answered) == ("aborted", True)
    assert not (shop.folder / "ran").exists()


def test_without_pidfds_exits_timeouts_and_strays_work_as_well(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    assert shop.run("echo fine").output == b"fine\n"
    assert shop.run("exec >&- 2>&-; exit 3").exit_code == 3
    request = shop.start("setsid sleep 600 & echo $! > child; sleep 600", timeout_ms=500)
    assert shop.outcome(request).reason is Reason.TIMEOUT
    assert not runs(int((shop.folder / "child").read_text()))


def test_without_proc_psutil_finds_the_tree(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.dispatch.processes.identity.HAS_PROC", False)
    request = shop.start("setsid sleep 600 & echo $! > child; sleep 600", timeout_ms=700)
    assert shop.outcome(request).reason is Reason.TIMEOUT
    assert not runs(int((shop.folder / "child").read_text()))


def test_an_exit_code_that_another_waiter_took_is_not_a_success(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def stolen(_kind: int, pid: int, _options: int) -> None:
        os.waitpid(pid, 0)
        raise ChildProcessError(10, "No child processes")

    monkeypatch.setattr(os, "waitid", stolen)
    outcome = shop.run("echo done")
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.DISPATCH_ERROR, False)
    assert outcome.error == "the exit code is unknown: another part of this program waits for all children"


def test_a_driver_that_was_started_with_ignored_sigchld_still_sees_exit_codes(tmp_path: Path) -> None:
    text = """
import os, queue, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from pathlib import Path
from tests.dispatch.shop import Shop
shop = Shop(Path(sys.argv[1]))
outcome = shop.run("exit 3")
shop.close()
print(outcome.exit_code)
"""
    found = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.stdout, found.stderr) == ("3\n", "")


def test_too_many_open_files_are_a_spawn_failure_that_says_so(shop: Shop) -> None:
    shop.run("true")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - one listing
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
    try:
        outcome = shop.run("true")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert outcome.reason is Reason.SPAWN_FAILED
    assert outcome.error.startswith("too many open files")
    assert shop.run("echo fine").output == b"fine\n"
