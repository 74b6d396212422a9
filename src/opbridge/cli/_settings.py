"""Defaults of the command line: the table ``[tool.opbridge]`` of the user's pyproject.toml."""

from __future__ import annotations

import argparse
import os
import tomllib
from pathlib import Path
from typing import Any

from opbridge.errors import InputError

__all__ = ["apply_defaults", "read_settings"]

_KEYS = {
    "engine": ("a name or a list of names", 'engine = "openvino"'),
    "ops": ("a path or a list of paths", 'ops = ["my_ops"]'),
    "opset": ('an integer or "lowest"', "opset = 18"),
}
"""What each key holds, and an example."""


def apply_defaults(arguments: argparse.Namespace) -> None:
    """Give each option in ``arguments.defaults`` that is not on the command line its value.

    The value is that of pyproject.toml, or else the one in ``arguments.defaults``.

    Raises:
        InputError: The table in pyproject.toml has an unknown key or a value of another type.
    """
    defaults = getattr(arguments, "defaults", {})
    left_out = [name for name in defaults if getattr(arguments, name) in (None, [])]
    settings = read_settings(Path.cwd()) if left_out else {}
    for name in left_out:
        setattr(arguments, name, settings.get(name, defaults[name]))


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the table of the nearest pyproject.toml, in ``folder`` or above it.

    Returns:
        The values by the names of the options: ``engines`` and its first one as ``engine``, ``ops`` as paths that
        begin at the file's folder, and ``opset``. Empty if there is no such file or table.

    Raises:
        InputError: The file is not valid TOML, or its table has an unknown key or a value of another type.
    """
    files = (parent / "pyproject.toml" for parent in (folder, *folder.parents))
    file = next(filter(os.path.isfile, files), None)
    table = _table(file) if file is not None else {}
    for key, value in table.items():
        _check(file, key, value)
    settings = {"opset": table["opset"]} if "opset" in table else {}
    if "engine" in table:
        settings["engines"] = tuple(_listed(table["engine"]))
        settings["engine"] = settings["engines"][0]
    if "ops" in table and file is not None:
        settings["ops"] = [str(file.parent / path) for path in _listed(table["ops"])]
    return settings


def _table(file: Path) -> dict[str, Any]:
    try:
        tools = tomllib.loads(file.read_bytes().decode()).get("tool", {})
    except ValueError as error:  # Neither UTF-8 nor TOML.
        raise InputError(f"{file} is not valid TOML: {error}.", fix="correct the file.") from error
    table = tools.get("opbridge", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise InputError(f"{file}: tool.opbridge is not a table.", fix="write [tool.opbridge] and its keys below it.")
    return table


def _check(file: Path | None, key: str, value: Any) -> None:
    if key not in _KEYS:
        raise InputError(
            f"{file}: [tool.opbridge] has the unknown key {key!r}.", fix=f"the keys are {', '.join(_KEYS)}."
        )
    kind, example = _KEYS[key]
    if key == "opset":
        fits = type(value) is int or value == "lowest"
    else:
        fits = bool(value) and all(isinstance(item, str) and item for item in _listed(value))
    if not fits:
        raise InputError(f"{file}: {key} in [tool.opbridge] must be {kind}, not {value!r}.", fix=f"write {example}.")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
