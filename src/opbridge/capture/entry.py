"""Entries, which name a model on the command line and in a bundle.

``file.py:function`` and ``package.module:function`` name a function without arguments that returns ``(module, args)``,
``(module, args, kwargs)``, or a dict with ``model``, ``args`` and any of ``kwargs``, ``dynamic_shapes``,
``input_names``, ``output_names``, ``state``. ``model.pt2`` names a saved ``torch.export`` program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NoReturn

from opbridge.capture.assumption import Assume
from opbridge.errors import InputError, OpbridgeError, described_error
from opbridge.torch_graph.sources import source_of_error

__all__ = ["Entry", "as_entry", "entry_file", "entry_of", "load_entry", "load_file", "portable_entry"]

_FORMS = "file.py:function, package.module:function or model.pt2"
_RETURNS = "(module, args), (module, args, kwargs) or a dict with 'model' and 'args'"
_KEYS = ("model", "args", "kwargs", "dynamic_shapes", "input_names", "output_names", "state")

_loaded_files: dict[Path, types.ModuleType] = {}


@dataclasses.dataclass(frozen=True)
class Entry:
    """A model with its example inputs.

    Attributes:
        text: The entry as the user wrote it.
        model: A ``torch.nn.Module``, or the ``ExportedProgram`` of a ``.pt2`` file.
        args: Positional example inputs.
        kwargs: Keyword example inputs.
        dynamic_shapes: The dynamic dimensions, in the form of ``torch.export.export``.
        input_names: Names for the inputs of the ONNX model, or None.
        output_names: Names for the outputs of the ONNX model, or None.
        file: The file that the entry is defined in; None for an entry in a module.
        state: Whether the buffers that ``forward`` changes become inputs and outputs of the ONNX model.
        assume: Whether what can't be captured otherwise is captured for the example inputs; see
            :func:`~opbridge.capture.capture.capture`.
    """

    text: str
    model: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dynamic_shapes: Any = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    file: Path | None = None
    state: bool = False
    assume: Assume = False


def load_entry(text: str) -> Entry:
    """Import the file or module of an entry and call its function.

    A file is imported once per process. During the import, its folder (for a module, the current folder) is in
    ``sys.path``.

    Raises:
        InputError: The entry can't be read, is missing, raises an error, or does not return a model and inputs.
    """
    if text.endswith(".pt2"):
        return _load_program(text)
    place, function_name = _split(text)
    is_file = is_file_entry(place)
    folder = _absolute(place).parent if is_file else Path.cwd()
    with _importable(folder):
        module = _import_file(f"Entry {text}", place) if is_file else _import_module(text, place)
        function = _function(text, module, function_name)
        returned = _call(text, function)
    file = getattr(module, "__file__", None)
    return _entry(text, returned, Path(file) if file else None)


def load_file(place: str) -> types.ModuleType:
    """Import a file like that of an entry: once per process, with its folder in ``sys.path`` during the import.

    Raises:
        InputError: The file does not exist, or it raises an error.
    """
    with _importable(_absolute(place).parent):
        return _import_file(place, place)


def entry_of(text: str, function: Callable[[], Any], file: Path | None = None) -> Entry:
    """Call the function of an entry that is already imported; ``text`` names it in messages and reports.

    Raises:
        InputError: The function raises an error, or does not return a model and inputs.
    """
    return _entry(text, _call(text, function), file)


def as_entry(given: Any) -> Entry:
    """An entry given in Python: its text, what its function returns (``(module, args)``, a dict), or an ``Entry``.

    Raises:
        InputError: It is nothing of the kind.
    """
    if isinstance(given, Entry):
        return given
    if isinstance(given, str | Path):
        return load_entry(str(given))
    if not isinstance(given, Mapping | tuple):
        raise InputError(
            f"A {type(given).__name__} was passed in the place of a model with its inputs.",
            fix="pass (module, args), or the text of an entry, such as 'model.py:build'.",
        )
    return _entry("given in Python", given, None)


def portable_entry(text: str) -> str:
    """The entry without an absolute path: a relative path is kept (with ``/``), otherwise only the file name."""
    place, separator, function = split_entry(text)
    if not is_file_entry(place):
        return text
    path = PurePath(place)
    return (path.name if path.is_absolute() else path.as_posix()) + separator + function


def entry_file(text: str) -> Path | None:
    """The absolute path of an entry's file; None for an entry in a module."""
    place = split_entry(text)[0]
    return _absolute(place) if is_file_entry(place) else None


def _absolute(file: str | Path) -> Path:
    """The absolute path of a file without links, or of a link to itself, for which ``Path.resolve`` fails."""
    return Path(os.path.realpath(file))


def is_file_entry(place: str) -> bool:
    return place.endswith((".py", ".pt2", ".onnx")) or "/" in place or "\\" in place


def split_entry(text: str) -> tuple[str, str, str]:
    return (text, "", "") if text.endswith((".pt2", ".onnx")) else text.rpartition(":")


def _split(text: str) -> tuple[str, str]:
    place, separator, function = text.rpartition(":")
    if not separator or not place or not function.isidentifier():
        example = f"{text.rstrip(':')}:model" if text.rstrip(":").endswith(".py") else "model.py:build"
        raise InputError(f"{text!r} is not a valid entry: expected {_FORMS}.", fix=f"write, for example, {example}.")
    return place, function


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def _import_file(what: str, place: str) -> types.ModuleType:
    file = _absolute(place)
    if file in _loaded_files:
        return _loaded_files[file]
    if not file.is_file():
        raise InputError(f"{what}: there is no file {place}.", fix=_existing_files(Path(place)))
    name = _module_name(file)
    if name in sys.modules:
        return sys.modules[name]
    specification = importlib.util.spec_from_file_location(name, file)
    if specification is None or specification.loader is None:
        raise InputError(f"{what}: {place} is not a Python file.", fix=f"name an entry as {_FORMS}.")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        _reraise(f"{what}: importing {place}", error)
    _loaded_files[file] = module
    return module


def _module_name(file: Path) -> str:
    """The module name for ``file``: its own name if that is free, so that files in its folder can import it too."""
    name = file.stem
    if name.isidentifier():
        loaded = sys.modules.get(name)
        found = getattr(loaded, "__spec__", None) if loaded else importlib.util.find_spec(name)
        if found is not None and found.origin is not None and Path(found.origin).resolve() == file:
            return name
    return f"opbridge_entry_{len(_loaded_files)}_{file.stem}"


def _import_module(text: str, name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise InputError(
                f"Entry {text}: there is no module {error.name!r}.",
                fix=f"run in the folder that contains {error.name.partition('.')[0]!r}, install it, "
                "or name the file: path/to/file.py:function.",
            ) from error
        _reraise(f"Entry {text}: importing {name}", error)


def _function(text: str, module: types.ModuleType, name: str) -> Callable[[], Any]:
    if not hasattr(module, name):
        own = [
            key
            for key, value in vars(module).items()
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__ and key[0] != "_"
        ]
        close = difflib.get_close_matches(name, own, n=1)
        hint = f"write {text.rpartition(':')[0]}:{close[0]}" if close else f"its functions are: {', '.join(own)}"
        place = Path(module.__file__).name if module.__file__ else module.__name__
        raise InputError(
            f"Entry {text}: {place} has no function {name!r}.",
            fix=f"{hint}." if own else f"define a function that returns {_RETURNS}.",
        )
    function = getattr(module, name)
    if not callable(function) or (hasattr(function, "state_dict") and not isinstance(function, type)):
        raise InputError(
            f"Entry {text}: {name!r} is a {type(function).__name__}, not a function.",
            fix=f"define a function without arguments that returns {_RETURNS}.",
        )
    return function


def _call(text: str, function: Callable[[], Any]) -> Any:
    name = text.rpartition(":")[2]
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise InputError(
            f"Entry {text}: {name}() is called without arguments, but: {error}.",
            fix="give every parameter a default value, or wrap it in a function without parameters.",
        ) from error
    except ValueError:
        pass  # A function in C may have no signature.
    try:
        return function()
    except BaseException as error:
        _reraise(f"Entry {text}: {name}()", error)


def _reraise(what: str, error: BaseException) -> NoReturn:
    """Raise the user's error as an InputError with the user's innermost line, and the traceback in the details."""
    if isinstance(error, OpbridgeError | KeyboardInterrupt):
        raise error
    fix = "correct the entry; it must run on its own in this environment."
    if isinstance(error, ModuleNotFoundError) and error.name:
        fix = f"install the package of the module {error.name!r} in this environment."
    raise InputError(
        f"{what} raised {described_error(error)} ({_own_line(error)}).",
        fix=fix,
        details="".join(traceback.format_exception(error)),
    ) from error


def _own_line(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    source = source_of_error(error)
    if source is None:
        return "no line of yours is in its traceback"
    return str(source) + (f", {source.text}" if source.text else "")


def _existing_files(place: Path) -> str:
    siblings = [file.name for file in sorted(place.parent.glob("*.py"))] if place.parent.is_dir() else []
    close = difflib.get_close_matches(place.name, siblings, n=1)
    return (
        f"write {(place.parent / close[0]).as_posix()}."
        if close
        else "check the path, which is relative to the current folder."
    )


def _entry(text: str, returned: Any, file: Path | None) -> Entry:
    if isinstance(returned, Mapping):
        if unknown := sorted(str(key) for key in returned if key not in _KEYS):
            raise InputError(
                f"Entry {text}: it returns a dict with the unknown key {unknown[0]!r}.",
                fix=f"use only these keys: {', '.join(_KEYS)}.",
            )
        fields = dict(returned)
        if "model" not in fields:
            raise InputError(f"Entry {text}: it returns a dict without 'model'.", fix=f"return {_RETURNS}.")
    elif isinstance(returned, tuple) and len(returned) in (2, 3):
        fields = dict(zip(("model", "args", "kwargs"), returned, strict=False))
    else:
        count = f" of {len(returned)}" if isinstance(returned, tuple) else ""
        raise InputError(
            f"Entry {text}: it returns a {type(returned).__name__}{count}, not a model with its inputs.",
            fix=f"return {_RETURNS}.",
        )
    _check_types(text, fields)
    kwargs = fields.pop("kwargs", None) or {}
    return Entry(text, fields.pop("model"), tuple(fields.pop("args", ())), dict(kwargs), file=file, **fields)


def _check_types(text: str, fields: Mapping[str, Any]) -> None:
    import torch

    model, args, kwargs = fields["model"], fields.get("args", ()), fields.get("kwargs")
    if not isinstance(model, torch.nn.Module | torch.export.ExportedProgram):
        raise InputError(
            f"Entry {text}: the model is a {type(model).__name__}, not a torch.nn.Module.",
            fix="return a torch.nn.Module first; wrap a plain function in a module's forward.",
        )
    if not isinstance(args, tuple | list):
        raise InputError(
            f"Entry {text}: args is a {type(args).__name__}, not a tuple.",
            fix="return (module, (x,)) even for a single input x: note the comma.",
        )
    if kwargs is not None and not (isinstance(kwargs, Mapping) and all(isinstance(key, str) for key in kwargs)):
        raise InputError(
            f"Entry {text}: kwargs is a {type(kwargs).__name__}, not a dict by argument name.",
            fix="return (module, args, {'name': value}).",
        )
    if not isinstance(fields.get("state", False), bool):
        raise InputError(f"Entry {text}: state is not True or False.", fix="return, for example, state=True.")
    for key in ("input_names", "output_names"):
        names = fields.get(key)
        if names is not None and (isinstance(names, str) or not all(isinstance(name, str) for name in names)):
            raise InputError(
                f"Entry {text}: {key} is not a list of strings.", fix=f"return, for example, {key}=['x', 'y']."
            )


def _load_program(text: str) -> Entry:
    file = Path(text)
    if not file.is_file():
        raise InputError(
            f"Entry {text}: there is no such file.", fix="check the path, which is relative to the current folder."
        )
    import torch

    try:
        program = torch.export.load(file)
    except Exception as error:
        raise InputError(
            f"Entry {text}: torch.export.load can't read it ({described_error(error)}).",
            fix="save it with torch.export.save; if it uses custom operators, use an entry function that imports them.",
            details="".join(traceback.format_exception(error)),
        ) from error
    if program.example_inputs is None:
        raise InputError(
            f"Entry {text}: the program was saved without its example inputs.",
            fix="save it with torch.export.save as torch.export.export returned it.",
        )
    args, kwargs = program.example_inputs
    return Entry(text, program, tuple(args), dict(kwargs), file=_absolute(file))
