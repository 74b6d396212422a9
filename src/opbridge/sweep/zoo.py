"""Collections of models that a sweep runs: built-in ones, a Python file with ``entries``, a folder."""

from __future__ import annotations

import ast
import dataclasses
import fnmatch
import functools
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from opbridge.capture.entry import Entry, entry_of, load_entry, load_file
from opbridge.errors import InputError
from opbridge.sweep.zoos import operators, timm, torchvision, transformers

__all__ = ["BUILT_IN", "Zoo", "matching", "open_zoo"]

BUILT_IN: Mapping[str, ModuleType] = {
    "operators": operators,
    "timm": timm,
    "torchvision": torchvision,
    "transformers": transformers,
}
"""The built-in collections."""

_MODELS = (".onnx", ".pt2")
_FUNCTION = "model"


@dataclasses.dataclass(frozen=True)
class Zoo:
    """A collection of models.

    Attributes:
        name: The name in the rows.
        place: What opens the same collection in another process: a built-in name, or an absolute path.
        models: The names of the models.
        load: Builds a model by its name; an ONNX model is its file.
        package: The package whose version the rows record too; empty for none.
        run: For a collection whose tasks are no exports of a model: runs one by its name, the exporter and the engine,
            and returns fields of the row. None for collections of models.
    """

    name: str
    place: str
    models: tuple[str, ...]
    load: Callable[[str], Entry | Path]
    package: str = ""
    run: Callable[[str, str, str], Mapping[str, Any]] | None = None


def open_zoo(text: str) -> Zoo:
    """The collection that ``text`` names.

    Args:
        text: The name of a built-in collection, after which ``:all`` may stand for all models instead of a selection;
            a Python file with ``entries``, a dict of functions that return what an entry returns; or a folder of such
            files, of entry files with a function ``model``, and of ``.onnx`` and ``.pt2`` files.

    Raises:
        InputError: There is no such collection, its package is missing, or it has no models.
    """
    name, _, selection = text.partition(":")
    if name in BUILT_IN and selection in ("", "all"):
        return _built_in(text, BUILT_IN[name], selection == "all")
    path = Path(os.path.realpath(text))
    if path.is_dir():
        found = dict(_in_folder(path))
    elif path.is_file() and path.suffix == ".py":
        found = dict(_in_file(path))
    else:
        raise InputError(
            f"There is no collection of models {text!r}.",
            fix=f"name one of {', '.join(BUILT_IN)}, a Python file with a dict `entries`, or a folder.",
        )
    if not found:
        raise InputError(
            f"{text!r} has no models.",
            fix="define `entries`, a dict of functions that return (module, args), or put .onnx files into the folder.",
        )
    return Zoo(path.name, str(path), tuple(found), lambda model: found[model]())


def matching(models: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The models whose names match one of the patterns (``"resnet*"``); all of them without patterns."""
    return [name for name in models if not patterns or any(fnmatch.fnmatchcase(name, p) for p in patterns)]


def _built_in(text: str, module: ModuleType, every: bool) -> Zoo:
    package = module.PACKAGE
    if package and importlib.util.find_spec(package) is None:
        raise InputError(f"The collection {text!r} needs the package {package}.", fix=f"pip install {package}")
    names = module.all_names() if every and hasattr(module, "all_names") else module.names()

    def load(name: str) -> Entry | Path:
        return entry_of(f"{text}:{name}", lambda: module.build(name))

    return Zoo(text.partition(":")[0], text, tuple(names), load, package, getattr(module, "run", None))


Models = Iterator[tuple[str, Callable[[], Entry | Path]]]


def _in_file(path: Path) -> Models:
    entries = getattr(load_file(str(path)), "entries", None)
    if not isinstance(entries, Mapping):
        raise InputError(
            f"{path.name} has no dict `entries`.",
            fix="define entries = {'name': function}; each function returns (module, args).",
        )
    for name, function in entries.items():
        yield str(name), functools.partial(entry_of, f"{path.name}:{name}", function, path)


def _in_folder(folder: Path) -> Models:
    """The models of the files; a file that only defines an entry is not imported here."""
    for file in sorted(folder.iterdir()):
        if file.suffix == ".onnx":
            yield file.stem, functools.partial(Path, file)
        elif file.suffix in _MODELS:
            yield file.stem, functools.partial(load_entry, str(file))
        elif file.suffix == ".py":
            defined = _defined(file)
            if "entries" in defined:
                yield from ((f"{file.stem}/{name}", load) for name, load in _in_file(file))
            elif _FUNCTION in defined:
                yield file.stem, functools.partial(load_entry, f"{file}:{_FUNCTION}")


def _defined(file: Path) -> set[str]:
    """The names that a Python file defines or assigns at its top level; empty if it can't be parsed."""
    try:
        body = ast.parse(file.read_text(encoding="utf-8")).body
    except (SyntaxError, ValueError):
        return set()
    names = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    for node in body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names
