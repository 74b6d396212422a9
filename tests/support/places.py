"""The folders that tests read files from."""

from pathlib import Path

__all__ = ["DOCS", "ENTRIES", "EXAMPLES", "OLD_PROGRAMS", "ROOT", "SUPPORT", "TUTORIAL"]

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
TUTORIAL = EXAMPLES / "tutorial"
"""The programs of the tutorials, in their modern forms."""
OLD_PROGRAMS = TUTORIAL / "old"
ENTRIES = {file.stem: file for folder in (EXAMPLES, TUTORIAL) for file in sorted(folder.glob("*.py"))}
"""The examples that are entries for export, by name."""
