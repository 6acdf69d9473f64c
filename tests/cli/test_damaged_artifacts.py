"""An artifact's file that was damaged: told with its step, all else is shown, and the next run of the file mends it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]


def test_one_damaged_artifact_hides_nothing_else_and_is_mended_by_a_new_run(
    flow: Callable[..., Path], interlock: Interlock, tmp_path: Path
) -> None:
    path = flow("id: large, run: printf %0100000d 0", "id: bad, run: exit 1")
    assert interlock("run", str(path), cwd=tmp_path).returncode == 1
    before = json.loads(interlock("status", "last", "--json", cwd=tmp_path).stdout)
    run_id = before["run"]["id"]
    (artifact,) = (tmp_path / ".interlock" / "artifacts").iterdir()
    whole = artifact.read_bytes()
    artifact.write_bytes(b'"y' + whole[2:])

    error = f"step 'large' of run {run_id}: the artifact file {artifact} does not match its name"
    hint = "restore the file from a backup, or start anew: interlock run flow.md"
    status = interlock("status", "last", "--json", cwd=tmp_path)
    assert (status.returncode, status.stderr) == (0, "")
    seen = json.loads(status.stdout)
    about = seen["steps"][1]["artifact"]
    assert about == {"hash": about["hash"], "size": 100_002, "preview": None, "error": f"{error}; {hint}"}
    before["steps"][1]["artifact"] = about
    assert seen == before
    assert interlock("status", "last", cwd=tmp_path).returncode == 0
    asked = (("status", "last", "--artifact", "large"), ("resume", "last"), ("fork", "last"), ("export", "last"))
    for arguments in asked:
        done = interlock(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, ""), arguments
        assert done.stderr.splitlines()[0] == f"error: {error}"
        assert done.stderr.splitlines()[1].startswith(f"hint: {hint}")

    assert interlock(*hint.partition("interlock ")[2].split(), cwd=tmp_path).returncode == 1
    assert artifact.read_bytes() == whole
    for run in ("last", run_id):
        told = json.loads(interlock("status", run, "--json", cwd=tmp_path).stdout)
        assert told["steps"][1]["artifact"]["preview"].startswith('"000')
