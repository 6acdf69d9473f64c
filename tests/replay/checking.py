"""What tests of replays hold: that one came to what was recorded, and a run as an export of its own."""

from __future__ import annotations

from interlock.app import App
from interlock.driver.export.exporting import export_run, new_file
from interlock.driver.replay.replaying import Replay
from interlock.exported import ExportApp


def same(found: Replay) -> None:
    assert found.differences == ()
    assert found.not_recorded == {}
    assert found.changed == ()
    assert found.exit_code == 0


def exported(app: App, run: str) -> ExportApp:
    path = app.project.root / "run.gz"
    with new_file(path, force=True) as out:
        export_run(app.project.journal, app.project.logs, run, out)
    return ExportApp(path)
