"""Settings of steps: reading them wherever they may stand, and laying the places over each other.

Guarantees: step beats map beats `defaults`; a default reaches only the targets that it fits, a setting
written on a step that it doesn't fit is an error. Every setting keeps the place where it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from interlock.model.plan import Reference
from interlock.model.workflow import Place, Settings
from interlock.plan import fields as f
from interlock.plan.diagnose import Source, shown
from interlock.plan.refs import ReferenceSyntaxError, parse_reference
from interlock.plan.retry import read_retry
from interlock.plan.scalars import to_json
from interlock.plan.targets import KIND_TEXT, Kind, read_command
from interlock.plan.yaml import Node, Scalar


class Setting(msgspec.Struct, frozen=True):
    """A value and where it was written. It is UNSET where something is written that can't be read, so it may be any."""

    value: Any
    place: Place


Layer = dict[str, Setting]
"""Settings by their key in the file."""


def _object(source: Source, node: Node, what: str) -> dict[str, Any] | UnsetType:
    written = f.mapping(source, node, what)
    return UNSET if written is UNSET else to_json(written, source)


def _reference(source: Source, node: Node, what: str) -> Reference | UnsetType:
    written = f.text(source, node, what)
    if written is UNSET:
        return UNSET
    try:
        return parse_reference(written)
    except ReferenceSyntaxError as error:
        source.error(node.place, "bad-reference", f"{what}: '{shown(written)}' {error}", error.hint)
        return UNSET


_DISPATCHED: Final[frozenset[Kind]] = frozenset({"prompt", "command", "script", "python", "library"})
_PROMPTS: Final[frozenset[Kind]] = frozenset({"prompt", "library"})
_TARGETS: Final[frozenset[Kind]] = _DISPATCHED | {"workflow"}
_IN_WORKTREE: Final[frozenset[Kind]] = frozenset({"prompt", "command", "script", "library"})


class _Rule(msgspec.Struct, frozen=True):
    """How a setting is read, its field in `Settings`, and the targets that it fits."""

    read: Callable[[Source, Node, str], Any]
    field: str
    fits: frozenset[Kind]


_RULES: Final[dict[str, _Rule]] = {
    "engine": _Rule(f.text, "engine", _PROMPTS),
    "model": _Rule(f.text, "model", _PROMPTS),
    "timeout": _Rule(f.duration, "timeout_ms", _TARGETS),
    "idle_timeout": _Rule(f.duration, "idle_timeout_ms", _DISPATCHED),
    "retry": _Rule(read_retry, "retry", _TARGETS),
    "on_error": _Rule(f.choice(("fail", "continue")), "on_error", _TARGETS),
    "env": _Rule(f.names, "env", _DISPATCHED),
    "cwd": _Rule(f.text, "cwd", _DISPATCHED),
    "isolation": _Rule(f.choice(("none", "worktree")), "isolation", _IN_WORKTREE),
    "worktree_base": _Rule(_reference, "worktree_base", _IN_WORKTREE),
    "worktree_uncommitted": _Rule(f.boolean, "worktree_uncommitted", _IN_WORKTREE),
    "effects": _Rule(f.choice(("internal", "external")), "effects", _TARGETS),
    "probe": _Rule(read_command, "probe", _TARGETS),
    "temperature": _Rule(f.number(0), "temperature", _PROMPTS),
    "max_tokens": _Rule(f.integer(1), "max_tokens", _PROMPTS),
    "extra_params": _Rule(_object, "extra_params", _PROMPTS),
    "resources": _Rule(_object, "resources", _DISPATCHED),
}
KEYS: Final = tuple(_RULES)


def read_layer(fields: f.Fields) -> Layer:
    """Return the settings that stand in `fields`."""
    layer: Layer = {}
    for key, rule in _RULES.items():
        if key in fields:
            node = fields.node(key)
            place = node.place if isinstance(node, Scalar) else fields.place_of(key)
            layer[key] = Setting(fields.read(key, rule.read), place)
    return layer


def unreadable(place: Place) -> Layer:
    """Return the settings of what can't be read at `place`: any may have been meant, and none is known."""
    return {key: Setting(UNSET, place) for key in KEYS}


def lay_over(defaults: Layer, own: tuple[Layer, ...], kind: Kind | None, source: Source) -> Layer:
    """Return what holds for a target of `kind`, None where that isn't known; `own` layers are the step's, strongest first."""
    result = {key: setting for key, setting in defaults.items() if kind is None or _default_fits(key, setting, kind)}
    for layer in reversed(own):
        result.update(layer)
    for key, setting in result.items():
        if kind is None or setting.value is UNSET:
            continue
        if kind not in _RULES[key].fits and defaults.get(key) != setting and not _harmless(key, setting):
            _misplaced(source, key, setting, kind)
    return result


def to_settings(layer: Layer) -> Settings:
    """Return the layer as a `Settings` value."""
    return Settings(**{_RULES[key].field: setting.value for key, setting in layer.items()})


def _default_fits(key: str, setting: Setting, kind: Kind) -> bool:
    return (kind in _RULES[key].fits and not (key == "timeout" and kind == "workflow")) or _harmless(key, setting)


def _harmless(key: str, setting: Setting) -> bool:
    return key == "isolation" and setting.value == "none"


def _misplaced(source: Source, key: str, setting: Setting, kind: Kind) -> None:
    message = f"'{key}' doesn't fit: the step is {KIND_TEXT[kind]}"
    fits = [KIND_TEXT[k].partition(" ")[2] + "s" for k in KIND_TEXT if k in _RULES[key].fits and k != "library"]
    source.error(setting.place, "misplaced-setting", message, f"it is for {f.joined(fits)}")
