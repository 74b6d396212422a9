"""OpenPPL (ppl.nn) on x86-64, which takes opsets 11 to 16, has no package, and is built from source."""

from opbridge.engines.openppl.engine import OpenPplEngine

__all__ = ["ENGINE"]

ENGINE = OpenPplEngine
