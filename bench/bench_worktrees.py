"""Worktrees through Trees against a bare loop of `git worktree add` and `remove` in threads, in the same run.

The ratio must be at most 1.3: what is checked and kept may cost little beside the checkout itself. Each loop goes first in
every other round, and the rounds' ratios are averaged as ratios are, so that a host which slows down favours neither.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from interlock.dispatch.git.base import WorktreeAsk
from interlock.dispatch.git.trees import Trees

FILES = 5_000
UNITS = 50
CONCURRENCY = 8
ROUNDS = 4
MOST = 1.3
_RACES = 20


def git(root: Path, *arguments: str) -> str:
    for _ in range(_RACES):
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    raise AssertionError(done.stderr)


def repository(folder: Path) -> Path:
    root = folder / "repository"
    root.mkdir()
    for number in range(FILES):
        path = root / f"d{number % 50}" / f"f{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number}\n" * 40)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "-c", "user.name=bench", "-c", "user.email=bench@example.invalid", "commit", "-qm", "bench")
    return root


def bare(root: Path, folder: Path, commit: str) -> float:
    def one(number: int) -> None:
        path = str(folder / f"bare-{number}")
        git(root, "worktree", "add", "--detach", path, commit)
        git(root, "worktree", "remove", path)

    with ThreadPoolExecutor(CONCURRENCY) as pool:
        began = time.perf_counter()
        list(pool.map(one, range(UNITS)))
        return time.perf_counter() - began


def ours(root: Path, folder: Path, commit: str) -> float:
    trees = Trees(os.environ)

    def one(number: int) -> None:
        path, ref = str(folder / "worktrees/run" / f"u{number}" / "1"), f"refs/interlock/run/u{number}/1"
        ask = WorktreeAsk(root=str(root), commit=commit, path=path, ref=ref)
        trees.prepare(ask)
        assert trees.settle(ask) is None

    with ThreadPoolExecutor(CONCURRENCY) as pool:
        began = time.perf_counter()
        list(pool.map(one, range(UNITS)))
        trees.finish()
        took = time.perf_counter() - began
    trees.close()
    assert trees.left == []
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of loops, the first of each in turn")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = repository(folder)
        commit = git(root, "rev-parse", "HEAD")
        print(f"{UNITS} worktrees of {FILES} files, {CONCURRENCY} at a time; seconds", flush=True)
        pairs = []
        for number in range(rounds):
            first, second = (bare, ours) if number % 2 == 0 else (ours, bare)
            took = {one: one(root, folder, commit) for one in (first, second)}
            pairs.append((took[bare], took[ours]))
            raw, own = pairs[-1]
            print(f"git worktree add + remove {raw:.2f}   Trees {own:.2f}   ratio {own / raw:.2f}", flush=True)
    ratio = statistics.geometric_mean(own / raw for raw, own in pairs)
    print(f"ratio {ratio:.2f} (at most {MOST})")
    return 0 if ratio <= MOST else 1


if __name__ == "__main__":
    raise SystemExit(main())
