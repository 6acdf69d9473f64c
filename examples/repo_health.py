"""The Python functions of `repo-health.md`: history, structure, the score and the report.

Each gets the step's context (`params`, `inputs`, ...) and returns a JSON value. They read one commit by its id,
never the files of the working tree. Needs Python 3.8+ and git.
"""

from __future__ import annotations

import collections
import os
import posixpath
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Context = dict[str, Any]
    Problem = dict[str, Any]

MAX_PLACES = 10
NEWEST = "--max-count=5000"
DAY_S = 86_400
QUIET_DAYS = 365
SMALL_BYTES = 1_024
MUCH_WASTE_BYTES = 100_000
MANY_TODOS_PER_1000 = 5
MANY_LONG_PERCENT = 1


def git(*arguments: str) -> bytes:
    """Return what git prints; its error text is the unit's error."""
    done = subprocess.run(["git", *arguments], capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"git {arguments[0]}: {done.stderr.decode('utf-8', 'replace').strip()}")
    return done.stdout


def shown(path: bytes) -> str:
    """Return a file name as text, whatever its bytes are."""
    return path.decode("utf-8", "backslashreplace")


def history(context: Context) -> Context:
    """Count commits and authors since a date, and find the files that change most."""
    commit, since = context["inputs"]["commit"], context["params"]["since"]
    log = git("log", "-z", "--no-renames", "--name-only", "--format=%x01%at %aE", f"--since={since}", NEWEST, commit)
    commits, authors = 0, set()
    churn: collections.Counter[bytes] = collections.Counter()
    for part in log.replace(b"\0\n", b"\0").split(b"\0"):
        if part.startswith(b"\x01"):
            head, _, first = part[1:].partition(b"\n")
            commits += 1
            authors.add(head.partition(b" ")[2])
            part = first  # noqa: PLW2901 - the first file stands in the same field as the head
        if part:
            churn[part] += 1
    last = int(git("log", "-1", "--format=%ct", commit))
    return {
        "commits": commits,
        "authors": len(authors),
        "shallow": git("rev-parse", "--is-shallow-repository").strip() == b"true",
        "last_commit_days": max(0, int((time.time() - last) // DAY_S)),
        "churn": [{"path": shown(path), "changes": n} for path, n in churn.most_common(10) if n > 1],
    }


def structure(context: Context) -> Context:
    """Find duplicate files, broken links and names that collide where case does not count."""
    listing = git("ls-tree", "-r", "-t", "-z", "-l", context["inputs"]["commit"])
    paths, links = set(), []
    same: dict[tuple[bytes, int], list[bytes]] = collections.defaultdict(list)
    folded: dict[str, list[bytes]] = collections.defaultdict(list)
    submodules = 0
    for entry in filter(None, listing.split(b"\0")):
        meta, path = entry.split(b"\t", 1)
        mode, kind, oid, size = meta.split()
        paths.add(path)
        folded[shown(path).casefold()].append(path)
        submodules += kind == b"commit"
        if mode == b"120000":
            links.append((path, oid.decode()))
        elif kind == b"blob" and size.isdigit() and int(size) >= SMALL_BYTES:
            same[oid, int(size)].append(path)
    copies = sorted(((s * (len(p) - 1), p) for (_, s), p in same.items() if len(p) > 1), reverse=True)
    return {
        "submodules": submodules,
        "links": len(links),
        "broken_links": [shown(path) for path, oid in links if broken(path, oid, paths)],
        "collisions": [[shown(p) for p in group] for group in folded.values() if len(group) > 1],
        "duplicates": [{"paths": [shown(p) for p in group[:5]], "wasted_bytes": n} for n, group in copies[:10]],
        "wasted_bytes": sum(n for n, _ in copies),
    }


def broken(path: bytes, oid: str, paths: set[bytes]) -> bool:
    """Tell whether a link inside the repository leads to nothing that is tracked."""
    target = git("cat-file", "blob", oid)
    if target.startswith(b"/"):
        return False
    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return resolved not in paths and resolved != b"." and not resolved.startswith(b"..")


def problem(title: str, points: int, advice: str, places: list[str] | None = None) -> Problem:
    """Return one thing to mend: what, how many points it costs, what to do, and where it is."""
    found = places or []
    return {"title": title, "points": points, "advice": advice, "places": found[:MAX_PLACES], "count": len(found)}


def place(finding: Context) -> str:
    """Return file and line of a finding, with what makes it one."""
    line = f":{finding['line']}" if "line" in finding else ""
    what = f" ({finding['what']})" if "what" in finding else ""
    size = f" ({finding['count'] // 1024} KiB)" if finding["kind"] == "large" else ""
    return f"{finding['path']}{line}{what}{size}"


def content_problems(found: list[Context], totals: Context) -> list[Problem]:
    """Judge what the scan found inside the files."""
    by_kind: dict[str, list[str]] = collections.defaultdict(list)
    for finding in found:
        by_kind[finding["kind"]].append(place(finding))
    lines = max(1, totals["lines"])
    problems = []
    if by_kind["secret"]:
        advice = "Revoke them first, then remove them: what was pushed is known."
        problems.append(problem("What looks like secrets is committed", 40, advice, by_kind["secret"]))
    if by_kind["conflict"]:
        problems.append(problem("Merge conflict markers are committed", 20, "Resolve them.", by_kind["conflict"]))
    if by_kind["large"]:
        advice = "Keep build results and data out of git, or in git-lfs."
        problems.append(problem("Large files", min(15, 3 * len(by_kind["large"])), advice, by_kind["large"]))
    if by_kind["mixed_line_ends"]:
        advice = "Add `* text=auto` to .gitattributes and renormalise."
        problems.append(problem("Files mix two kinds of line ends", 3, advice, by_kind["mixed_line_ends"]))
    if totals["todos"] * 1000 / lines > MANY_TODOS_PER_1000:
        advice = "Mend the oldest, or move them to the issue tracker."
        problems.append(problem(f"{totals['todos']} TODO or FIXME markers", 5, advice, todo_places(found)))
    if totals["long_lines"] * 100 / lines > MANY_LONG_PERCENT:
        advice = "Generated or minified files do not belong in the history."
        problems.append(problem(f"{totals['long_lines']} lines of more than 400 bytes", 3, advice))
    return problems


def todo_places(found: list[Context]) -> list[str]:
    """Return the files with most markers, most first."""
    files = sorted((f for f in found if f["kind"] == "todo"), key=lambda f: -f["count"])
    return [f"{f['path']} ({f['count']})" for f in files]


def structure_problems(shape: Context) -> list[Problem]:
    """Judge the tree."""
    problems = []
    if shape["broken_links"]:
        advice = "Remove them, or track what they point at."
        problems.append(problem("Symbolic links that lead nowhere", 8, advice, shape["broken_links"]))
    if shape["collisions"]:
        places = [" / ".join(group) for group in shape["collisions"]]
        advice = "Rename one of each: they cannot be checked out together on macOS and Windows."
        problems.append(problem("File names that differ in case only", 8, advice, places))
    if shape["wasted_bytes"] > MUCH_WASTE_BYTES:
        places = [" = ".join(copy["paths"]) for copy in shape["duplicates"]]
        problems.append(problem("Files that are copies of each other", 3, "Keep one.", places))
    return problems


ESSENTIALS = {
    "licence": ("There is no licence", 12, "Without one nobody else may use the code. Add a LICENSE file."),
    "readme": ("There is no README", 12, "Say what this is and how to run it."),
    "tests": ("There are no tests to be seen", 10, "Start with the part that breaks most often."),
    "ci": ("Nothing runs on a change", 6, "Run the tests on every push."),
    "ignore_rules": ("There is no .gitignore", 2, "List what builds and editors leave behind."),
}


def project_problems(essentials: Context, past: Context) -> list[Problem]:
    """Judge what a project should have, and whether it is alive."""
    problems = [problem(*ESSENTIALS[name]) for name, there in essentials.items() if not there]
    if past["last_commit_days"] > QUIET_DAYS:
        advice = "Say in the README whether it is still maintained."
        problems.append(problem(f"The last commit is {past['last_commit_days']} days old", 5, advice))
    return problems


def summarise(context: Context) -> Context:
    """Reduce everything to a score, a verdict and a list of problems, worst first."""
    inputs = context["inputs"]
    parts = inputs["scan"]
    names = ("files", "links", "bytes", "lines", "long_lines", "binary", "todos", "missing")
    totals = {name: sum(part[name] for part in parts) for name in names}
    found = [finding for part in parts for finding in part["findings"]]
    problems = content_problems(found, totals) + structure_problems(inputs["structure"])
    problems += project_problems(inputs["essentials"], inputs["history"])
    problems.sort(key=lambda entry: (-entry["points"], entry["title"]))
    score = max(0, 100 - sum(entry["points"] for entry in problems))
    return {
        "commit": inputs["files"]["commit"],
        "files_listed": inputs["files"]["total"],
        "files_scanned": totals["files"] + totals["links"],
        "totals": totals,
        "submodules": inputs["structure"]["submodules"],
        "score": score,
        "verdict": "healthy" if score >= context["params"]["pass_score"] else "needs-attention",
        "problems": problems,
    }


def watch_list(context: Context) -> list[str]:
    """For a healthy repository: what costs it points all the same."""
    return [entry["title"] for entry in context["inputs"]["summary"]["problems"]]


def fix_list(context: Context) -> list[str]:
    """For one that needs attention: what to do, dearest first, until it would be healthy again."""
    summary = context["inputs"]["summary"]
    score, steps = summary["score"], []
    for entry in summary["problems"]:
        if score >= context["params"]["pass_score"]:
            break
        score += entry["points"]
        steps.append(f"{entry['title']}: {entry['advice']}")
    return steps


def write_report(context: Context) -> str:
    """Write the report in one move and return its path, which leads to it from wherever it is read."""
    path = Path(context["params"]["report"])
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    draft.write_text("\n".join(report_lines(context["inputs"])) + "\n", encoding="utf-8")
    draft.replace(path)
    return str(path.absolute())


def code(text: str) -> str:
    """Return text as Markdown code, safe for any file name."""
    clean = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    fence = "``" if "`" in clean else "`"
    pad = " " if "`" in clean else ""
    return f"{fence}{pad}{clean}{pad}{fence}"


def report_lines(inputs: Context) -> list[str]:
    """Return the report's lines."""
    summary, past = inputs["summary"], inputs["history"]
    totals = summary["totals"]
    head = f"# Repository health: {summary['score']} of 100, {summary['verdict'].replace('-', ' ')}"
    size = (
        f"Commit {code(summary['commit'][:12])}: {summary['files_scanned']} files, {totals['lines']} lines of text, "
        f"{totals['bytes'] // 1024} KiB, {totals['binary']} binary files, {summary['submodules']} submodules."
    )
    work = (
        f"{past['commits']} commits by {past['authors']} authors in the time looked at, "
        f"the last {past['last_commit_days']} days ago."
    )
    lines = [head, "", size, "", work]
    if past["shallow"]:
        lines += ["", "This is a shallow clone: the history is only as long as what was fetched."]
    if totals["missing"]:
        lines += ["", f"{totals['missing']} files are not in this clone and were not looked into."]
    return lines + advice_lines(inputs) + problem_lines(summary["problems"]) + churn_lines(past["churn"])


def advice_lines(inputs: Context) -> list[str]:
    """Return the section that the route chose; the other one's input is null."""
    if inputs["fix"] is not None:
        return ["", "## Do first", "", *[f"{n}. {step}" for n, step in enumerate(inputs["fix"], 1)]]
    watch = inputs["watch"] or ["Nothing."]
    return ["", "## Keep an eye on", "", *[f"- {entry}" for entry in watch]]


def problem_lines(problems: list[Problem]) -> list[str]:
    """Return a section for each problem."""
    lines: list[str] = []
    for entry in problems:
        lines += ["", f"## {entry['title']} (-{entry['points']})", "", entry["advice"]]
        lines += ["", *[f"- {code(where)}" for where in entry["places"]]] if entry["places"] else []
        more = entry["count"] - len(entry["places"])
        lines += [f"- and {more} more"] if more > 0 else []
    return lines


def churn_lines(churn: list[Context]) -> list[str]:
    """Return the table of files that change most."""
    if not churn:
        return []
    rows = [f"| {code(entry['path']).replace('|', chr(92) + '|')} | {entry['changes']} |" for entry in churn]
    return ["", "## Changes most often", "", "| file | commits |", "| --- | ---: |", *rows]
