"""The file in which a verification stores a small failing input."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from opbridge.atomic import locked_file, reported, sync
from opbridge.bundle.checks import FAILING_INPUT
from opbridge.records import write_npz

__all__ = ["SmallInput"]


class SmallInput:
    """The file for the first small failing input that a verification of one or more engines finds.

    Args:
        folder: The bundle that the file is written to.

    Attributes:
        name: The file's name; empty as long as no file is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = ""

    def keep(self, arrays: Mapping[str, np.ndarray]) -> str:
        """Write arrays by input name, and return the file's name. Raises InputError if it can't be written."""
        file = self._folder / FAILING_INPUT
        with reported(file), locked_file(file) as temporary:
            write_npz(temporary, arrays)
            sync(temporary)
            os.replace(temporary, file)
        self.name = FAILING_INPUT
        return self.name
