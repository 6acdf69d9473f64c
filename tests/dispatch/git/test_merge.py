from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.dispatch.git.conftest import Repo

from interlock.dispatch.git import merge as merge_module
from interlock.dispatch.git.base import CheckResult, CheckUnavailableError, IsolationError, Merged, Part
from interlock.dispatch.git.command import Answer, Git
from interlock.dispatch.git.merge import Check, merge_all

AT = 1_700_000_000
GREEN = CheckResult(passed=True)
LINES = "".join(f"{n}\n" for n in range(1, 10))


@pytest.fixture
def base(repo: Repo) -> str:
    return repo.commit({"n.txt": LINES})


def part(repo: Repo, index: int, files: dict[str, str], *, base: str) -> Part:
    ask = repo.ask(f"fix-{index}", commit=base)
    folder = repo.trees.prepare(ask)
    for name, text in files.items():
        (folder / name).write_text(text)
    kept = repo.settle(ask)
    assert kept is not None
    return Part(index=index, item_json=b'"item %d"' % index, commit=kept.commit, ref=kept.ref)


def merged(repo: Repo, base: str, parts: list[Part], check: Check | None = None, branch: str = "fixes") -> Merged:
    path = str(repo.root / ".interlock/worktrees/r1/fix/merge")
    return merge_all(repo.root, path, base, branch, parts, check, AT)


def line(number: int, text: str) -> str:
    return LINES.replace(f"{number}\n", f"{text}\n", 1)


def test_parts_come_together_in_item_order_whatever_order_they_are_given_in(repo: Repo, base: str) -> None:
    before = repo.users()
    parts = [part(repo, n, {"n.txt": line(2 * n + 2, f"item {n}")}, base=base) for n in range(3)]
    found = merged(repo, base, parts[::-1])
    assert [one.index for one in found.merged] == [0, 1, 2]
    assert [one.item for one in found.merged] == ["item 0", "item 1", "item 2"]
    assert (found.conflicts, found.rejected) == ((), ())
    assert repo.show("fixes", "n.txt").split() == [
        "1",
        *["item", "0", "3", "item", "1", "5", "item", "2", "7", "8", "9"],
    ]
    assert repo.refs()["refs/heads/fixes"] == found.commit
    assert repo.git("rev-parse", "fixes^{tree}") == found.tree
    assert str(repo.root / ".interlock/worktrees/r1/fix/merge") not in repo.registered()
    repo.git("branch", "-D", "fixes")
    assert repo.users() == before


def test_merges_are_interlocks_and_commits_stay_their_authors(repo: Repo, base: str) -> None:
    ask = repo.ask(commit=base)
    made = repo.commit({"n.txt": "mine\n"}, at=repo.trees.prepare(ask))
    found = merged(repo, base, [Part(index=0, item_json=b"0", commit=made, ref=ask.ref)])
    said = repo.git("log", "--first-parent", "-1", "--format=%an <%ae> %at %ct", found.commit)
    assert said == f"interlock <interlock@localhost> {AT} {AT}"
    assert repo.git("log", "-1", "--format=%an", f"{found.commit}^2") == "Test"


def test_a_conflict_is_undone_and_told_with_both_sides_kept(repo: Repo, base: str) -> None:
    parts = [part(repo, n, {"n.txt": line(5, f"item {n}"), f"{n}.txt": "x"}, base=base) for n in range(2)]
    parts.append(part(repo, 2, {"n.txt": line(9, "last")}, base=base))
    found = merged(repo, base, parts)
    assert [one.index for one in found.merged] == [0, 2]
    (conflict,) = found.conflicts
    assert (conflict.index, conflict.item, conflict.paths) == (1, "item 1", ("n.txt",))
    assert conflict.ours == found.merged[0].commit == repo.refs()[f"{conflict.ref}.ours"]
    assert conflict.theirs == parts[1].commit == repo.refs()[conflict.ref]
    assert "1.txt" not in repo.files("fixes")


def test_a_name_that_is_no_text_is_told_in_text(repo: Repo, base: str) -> None:
    name = os.fsdecode(b"\xff\n")
    parts = [part(repo, n, {name: f"{n}\n"}, base=base) for n in range(2)]
    assert merged(repo, base, parts).conflicts[0].paths == ("\\xff\n",)


def test_a_red_check_undoes_its_merge_and_the_next_goes_on_without_it(repo: Repo, base: str) -> None:
    parts = [part(repo, n, {f"{n}.txt": "x"}, base=base) for n in range(3)]
    seen: list[tuple[int, set[str]]] = []

    def check(folder: Path, index: int) -> CheckResult:
        seen.append((index, {path.name for path in folder.glob("?.txt")} - {"a.txt", "n.txt"}))
        (folder / "litter.txt").write_text("of a check")
        (folder / "0.txt").write_text("spoiled")
        return CheckResult(passed=index != 1, feedback="too bad")

    found = merged(repo, base, parts, check)
    assert seen == [(0, {"0.txt"}), (1, {"0.txt", "1.txt"}), (2, {"0.txt", "2.txt"})]
    assert [one.index for one in found.merged] == [0, 2]
    assert [(one.index, one.ref, one.feedback) for one in found.rejected] == [(1, parts[1].ref, "too bad")]
    assert repo.refs()[parts[1].ref] == parts[1].commit
    assert repo.show("fixes", "0.txt") == "x"
    assert "litter.txt" not in repo.files("fixes")


def test_a_check_that_cannot_be_judged_stops_the_merge_and_makes_no_branch(repo: Repo, base: str) -> None:
    parts = [part(repo, 0, {"0.txt": "x"}, base=base)]
    with pytest.raises(CheckUnavailableError, match="not started") as caught:
        merged(repo, base, parts, lambda *_: CheckResult(passed=False, unavailable=True, feedback="not started"))
    assert caught.value.index == 0
    assert "refs/heads/fixes" not in repo.refs()
    assert merged(repo, base, parts, lambda *_: GREEN).merged


def test_a_check_works_in_the_projects_place(repo: Repo, make_repo: Callable[..., Repo]) -> None:
    base = repo.commit({"sub/x": ""})
    project = make_repo(root=repo.root / "sub")
    places: list[Path] = []

    def check(folder: Path, _index: int) -> CheckResult:
        places.append(folder)
        return GREEN

    made = part(repo, 0, {"0.txt": "x"}, base=base)
    merge_all(project.root, str(repo.root / ".interlock/worktrees/m"), base, "fixes", [made], check, AT)
    assert places == [repo.root / ".interlock/worktrees/m/sub"]


def test_nothing_to_merge_gives_the_base(repo: Repo, base: str) -> None:
    assert merged(repo, base, []).commit == base == repo.refs()["refs/heads/fixes"]


class DiedError(BaseException):
    pass


def test_a_crash_at_any_call_of_git_leads_to_the_same_commits(
    repo: Repo, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [part(repo, n, {"n.txt": line(5 - n % 2, f"item {n}"), f"{n}.txt": "x"}, base=base) for n in range(5)]

    def check(_folder: Path, index: int) -> CheckResult:
        return CheckResult(passed=index != 1, feedback="no")

    whole = merged(repo, base, parts, check)
    crashes = 0
    while True:
        repo.git("update-ref", "-d", "refs/heads/fixes")
        repo.git("update-ref", "-d", "refs/interlock-branches/fixes")
        left = crashes

        class Dying(Git):
            def _once(
                self, cwd: str, arguments: tuple[str, ...], env: Mapping[str, str], given: bytes | None
            ) -> Answer:
                nonlocal left
                answer = super()._once(cwd, arguments, env, given)
                left -= 1
                if left < 0:
                    raise DiedError
                return answer

        with monkeypatch.context() as patch:
            patch.setattr(merge_module, "Git", Dying)
            try:
                assert merged(repo, base, parts, check) == whole
                break
            except DiedError:
                crashes += 1
        assert merged(repo, base, parts, check) == whole
        assert repo.registered() == [str(repo.root / f".interlock/worktrees/r1/fix-{n}/1") for n in range(5)]
    assert crashes > 20


def test_a_branch_of_the_users_is_never_moved(repo: Repo, base: str) -> None:
    repo.git("branch", "fixes")
    with pytest.raises(IsolationError, match="the branch fixes is there already: it is not interlock's"):
        merged(repo, base, [part(repo, 0, {"0.txt": "x"}, base=base)])
    assert repo.refs()["refs/heads/fixes"] == base


def test_our_branch_moves_unless_the_user_went_on_with_it(repo: Repo, base: str) -> None:
    parts = [part(repo, n, {f"{n}.txt": "x"}, base=base) for n in range(2)]
    merged(repo, base, parts[:1])
    assert len(merged(repo, base, parts).merged) == 2
    repo.git("checkout", "-q", "fixes")
    with pytest.raises(IsolationError, match="the branch fixes is checked out at") as caught:
        merged(repo, base, parts[:1])
    assert caught.value.code == "branch-in-use"
    made = repo.commit({"more.txt": "the user's"})
    repo.git("checkout", "-q", "main")
    with pytest.raises(IsolationError, match="moved by somebody else"):
        merged(repo, base, parts[:1])
    assert repo.refs()["refs/heads/fixes"] == made


def test_a_name_that_no_branch_can_have_is_told(repo: Repo, base: str) -> None:
    with pytest.raises(IsolationError, match=r"'a\.\.b' is no name for a branch"):
        merged(repo, base, [], branch="a..b")


def test_a_part_whose_commit_is_gone_is_told_with_its_ref(repo: Repo, base: str) -> None:
    lost = Part(index=0, item_json=b"0", commit="1" * 40, ref="refs/interlock/r1/u/1")
    with pytest.raises(IsolationError, match="the commit 111111111111 of item 0 is gone"):
        merged(repo, base, [lost])


def test_a_unit_that_began_a_history_of_its_own_is_merged_or_told(repo: Repo, base: str) -> None:
    ask = repo.ask(commit=base)
    folder = repo.trees.prepare(ask)
    repo.git("checkout", "-q", "--orphan", "new", at=folder)
    made = repo.commit({"own.txt": "x"}, at=folder)
    found = merged(repo, base, [Part(index=0, item_json=b"0", commit=made, ref=ask.ref)])
    assert len(found.merged) + len(found.conflicts) == 1


def test_hooks_and_signing_do_not_matter(repo: Repo, base: str) -> None:
    hook = repo.root / ".git/hooks/reference-transaction"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    made = part(repo, 0, {"0.txt": "x"}, base=base)
    hook.chmod(0o644)
    repo.git("config", "commit.gpgSign", "true")
    hook.chmod(0o755)
    assert merged(repo, base, [made], lambda *_: GREEN).merged


def test_a_git_that_died_with_a_check_is_no_hindrance(repo: Repo, base: str) -> None:
    parts = [part(repo, n, {f"{n}.txt": "x"}, base=base) for n in range(2)]

    def check(folder: Path, _index: int) -> CheckResult:
        said = subprocess.run(["git", "rev-parse", "--git-dir"], cwd=folder, capture_output=True, text=True, check=True)
        Path(said.stdout.strip(), "index.lock").touch()
        return GREEN

    assert len(merged(repo, base, parts, check).merged) == 2
