"""The folders that tests read files from."""

from pathlib import Path

__all__ = ["DOCS", "EXAMPLES", "ROOT", "SUPPORT"]

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
