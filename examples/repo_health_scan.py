"""Looks into every file of one directory for `repo-health.md`: one unit of its map.

Asks git for the directory's tree by id and for each file by id, so no file name is ever an argument. Prints one
JSON object. A suspected secret is reported by kind, file and line; its text is never printed.
Needs Python 3.8+ and git.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

MAX_FINDINGS = 200
LONG_LINE_BYTES = 400
SECRETS = {
    "private key": re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "AWS access key": re.compile(rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "GitHub token": re.compile(rb"\bgh[pousr]_[0-9A-Za-z]{36}\b"),
    "GitLab token": re.compile(rb"\bglpat-[0-9A-Za-z_-]{20}\b"),
    "Slack token": re.compile(rb"\bxox[abprs]-[0-9A-Za-z-]{20,}"),
    "Google API key": re.compile(rb"\bAIza[0-9A-Za-z_-]{35}\b"),
}
ANY_SECRET = re.compile(b"|".join(pattern.pattern for pattern in SECRETS.values()))
CONFLICT = re.compile(rb"^<{7} .*\n(?:.*\n)*?={7}\n(?:.*\n)*?>{7} ", re.MULTILINE)
MARKER = re.compile(rb"\b(?:TODO|FIXME|XXX|HACK)\b")


def entries(tree: str, *, deep: bool) -> list[tuple[str, int, str]]:
    """Return (object id, size, name to show) of each regular file in the tree."""
    command = ["git", "ls-tree", "-z", "-l", *(["-r"] if deep else []), tree]
    listing = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    found = []
    for entry in filter(None, listing.split(b"\0")):
        meta, path = entry.split(b"\t", 1)
        mode, kind, oid, size = meta.split()
        if kind == b"blob" and mode != b"120000":
            found.append((oid.decode(), int(size) if size != b"-" else 0, path.decode("utf-8", "backslashreplace")))
    return found


class Blobs:
    """Reads file contents through one `git cat-file --batch`."""

    def __init__(self) -> None:
        """Start git."""
        self.git = subprocess.Popen(["git", "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.git.stdin is None or self.git.stdout is None:
            raise RuntimeError("git was started without its pipes")
        self.ask, self.answer = self.git.stdin, self.git.stdout

    def read(self, oid: str) -> bytes | None:
        """Return the content, or None where this clone does not have it."""
        self.ask.write(oid.encode() + b"\n")
        self.ask.flush()
        header = self.answer.readline().split()
        if len(header) != 3:  # noqa: PLR2004 - "<id> missing" has two words, "<id> blob <size>" three
            return None
        content = self.answer.read(int(header[2]))
        self.answer.read(1)
        return content

    def close(self) -> None:
        """End git."""
        self.git.communicate()


def line_of(content: bytes, offset: int) -> int:
    """Return the line number of a byte offset."""
    return content.count(b"\n", 0, offset) + 1


def look(path: str, content: bytes, result: dict) -> None:
    """Add what one file holds to the result."""
    if b"\0" in content[:8000]:
        result["binary"] += 1
        return
    findings = result["findings"]
    lines = content.split(b"\n")
    result["lines"] += len(lines) - (lines[-1] == b"")
    result["long_lines"] += sum(len(line) > LONG_LINE_BYTES for line in lines)
    todos = len(MARKER.findall(content))
    result["todos"] += todos
    if todos:
        findings.append({"kind": "todo", "path": path, "count": todos})
    if ANY_SECRET.search(content):
        for kind, pattern in SECRETS.items():
            for match in pattern.finditer(content):
                findings.append({"kind": "secret", "path": path, "line": line_of(content, match.start()), "what": kind})
    conflict = CONFLICT.search(content) if b"\n>>>>>>> " in content else None
    if conflict:
        findings.append({"kind": "conflict", "path": path, "line": line_of(content, conflict.start())})
    if b"\r\n" in content and content.count(b"\r\n") != content.count(b"\n"):
        findings.append({"kind": "mixed_line_ends", "path": path})


def clip(findings: list) -> list:
    """Keep the findings that matter most when there are too many for one result."""
    order = ["secret", "conflict", "large", "mixed_line_ends", "todo"]
    return sorted(findings, key=lambda f: (order.index(f["kind"]), -f.get("count", 0)))[:MAX_FINDINGS]


def main() -> None:
    """Print what is in the directory that the item names."""
    with open(os.environ["INTERLOCK_CONTEXT"], encoding="utf-8") as file:  # noqa: PTH123 - plain and enough
        context = json.load(file)
    item, large = context["item"], context["params"]["large_kib"] * 1024
    prefix = item["name"].lstrip("/")
    result: dict = {"group": item["name"], "files": 0, "bytes": 0, "lines": 0, "long_lines": 0, "binary": 0}
    result.update({"todos": 0, "missing": 0, "links": 0, "findings": []})
    blobs = Blobs()
    files = entries(item["tree"], deep=item["deep"])
    for oid, size, name in files:
        result["bytes"] += size
        if size > large:
            result["findings"].append({"kind": "large", "path": prefix + name, "count": size})
            continue
        content = blobs.read(oid)
        if content is None:
            result["missing"] += 1
        else:
            look(prefix + name, content, result)
    blobs.close()
    result["files"] = len(files)
    result["links"] = item["files"] - len(files)
    result["findings"] = clip(result["findings"])
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
