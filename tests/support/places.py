"""The folders that tests read files from."""

from pathlib import Path

__all__ = ["EXAMPLES", "ROOT", "SUPPORT"]

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]
EXAMPLES = ROOT / "examples"
