"""Reads and writes arrays in ``.npy`` and ``.npz`` files for the subcommands."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.atomic import locked_file
from opbridge.engines.base import TensorSpec
from opbridge.errors import InputError
from opbridge.records import write_npz

__all__ = ["check_output", "describe", "fit", "read_arrays", "read_cases", "write_arrays"]


def read_arrays(items: Sequence[str]) -> dict[str, np.ndarray]:
    """Read ``NAME=FILE.npy`` and ``FILE.npz`` items into arrays by name.

    Raises:
        InputError: An item has neither form, a file can't be read, or a name occurs twice.
    """
    arrays: dict[str, np.ndarray] = {}
    for item in items:
        for name, array in _read(item).items():
            if name in arrays:
                raise InputError(f"The input {name!r} is given twice.", fix="give each input once.")
            arrays[name] = array
    return arrays


def read_cases(items: Sequence[str]) -> dict[str, dict[str, np.ndarray]]:
    """Read ``.npz`` files and folders of them. Returns one mapping of names to arrays per file, by file name.

    Raises:
        InputError: A file can't be read, or a folder contains no ``.npz`` files.
    """
    files: list[str] = []
    for item in items:
        inside = sorted(map(str, Path(item).glob("*.npz"))) if Path(item).is_dir() else [item]
        if not inside:
            raise InputError(f"The folder {item} contains no .npz files.", fix="put one .npz file per case into it.")
        files += inside
    short = [Path(file).name for file in files]
    names = short if len(set(short)) == len(short) else files
    return {name: read_arrays([file]) for name, file in zip(names, files, strict=True)}


def fit(feeds: Mapping[str, np.ndarray], inputs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    """Check the names of inputs, and restore the dtypes of bfloat16 and float8 arrays, which NumPy stores as raw bytes.

    Raises:
        InputError: A name is unknown or missing.
    """
    names = [spec.name for spec in inputs]
    if unknown := [name for name in feeds if name not in names]:
        raise InputError(
            f"The model has no input {unknown[0]!r}; its inputs are: {', '.join(names)}.",
            fix=f"write, for example, --input {names[0]}=file.npy." if names else "remove --input.",
        )
    if missing := [name for name in names if name not in feeds]:
        raise InputError(
            f"There is no array for the input{'s' if len(missing) > 1 else ''} {', '.join(missing)}.",
            fix=f"add {' '.join(f'--input {name}=FILE.npy' for name in missing)}.",
        )
    return {spec.name: _with_dtype(feeds[spec.name], spec.dtype) for spec in inputs}


def describe(name: str, array: np.ndarray) -> dict[str, Any]:
    """Describe an array as JSON: ``name``, ``dtype``, ``shape``, and ``min``, ``mean`` and ``max`` if defined."""
    data: dict[str, Any] = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
    with contextlib.suppress(TypeError, ValueError):
        if array.size:
            values = array.astype(np.float64)
            data |= {"min": float(values.min()), "mean": float(values.mean()), "max": float(values.max())}
    return data


def check_output(path: str) -> None:
    """Check, before any work is done, that the file ``path`` can be written. Raises InputError if it can't."""
    parent = Path(path).parent
    if not parent.is_dir():
        raise InputError(f"Can't write {path}: there is no folder {parent}.", fix=f"make it first: mkdir -p {parent}")
    if Path(path).is_dir():
        raise InputError(f"Can't write {path}: it is a folder.", fix=f"name a file in it, such as {path}/out.npz.")
    if not os.access(parent, os.W_OK):
        raise InputError(f"Can't write {path}: no permission for {parent}.", fix="choose another folder with -o.")


def write_arrays(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name to an ``.npz`` file, written atomically. Raises InputError if it can't be written."""
    file = Path(path)
    try:
        with locked_file(file) as temporary:
            write_npz(temporary, arrays)
            os.replace(temporary, file)
    except OSError as error:
        raise InputError(
            f"Can't write {path}: {error.strerror or error}.", fix="free some space, or choose another file with -o."
        ) from error


def _read(item: str) -> dict[str, np.ndarray]:
    name, separator, file = item.partition("=")
    if not separator:
        if not item.endswith(".npz"):
            raise InputError(
                f"--input {item}: expected NAME=FILE.npy, or a FILE.npz.", fix=f"write, for example, --input x={item}."
            )
        name, file = "", item
    try:
        if os.path.exists(file) and not os.path.isfile(file):
            raise ValueError("it is not a regular file")
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            if not name:
                raise ValueError("it holds one array without a name")
            return {name: loaded}
        with loaded:
            _check_archive(loaded)
            if not name:
                return {key: loaded[key] for key in loaded.files}
            if name in loaded.files:
                return {name: loaded[name]}
            raise ValueError(f"it contains {', '.join(loaded.files)}, but no array {name!r}")
    except FileNotFoundError as error:
        raise InputError(
            f"There is no file {file}.", fix="check the path; it is relative to the current folder."
        ) from error
    except Exception as error:  # zipfile, zlib, ast and NumPy raise a dozen kinds for a damaged file.
        raise InputError(
            f"Can't read arrays from {file}: {error}.", fix="write it with numpy.save or numpy.savez."
        ) from error


def _check_archive(arrays: Any) -> None:
    """Raise ValueError for an ``.npz`` file with two arrays of one name, or with more than fits into the memory.

    A compressed file can be a thousandth of its arrays.
    """
    if len(set(arrays.files)) < len(arrays.files):
        raise ValueError("it contains two arrays of one name")
    size = sum(entry.file_size for entry in arrays.zip.infolist())
    if hasattr(os, "sysconf") and size > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise ValueError(f"its arrays take {size >> 30} GiB, more than this machine has memory")


def _with_dtype(array: np.ndarray, dtype: str) -> np.ndarray:
    if array.dtype.kind != "V":
        return array
    import ml_dtypes

    wanted = getattr(ml_dtypes, dtype, None)
    return array if wanted is None or np.dtype(wanted).itemsize != array.dtype.itemsize else array.view(wanted)
