"""`interlock.toml` text -> `Config`, every fault of the file reported in one pass.

Guarantees: never raises for bad input; a diagnostic never shows what looks like a secret, not even in the
source line under the caret.
"""

from __future__ import annotations

import codecs
import re
import tomllib
from functools import lru_cache
from typing import Any, Final

import msgspec

from interlock.errors import Diagnostic
from interlock.model.plan import KEY_OF_API, EnvGroup, SecretSource
from interlock.model.workflow import Place
from interlock.plan.config import Config, Engine, Origin, RunSettings
from interlock.plan.config_kinds import (
    AGENT,
    ENV,
    KEY,
    LIMITS,
    LLM,
    RUN,
    SECRET,
    SECTIONS,
    TABLE,
    TEXT,
    Kind,
    duration,
    is_passable,
)
from interlock.plan.diagnose import Source, did_you_mean, is_one_slip, nearest, shown, suggest
from interlock.plan.document import not_utf8
from interlock.plan.toml_places import Path, TomlPlaces

MAX_BYTES: Final = 1_048_576
_ENGINE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SECRET: Final = re.compile(
    r"(?i)([\w-]*(?:key|token|secret|passw|credential)[\w-]*[\"']?\s*=\s*)"
    r"(\"(?![$\"])[^\"]*\"?|'(?![$'])[^']*'?|(?![\[{\"'\s])[^\s,}#]+)"
)
_PASSWORD: Final = re.compile(r"(://)[^/\s@\"']+(@)")
_QUOTED: Final = re.compile(r"\"[^\"]*\"?|'[^']*'?")
_VISIBLE: Final = re.compile("[^\\s\"'\N{REPLACEMENT CHARACTER}]")
_WHERE: Final = re.compile(r"(.*) \(at line (\d+), column (\d+)\)")


def parse_config(text: bytes, file: str) -> tuple[Config, tuple[Diagnostic, ...]]:
    """Read one configuration file. What has faults is left out of the result."""
    source, document = _document(text, file)
    if document is None:
        return Config(faulty=frozenset({""})), source.diagnostics()
    tables, places = document
    reader = _Reader(source, places)
    config = reader.config(tables)
    return config, source.diagnostics()


def _document(text: bytes, file: str) -> tuple[Source, tuple[dict[str, Any], TomlPlaces] | None]:
    start = Place(line=1, column=1)
    if len(text) > MAX_BYTES:
        source = Source(file, ())
        source.error(
            start, "too-large", f"a configuration file may have {MAX_BYTES:,} bytes, this one has {len(text):,}"
        )
        return source, None
    try:
        raw = text.removeprefix(codecs.BOM_UTF8)
        decoded = raw.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        return not_utf8(raw, error.start, file, _without_value), None
    source = Source(file, [masked(line) for line in decoded.split("\n")])
    try:
        return source, (tomllib.loads(decoded), TomlPlaces(decoded))
    except RecursionError:
        source.error(start, "too-deep", "nested too deeply")
    except ValueError as error:
        _report_syntax(source, str(error))
    return source, None


def masked(line: str) -> str:
    """Return `line` with values that look like secrets blanked out."""
    return _PASSWORD.sub(r"\1...\2", _SECRET.sub(r'\1"..."', line))


def _without_value(line: str) -> str:
    """Return a line of a document that can't be read, where any value may be a secret, with all columns kept."""
    key, equals, value = line.partition("=")
    if not equals:
        key, value = ("", line) if not line.startswith(("#", "[")) else (line, "")
    return key + equals + _VISIBLE.sub(".", value)


def _report_syntax(source: Source, text: str) -> None:
    match = _WHERE.fullmatch(text)
    if match:
        place = Place(line=int(match[2]), column=int(match[3]))
    else:
        place = Place(line=max(1, len(source.lines)), column=1)
    message = shown(match[1] if match else text.removesuffix(" (at end of document)"), 160)
    source.error(place, "toml-syntax", f"not TOML: {message[:1].lower()}{message[1:]}")


class _Reader:
    """Walks one document's tables; each method returns what was right and reports what was not."""

    def __init__(self, source: Source, places: TomlPlaces) -> None:
        self.source = source
        self.places = places
        self.origins: dict[str, Origin] = {}
        self.faulty: set[str] = set()
        self.source.lines = tuple(self._shown_lines())

    def _shown_lines(self) -> list[str]:
        """The source lines without the strings that may be secrets."""
        lines = list(self.source.lines)
        for path, place in self.places.values.items():
            if _may_be_secret(path):
                line = lines[place.line - 1]
                if line[place.column - 1 : place.column] in {'"', "'"}:
                    lines[place.line - 1] = _QUOTED.sub('"..."', line)
        return lines

    def config(self, tables: dict[str, Any]) -> Config:
        known = self.sections(tables)
        engines = [self.engine(name, entry) for name, entry in self.named("engines", known)]
        groups = [self.group(name, entry) for name, entry in self.named("env", known)]
        run = self.run(known.get("run", {}))
        limits = self.table(("limits",), known.get("limits", {}), LIMITS, "[limits]")
        models = {name: self.models(name, entry) for name, entry in self.named("models", known)}
        return Config(
            run=run,
            limits=limits,
            engines={engine.name: engine for engine in engines if engine},
            models=models,
            env={group.name: group for group in groups},
            origins=self.origins,
            faulty=frozenset(self.faulty),
        )

    def sections(self, tables: dict[str, Any]) -> dict[str, Any]:
        known = self.table((), tables, dict.fromkeys(SECTIONS, TABLE), "the configuration")
        for name, entry in tables.items():
            if isinstance(entry, dict) and not is_one_slip(name, nearest(name, SECTIONS)):
                # what stands there may have been meant for any of these
                self.faulty.update(f"{section}.{part}" for section in ("engines", "env", "models") for part in entry)
        return known

    def named(self, section: str, tables: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        found = []
        for name, entry in tables.get(section, {}).items():
            path = (section, name)
            if not _ENGINE_NAME.fullmatch(name):
                message = f"'{shown(name)}' can't be a name in [{section}]"
                self.error(self.places.key(path), "bad-name", message, "use letters, digits, '_' and '-'", path)
            elif not isinstance(entry, dict):
                self.wrong(path, f"[{section}.{name}]", TABLE, entry)
            else:
                found.append((name, entry))
        return found

    def table(self, path: Path, table: dict[str, Any], kinds: dict[str, Kind], what: str) -> dict[str, Any]:
        """Return the entries of `table` that are known and of the right kind."""
        good = {}
        for name, value in self.spelled(path, table, kinds, what).items():
            here = (*path, name)
            if not kinds[name].fits(value):
                self.wrong(here, f"'{name}'", kinds[name], value)
            else:
                good[name] = value
                if path:
                    self.note(here)
        return good

    def spelled(self, path: Path, table: dict[str, Any], kinds: dict[str, Kind], what: str) -> dict[str, Any]:
        """Return what stands at the known keys; what one slip explains is reported, and stands where it was meant to."""
        found = {name: value for name, value in table.items() if name in kinds}
        for name, value in table.items():
            if name in kinds:
                continue
            here, meant = (*path, name), nearest(name, kinds)
            message, hint = f"unknown key '{shown(name)}' in {what}", suggest(name, kinds)
            beside = found.get(meant, {})
            if not is_one_slip(name, meant):
                self.error(
                    self.places.key(here), "unknown-key", message, hint, (*path, meant) if path and meant else path
                )
                continue
            self.error(self.places.key(here), "unknown-key", message, hint)
            if meant not in found or (isinstance(value, dict) and isinstance(beside, dict)):
                found[meant] = {**value, **beside} if isinstance(value, dict) else value
                self.places.move(here, (*path, meant))
        return found

    def note(self, path: Path) -> None:
        place = self.places.value(path)
        line = self.source.lines[place.line - 1] if place.line <= len(self.source.lines) else ""
        key = ".".join(str(part) for part in path)
        self.origins[key] = Origin(file=self.source.file, place=place, source_line=line)

    def error(self, place: Place, code: str, message: str, hint: str = "", path: Path | None = None) -> None:
        """Report a fault. What is not known for it is at `path`."""
        self.source.error(place, code, message, hint)
        if path:
            self.faulty.add(".".join(map(str, path)))

    def wrong(self, path: Path, what: str, kind: Kind, value: object) -> None:
        """Report a value of the wrong kind. One that could be a secret is never shown."""
        if kind is KEY:
            name = re.sub(r"[^A-Z0-9]+", "_", str(path[1]).upper()).strip("_") or "MY"
            hint = f'keep the key in a variable and write api_key = "${name}_KEY"'
            self.error(self.places.key(path), "secret-in-config", f"{what} must be {kind.wanted}", hint, path)
            return
        hint = did_you_mean(value, kind.options) if isinstance(value, str) else ""
        code = "unknown-value" if kind.options else "wrong-type"
        if isinstance(value, list) and kind.wanted.startswith("a list"):
            self.error(self.places.value(path), code, f"{what} must be {kind.wanted}", path=path)
            return
        found = "this text" if isinstance(value, str) and value and _may_be_secret(path) else _found(value)
        self.error(self.places.value(path), code, f"{what} must be {kind.wanted}, not {found}", hint, path)

    def run(self, table: dict[str, Any]) -> RunSettings:
        good = self.table(("run",), table, RUN, "[run]")
        self.this_version(good)
        for name in ("timeout", "idle_timeout"):
            if name in good:
                good[f"{name}_ms"] = duration(good.pop(name))
        if isinstance(good.get("python"), str):
            good["python"] = (good["python"],)
        return msgspec.convert(good, RunSettings)

    def this_version(self, good: dict[str, Any]) -> None:
        """Refuse journals and executors that only another version has, and those that none has."""
        journal, executor = good.get("journal", "sqlite"), good.get("executor", "local")
        at = self.places.value(("run", "journal"))
        if journal.startswith(("$", "postgres")):
            self.error(
                at,
                "not-supported-yet",
                "this version keeps its journal in SQLite only",
                'write journal = "sqlite", or leave it out',
            )
        elif journal != "sqlite":
            self.error(
                at, "unknown-value", f"'journal' must be 'sqlite', not '{shown(journal)}'", suggest(journal, ["sqlite"])
            )
        at = self.places.value(("run", "executor"))
        if executor == "ray":
            self.error(
                at,
                "not-supported-yet",
                "this version runs work on the local machine only",
                'write executor = "local", or leave it out',
            )
        elif executor != "local":
            self.error(
                at,
                "unknown-value",
                f"'executor' must be 'local', not '{shown(executor)}'",
                suggest(executor, ["local"]),
            )

    def engine(self, name: str, table: dict[str, Any]) -> Engine | None:
        path, what = ("engines", name), f"[engines.{name}]"
        kinds = _kinds(table)
        good = self.table(path, table, kinds, what)
        by = {"llm": "api", "agent": "agent"}.get(good.get("kind", ""))
        for key in ("kind", by):
            if key and not self.stands(path, key, good):
                hint = f"'{key}' is {kinds[key].wanted}"
                self.error(self.places.key(path), "missing-key", f"{what} needs '{key}'", hint, (*path, key))
        if "agent" in good:
            self.agent(name, good["agent"], good)
        if "kind" not in good:
            return None
        if "api_key" in good:
            good["api_key"] = good["api_key"][1:]
        elif good["kind"] == "llm" and "base_url" not in table and "api_key" not in table:
            good["api_key"] = KEY_OF_API.get(good.get("api", ""))
        return msgspec.convert(good | {"name": name}, Engine)

    def stands(self, path: Path, key: str, good: dict[str, Any]) -> bool:
        """Tell whether something stands at the key, be it at fault."""
        return key in good or ".".join(map(str, (*path, key))) in self.faulty

    def agent(self, name: str, agent: str, good: dict[str, Any]) -> None:
        """Report what an agent must have, and what only another one can have."""
        path = ("engines", name)
        if agent in {"acp", "command"} and not self.stands(path, "command", good):
            message = f"[engines.{name}] needs 'command', since its agent is '{agent}'"
            self.error(self.places.key(path), "missing-key", message, 'write command = ["program", "argument"]')
        if not is_one_slip(agent, "command") and self.stands(path, "output", good):
            message = f"'output' is for agent 'command'; what '{agent}' answers is known"
            self.error(self.places.key((*path, "output")), "misplaced-key", message, "remove it")

    def models(self, name: str, table: dict[str, Any]) -> dict[str, str]:
        kinds = dict.fromkeys(table, TEXT)
        return self.table(("models", name), table, kinds, f"[models.{name}]")

    def group(self, name: str, table: dict[str, Any]) -> EnvGroup:
        path = ("env", name)
        good = self.table(path, table, ENV, f"[env.{name}]")
        secrets = [self.secret((*path, "secrets", key), value) for key, value in good.get("secrets", {}).items()]
        return EnvGroup(
            name=name,
            vars=tuple(good.get("vars", ())),
            dotenv=tuple(good.get("dotenv", ())),
            secrets=tuple(secret for secret in secrets if secret),
        )

    def secret(self, path: Path, value: object) -> SecretSource | None:
        name = str(path[-1])
        hint = f'write {name} = {{ command = ["program", "argument"] }} or {name} = {{ var = "NAME" }}'
        if not is_passable(name):
            self.error(self.places.key(path), "bad-name", f"'{shown(name)}' can't be the name of a secret's variable")
            return None
        if not isinstance(value, dict):
            message = f"secret '{name}' must say where its value comes from"
            self.error(self.places.key(path), "secret-in-config", message, hint)
            return None
        good = self.table(path, value, SECRET, f"secret '{name}'")
        if len(value) != 1 and not set(value) - set(SECRET):
            self.error(self.places.key(path), "bad-secret", f"secret '{name}' needs either 'command' or 'var'", hint)
        if not good:
            return None
        return SecretSource(name=name, command=tuple(good.get("command", ())), var=good.get("var"))


def _may_be_secret(path: Path) -> bool:
    """Tell whether a text there may be a secret's value, in the place of its source or below a key that is misspelled."""
    section = _section(str(path[0]))
    if section == "env":
        return path[2:3] not in {("vars",), ("dotenv",)} and path[4:5] != ("command",)
    # an engine holds no tables
    return not section or (section == "engines" and any(isinstance(part, str) for part in path[3:]))


@lru_cache(maxsize=64)
def _section(name: str) -> str:
    return name if name in SECTIONS else nearest(name, SECTIONS)


def _kinds(table: dict[str, Any]) -> dict[str, Kind]:
    """Return the keys of an engine by its kind, however that is spelled; all of them where it can't be told."""
    both = LLM | AGENT
    kind = table.get("kind") or next(
        (v for key, v in table.items() if key not in both and nearest(key, both) == "kind"), ""
    )
    return {"llm": LLM, "agent": AGENT}.get(kind if isinstance(kind, str) else "", both)


def _found(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{shown(masked(value))}'" if value else "an empty text"
    if isinstance(value, int | float):
        return f"the number {shown(str(value))}"
    if isinstance(value, list):
        return "a list"
    return "a table" if isinstance(value, dict) else "a date or time"
