"""A world without files: `plan.sources.Sources` over plain values, for tests of `resolve` and what comes after."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

from interlock.model.canon import sha256
from interlock.model.plan import Project, Shell
from interlock.plan.sources import Missing, ModuleFile, ScriptFile, WorkflowFile

BASH = Shell(name="bash", argv=("/bin/bash", "-euo", "pipefail", "-c"))
SH = Shell(name="sh", argv=("/bin/sh", "-eu", "-c"))


class FakeSources:
    """Everything that is not listed is missing; programs are all there unless `programs` says which."""

    def __init__(
        self,
        *,
        scripts: Mapping[str, bytes] | None = None,
        workflows: Mapping[str, str] | None = None,
        modules: Mapping[str, bytes] | None = None,
        folders: Iterable[str] = (".",),
        programs: Iterable[str] | None = None,
        shell: Shell | None = BASH,
        python: tuple[str, ...] | Missing = ("/usr/bin/python3",),
        repository: str | Missing = "/project",
    ) -> None:
        self.asked: list[str] = []
        self._scripts = dict(scripts or {})
        self._workflows = dict(workflows or {})
        self._real = "flow.md"
        self._modules = dict(modules or {})
        self._folders = set(folders)
        self._programs = None if programs is None else set(programs)
        self._shell = shell
        self._python = python
        self._repository = repository

    def source(self) -> str:
        """The workflow file."""
        return self._real

    def project(self) -> Project:
        """A project that does not exist."""
        return Project(root="/project", device=1, inode=2, id="0" * 32, commit="c" * 40)

    def real(self) -> str:
        """The workflow file."""
        return self._real

    def workflow(self, path: str) -> WorkflowFile | Missing:
        """Give the workflow of that name, in a world like this one."""
        name = path.removeprefix("./")
        self.asked.append(f"workflow {name}")
        if name not in self._workflows:
            return Missing(reason="does not exist", hint="the path is relative to /project")
        beside = copy.copy(self)
        beside._real = name  # noqa: SLF001 - a copy of its own kind
        return WorkflowFile(file=name, real=name, content=self._workflows[name].encode(), sources=beside)

    def repository(self) -> str | Missing:
        """Give the project's root, or what was said of it."""
        return self._repository

    def script(self, path: str) -> ScriptFile | Missing:
        """Give the script of that path."""
        self.asked.append(f"script {path}")
        if path not in self._scripts:
            return Missing(reason="does not exist", hint="the path is relative to /project")
        return ScriptFile(path=path.removeprefix("./"), content=self._scripts[path], executable=True)

    def folder(self, path: str) -> str | Missing:
        """Give the folder itself."""
        self.asked.append(f"folder {path}")
        return path if path in self._folders else Missing(reason="does not exist", hint="'cwd' is relative to /project")

    def shell(self) -> Shell | None:
        """Give the shell."""
        self.asked.append("shell")
        return self._shell

    def program(self, name: str) -> str | Missing:
        """Give a place for the program."""
        if self._programs is not None and name not in self._programs:
            return Missing(reason="was not found on PATH", hint="install it, or write its full path")
        return name if "/" in name else f"/usr/bin/{name}"

    def python(self, configured: tuple[str, ...]) -> tuple[str, ...] | Missing:
        """Give the interpreter."""
        return configured or self._python

    def python_path(self) -> tuple[str, ...]:
        """Give one folder."""
        return ("/project",)

    def modules(self, names: Iterable[str], python: tuple[str, ...]) -> dict[str, ModuleFile | Missing]:
        """Give the modules that are listed."""
        asked = tuple(names)
        self.asked.append(f"modules {' '.join(asked)} {' '.join(python)}")
        return {name: self._module(name) for name in asked}

    def _module(self, name: str) -> ModuleFile | Missing:
        if name not in self._modules:
            return Missing(reason="was not found", hint="looked in /project")
        text = self._modules[name]
        return ModuleFile(file=f"{name.replace('.', '/')}.py", sha256=sha256(text), text=text)
