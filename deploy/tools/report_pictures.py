"""Takes the pictures of a report in docs/images: of the first simulation's scenario, light and dark, in Chromium.

PYTHONPATH=operator .venv/bin/python deploy/tools/report_pictures.py [chromium]
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from fairbind.cli import main

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 1000, 1168
"""So high that the picture ends below a paragraph."""
COLOURS = 64


def take(browser: str) -> None:
    """Simulate the scenario of docs/simulate.md and write both pictures."""
    found = re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / "simulate.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scenario.yaml").write_text(found[1], encoding="utf-8")
        assert main(["simulate", str(folder / "scenario.yaml"), "--out", name]) == 0
        for scheme, file in enumerate(("report-dark.png", "report-light.png")):
            picture = ROOT / "docs" / "images" / file
            flags = [
                "--headless=new",
                "--no-sandbox",  # it may be run as root, and the page is ours
                "--disable-gpu",
                "--hide-scrollbars",
                "--force-device-scale-factor=1",
                f"--user-data-dir={folder / 'profile'}",
                f"--blink-settings=preferredColorScheme={scheme}",
                f"--window-size={WIDTH},{HEIGHT}",
                f"--screenshot={picture}",
            ]
            page = (folder / "report.html").as_uri()
            subprocess.run([browser, *flags, page], capture_output=True, timeout=600, check=True)
            Image.open(picture).convert("RGB").quantize(COLOURS).save(picture, optimize=True)


if __name__ == "__main__":
    take(*sys.argv[1:] or ["chromium"])
