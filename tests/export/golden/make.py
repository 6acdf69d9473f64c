"""Make `export-v<n>.gz` of the current format. Run once per format; the files of older formats are kept for ever."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.export.files import export, journal

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        shutil.copyfile(export(journal(Path(made)))[0], Path(sys.argv[1]))
