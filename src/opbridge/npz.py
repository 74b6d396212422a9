"""Arrays by name as an ``.npz`` file."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

__all__ = ["write_npz"]


def write_npz(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays. Unlike numpy.savez it takes an array named "file", and appends nothing to the file's name."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.ascontiguousarray(array).reshape(np.shape(array)))
