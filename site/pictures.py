"""Makes the pictures of README.md: what an export prints, as SVG, and the report that it writes, as PNG.

    python site/pictures.py

It exports the first example, and needs Chromium: on the path, or named in OPBRIDGE_TEST_CHROMIUM.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console

from opbridge.report.bundle import bundle_view

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
COMMAND = ["export", "examples/detector_head.py:model", "-o", "build/head"]
SIZE = (1200, 600)


def main() -> None:
    """Write both pictures."""
    chromium = os.environ.get("OPBRIDGE_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("error: Chromium is not installed.\nfix: name it in OPBRIDGE_TEST_CHROMIUM.")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "head"
        command = [sys.executable, "-m", "opbridge", *COMMAND[:-1], str(bundle), "--json", "--quiet"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        data = {**json.loads(done.stdout), "path": COMMAND[-1]}
        (PICTURES / "export.svg").write_text(printed(data), encoding="utf-8")
        window = f"--window-size={SIZE[0]},{SIZE[1]}"
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", window]
        picture = f"--screenshot={PICTURES / 'report.png'}"
        page = (bundle / "report.html").as_uri()
        subprocess.run([chromium, *options, picture, page], capture_output=True, check=True)


def printed(data: dict[str, object]) -> str:
    """The command and what it prints, as SVG without fonts from elsewhere."""
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(f"$ opbridge {' '.join(COMMAND)}", style="bold", highlight=False)
    for renderable in bundle_view(data):
        console.print(renderable, highlight=False)
    own_fonts = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="opbridge", code_format=own_fonts, unique_id="opbridge")


if __name__ == "__main__":
    main()
