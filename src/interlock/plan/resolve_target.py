"""What a step's target needs from the world: script bytes, a module's hash, the shell, an interpreter.

Guarantee: each file is read, each module sought and each program looked for once, however many steps name it.
"""

from __future__ import annotations

import base64
from functools import cached_property

from interlock.model.canon import sha256
from interlock.model.plan import Command, PythonFunction, Script, Shell, Target
from interlock.model.workflow import Place, RunDecl, StepDecl, UsesDecl, Workflow
from interlock.plan.config import Config
from interlock.plan.diagnose import Source, did_you_mean, shown
from interlock.plan.functions import defined_names
from interlock.plan.interpreter import interpreter_of
from interlock.plan.shell_text import has_pipe
from interlock.plan.sources import Missing, ModuleFile, ScriptFile, Sources


class TargetResolver:
    """Resolves the targets of one workflow. `uses_shell` tells whether any of them was a shell's text."""

    def __init__(self, workflow: Workflow, config: Config, sources: Sources, source: Source) -> None:
        self.uses_shell = False
        self._workflow = workflow
        self._config = config
        self._sources = sources
        self._source = source
        self._scripts: dict[str, ScriptFile | Missing] = {}

    @cached_property
    def shell(self) -> Shell | None:
        """The shell of `run:` strings."""
        return self._sources.shell()

    @cached_property
    def python(self) -> tuple[str, ...] | Missing:
        """The interpreter of Python functions and `.py` scripts."""
        configured = self._config.run.python
        return self._sources.python(configured if isinstance(configured, tuple) else ())

    @cached_property
    def _modules(self) -> dict[str, ModuleFile | Missing]:
        uses = (step.target for step in self._workflow.steps)
        names = {_module(use.text)[0] for use in uses if isinstance(use, UsesDecl) and use.kind == "python"}
        return self._sources.modules(sorted(names), () if isinstance(self.python, Missing) else self.python)

    def target(self, decl: StepDecl) -> Target | None:
        """Return the resolved target; None for a route and for what was reported."""
        target = decl.target
        if isinstance(target, RunDecl):
            return self.command(target)
        if isinstance(target, UsesDecl) and target.kind == "script":
            return self._script(target)
        if isinstance(target, UsesDecl) and target.kind == "python":
            return self._function(target)
        return None

    def command(self, run: RunDecl) -> Command:
        """Resolve a command, be it a step's, a check or a probe."""
        if run.text is None:
            self._look_for(run.argv[0], run.place)
            return Command(argv=run.argv)
        self.uses_shell = True
        if self.shell is None:
            message = "there is no shell on this machine: neither bash nor sh was found on PATH"
            self._source.error(run.place, "no-shell", message, "write the command as a list, or install bash")
        elif self.shell.name == "sh" and has_pipe(run.text):
            message = "plain 'sh' takes no notice when a command before a '|' fails"
            self._source.warning(run.place, "pipe-in-sh", message, "install bash, or write to a file in between")
        return Command(text=run.text)

    def _look_for(self, program: str, place: Place) -> None:
        # one with a slash may be made by an earlier step
        if "/" in program:
            return
        found = self._sources.program(program)
        if isinstance(found, Missing):
            message = f"program '{shown(program)}' {found.reason}"
            self._source.warning(place, "no-such-program", message, found.hint)

    def _script(self, uses: UsesDecl) -> Script | None:
        if uses.text not in self._scripts:
            self._scripts[uses.text] = self._sources.script(uses.text)
        script = self._scripts[uses.text]
        if isinstance(script, Missing):
            self._source.error(uses.place, "bad-script", f"script '{shown(uses.text)}' {script.reason}", script.hint)
            return None
        interpreter = interpreter_of(script, self.shell, self.python, self._sources)
        if isinstance(interpreter, Missing) and self._config.doubts("run.python"):
            return None
        if isinstance(interpreter, Missing):
            message = f"script '{shown(uses.text)}' {interpreter.reason}"
            self._source.error(uses.place, "no-interpreter", message, interpreter.hint)
            return None
        return Script(
            path=script.path,
            sha256=sha256(script.content),
            content_b64=base64.b64encode(script.content).decode("ascii"),
            interpreter=interpreter,
        )

    def _function(self, uses: UsesDecl) -> PythonFunction | None:
        if isinstance(self.python, Missing) and self._config.doubts("run.python"):
            return None
        if isinstance(self.python, Missing):
            message = f"the interpreter of Python functions {self.python.reason}"
            self._source.error(uses.place, "no-interpreter", message, self.python.hint)
            return None
        name, function = _module(uses.text)
        module = self._modules[name]
        if isinstance(module, Missing):
            self._source.error(uses.place, "no-such-module", f"module '{name}' {module.reason}", module.hint)
            return None
        names = defined_names(module.text) if module.text is not None else None
        if names is not None and function not in names:
            hint = did_you_mean(function, names) or f"define it in {module.file}"
            message = f"module '{name}' has no function '{function}'"
            self._source.error(uses.place, "no-such-function", message, hint)
            return None
        return PythonFunction(module=name, function=function, file=module.file, sha256=module.sha256)


def _module(text: str) -> tuple[str, str]:
    """Split `python:module:function`."""
    _, module, function = text.split(":")
    return module, function
