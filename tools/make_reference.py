"""Makes docs/reference.md from the package's `frontmatter.schema.json`; `--check` tells whether it is fresh.

Guarantee: every key of the schema is on the page, with the words of the schema. Nothing else is.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "src" / "interlock" / "plan" / "frontmatter.schema.json"
PAGE = ROOT / "docs" / "reference.md"

HEAD = """\
# File format

The front matter of a workflow, key by key. This page is made from the JSON Schema that ships with interlock
(`interlock schema` prints it) by `tools/make_reference.py`; a test fails when it is not fresh. How the keys work
together is told in the [guide](guide.md).
"""

Schema = dict[str, Any]


TEXT = ["string", "number", "boolean"]
"""What the parser takes as source text: `1.10` and `on` stay what they look like."""


class Reference:
    """Walks the schema; sections are made in the order in which keys first lead to them."""

    def __init__(self, schema: Schema) -> None:
        """Begin at the top."""
        self.root = schema
        self.queue: list[tuple[str, Schema]] = [("Front matter", schema)]
        self.named = {"Front matter"}

    def sections(self) -> Iterator[str]:
        """Yield one section for each object that has keys of its own."""
        while self.queue:
            title, schema = self.queue.pop(0)
            yield "\n".join(self.section(title, schema))

    def section(self, title: str, schema: Schema) -> Iterator[str]:
        """Yield the lines of one section. Keys taken whole from another section are told in one line."""
        yield f"## {title}"
        yield ""
        yield f"{schema['description']}\n"
        own, shared = self.split(schema)
        for owner, keys in shared.items():
            link = self.link(owner, self.root["$defs"][owner])
            left = properties(self.root["$defs"][owner]).keys() - set(keys)
            what = "every other key" if left <= own.keys() else ", ".join(f"`{key}`" for key in keys)
            yield f"Also {what} of {link}.\n"
        if not properties(schema):
            yield f"A value: {self.kind(title.lower(), schema)}.\n"
            return
        yield "| key | value | meaning |"
        yield "| --- | --- | --- |"
        required = set(schema.get("required", []))
        for key, value in sorted(own.items(), key=lambda pair: pair[0] not in required):
            must = " (required)" if key in required else ""
            yield f"| `{key}`{must} | {cell(self.kind(key, value))} | {cell(self.meaning(value))} |"
        yield ""

    def split(self, schema: Schema) -> tuple[Schema, dict[str, list[str]]]:
        """Return the keys of its own, and those that are only taken from another section, by that section."""
        own, shared = dict(properties(schema)), dict[str, list[str]]()
        for key, value in properties(schema).items():
            taken = re.fullmatch(r"#/\$defs/([^/]+)/properties/(.+)", value.get("$ref", ""))
            if taken and taken[2] == key and len(value) == 1:
                shared.setdefault(taken[1], []).append(key)
                del own[key]
        return own, shared

    def resolved(self, schema: Schema) -> Schema:
        """Follow one reference inside the document."""
        found: Schema = self.root
        for part in str(schema["$ref"]).split("/")[1:]:
            found = found[part]
        return found

    def meaning(self, schema: Schema) -> str:
        """Return the description, the key's own before the shared one's, with the default."""
        text = schema.get("description") or (self.resolved(schema).get("description", "") if "$ref" in schema else "")
        if "default" in schema:
            text = f"{text} Default: `{json.dumps(schema['default'])}`.".strip()
        return str(text)

    def kind(self, key: str, schema: Schema) -> str:
        """Return what a value may be, in words; objects with keys become a section and a link to it."""
        if "$ref" in schema:
            return self.link(str(schema["$ref"]).rpartition("/")[2], self.resolved(schema))
        for union in ("oneOf", "anyOf"):
            if union in schema:
                return " or ".join(dict.fromkeys(self.kind(key, option) for option in schema[union]))
        if "const" in schema:
            return f"`{json.dumps(schema['const'])}`"
        if "enum" in schema:
            return " ".join(f"`{option}`" for option in schema["enum"])
        if properties(schema):
            return self.link(key, schema)
        return self.plain(key, schema)

    def plain(self, key: str, schema: Schema) -> str:
        """Return the words for a value without keys of its own."""
        types = schema.get("type", "any value")
        names = types if isinstance(types, list) else [types]
        words = "text" if names == TEXT else " or ".join(names)
        if "array" in names and "items" in schema:
            words = words.replace("array", f"list of {self.kind(key, schema['items'])}")
        rest = schema.get("additionalProperties") or next(iter(schema.get("patternProperties", {}).values()), None)
        if "object" in names and isinstance(rest, dict):
            words = words.replace("object", f"mapping of names to {self.kind(key, rest)}")
        return words + limits(schema)

    def link(self, name: str, schema: Schema) -> str:
        """Return a link to the section of a shared or nested value, which is made when it is first met."""
        title = name.replace("_", " ").strip().capitalize()
        if title not in self.named:
            self.named.add(title)
            self.queue.append((title, schema))
        return f"[{title.lower()}](#{title.lower().replace(' ', '-')})"


def properties(schema: Schema) -> Schema:
    """Return an object's keys."""
    found = schema.get("properties", {})
    return found if isinstance(found, dict) else {}


def limits(schema: Schema) -> str:
    """Return the bounds of a number or string."""
    said = [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    said += [f"like `{schema['pattern']}`"] if "pattern" in schema else []
    return f", {' '.join(said)}" if said else ""


def cell(text: str) -> str:
    """Return text that may stand in a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def page() -> str:
    """Return the whole page."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return "\n".join([HEAD, *Reference(schema).sections()])


def main(arguments: list[str]) -> int:
    """Write the page, or with --check compare it."""
    fresh = page()
    if arguments == ["--check"]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == fresh:
            return 0
        print("docs/reference.md is not fresh: run tools/make_reference.py", file=sys.stderr)
        return 1
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
