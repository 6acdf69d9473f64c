"""The engine under measure: workflow files made on the spot, run by the installed `interlock` as a whole process."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec
from bench import measure

POLL_S = 0.001
GLANCE_S = 0.5
CRASH_UNITS = 1_000
CRASH_UNIT_S = 0.005
CONCURRENCY = 8

MODULE = """
import os, time

def noop(context):
    return None

def nap(context):
    time.sleep(0.005)
    with open(context["params"]["counter"], "ab", 0) as file:
        file.write(b".")
    return context["item"]
"""


class Project:
    """A fresh project folder with one workflow and a home of its own, removed at the end."""

    def __init__(self, base: Path, target: str, units: int) -> None:
        """Write workflow, module and parameters."""
        self.folder = Path(tempfile.mkdtemp(prefix="project-", dir=base))
        self.env = {**measure.environment(), "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "config")}
        self.program = str(Path(sys.executable).with_name("interlock"))
        (self.folder / "interlock.toml").write_text("", encoding="utf-8")
        (self.folder / "work.py").write_text(MODULE, encoding="utf-8")
        self.counter = self.folder / "counter"
        params = {"items": list(range(units)), "counter": str(self.counter)}
        (self.folder / "params.json").write_text(json.dumps(params), encoding="utf-8")
        over = f"    map: {{ over: params.items, concurrency: {CONCURRENCY} }}\n" if units else ""
        (self.folder / "flow.md").write_text(
            "---\ntype: workflow\nparams:\n  items: { type: array }\n  counter: { type: string }\n"
            f"steps:\n  - id: work\n{over}    {target}\n---\n# Bench\n",
            encoding="utf-8",
        )

    def argv(self, *arguments: str) -> list[str]:
        """Return the command line of one call."""
        return [self.program, *arguments]

    def run(self) -> measure.Measured:
        """Run the workflow in a fresh journal."""
        shutil.rmtree(self.folder / ".interlock", ignore_errors=True)
        return measure.run(self.argv("run", "flow.md", "--params-file", "params.json"), cwd=self.folder, env=self.env)

    def ask(self, *arguments: str) -> bytes:
        """Return what a read command prints."""
        return measure.run(self.argv(*arguments), cwd=self.folder, env=self.env, keep=True).output

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def median_run(base: Path, target: str, units: int, times: int) -> measure.Measured:
    """Return the run with the median wall time."""
    project = Project(base, target, units)
    try:
        runs = sorted((project.run() for _ in range(times)), key=lambda r: r.wall_s)
    finally:
        project.remove()
    return runs[len(runs) // 2]


def version_ms(base: Path, times: int) -> float:
    """Return the median wall time of `interlock --version`."""
    project = Project(base, "run: [/bin/true]", 0)
    try:
        return measure.repeat(
            times,
            lambda: measure.run(project.argv("--version"), cwd=project.folder, env=project.env).wall_s * 1e3,
        )
    finally:
        project.remove()


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    """What a SIGKILL at half cost. `ideal_s` is units times their length over the places."""

    until_kill_s: float
    resume_s: float
    ideal_s: float
    executed: int
    completed_twice: int

    @property
    def over_ideal_s(self) -> float:
        """Both runs together, less the ideal."""
        return self.until_kill_s + self.resume_s - self.ideal_s


def takeover_ms(base: Path) -> float:
    """Kill a driver in the middle of a command, and return how long the next one takes for the whole rest of the run."""
    project = Project(base, 'run: "echo > begun; test -e open || sleep 60"', 0)
    try:
        driver = subprocess.Popen(
            project.argv("run", "flow.md", "--params-file", "params.json"),
            cwd=project.folder,
            env=project.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not (project.folder / "begun").exists():
            time.sleep(POLL_S)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        (project.folder / "open").touch()
        return measure.run(project.argv("run", "last"), cwd=project.folder, env=project.env).wall_s * 1e3
    finally:
        project.remove()


def reading_ms(base: Path, target: str, units: int, times: int) -> float:
    """Return the median wall time of `status` on a finished run of so many units."""
    project = Project(base, target, units)
    try:
        project.run()
        argv = project.argv("status")
        return measure.repeat(times, lambda: measure.run(argv, cwd=project.folder, env=project.env).wall_s * 1e3)
    finally:
        project.remove()


def tree_mib(base: Path, target: str, units: int) -> float:
    """Return the most memory (PSS) that the driver and all below it held together at a glance every half second."""
    project = Project(base, target, units)
    try:
        argv = project.argv("run", "flow.md", "--params-file", "params.json")
        driver = subprocess.Popen(
            argv, cwd=project.folder, env=project.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        most = 0.0
        while driver.poll() is None:
            most = max(most, measure.tree_mib(driver.pid))
            time.sleep(GLANCE_S)
        return most
    finally:
        project.remove()


def crash(base: Path) -> Crash:
    """Kill the driver when half of the units did their work, run again, and count from the journal."""
    project = Project(base, "uses: python:work:nap", CRASH_UNITS)
    try:
        until_kill = _run_until_half(project)
        run_id = json.loads(project.ask("list", "--json"))[0]["id"]
        began = time.perf_counter()
        measure.run(project.argv("run", run_id), cwd=project.folder, env=project.env)
        resume = time.perf_counter() - began
        return Crash(
            until_kill_s=until_kill,
            resume_s=resume,
            ideal_s=CRASH_UNITS * CRASH_UNIT_S / CONCURRENCY,
            executed=project.counter.stat().st_size,
            completed_twice=_completed_twice(project, run_id),
        )
    finally:
        project.remove()


def _run_until_half(project: Project) -> float:
    """Return how long the driver lived."""
    argv = project.argv("run", "flow.md", "--params-file", "params.json")
    began = time.perf_counter()
    driver = subprocess.Popen(
        argv, cwd=project.folder, env=project.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not project.counter.exists() or project.counter.stat().st_size < CRASH_UNITS // 2:
        if driver.poll() is not None:
            raise measure.FailedError("the driver ended before half of the units were done")
        time.sleep(POLL_S)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    return time.perf_counter() - began


def _completed_twice(project: Project, run_id: str) -> int:
    """Count units with more than one completed attempt in the journal's events."""
    done: Counter[tuple[int, int]] = Counter()
    for line in project.ask("events", run_id, "--json").splitlines():
        event = json.loads(line)
        if event["type"] == "attempt_finished" and event["state"] == "completed":
            done[event["step"], event["unit"]] += 1
    return sum(1 for times in done.values() if times > 1)
