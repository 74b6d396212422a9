"""Reads and checks what a bundle consists of: the manifest, the files that it lists, and nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import stat
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from opbridge.atomic import is_temporary
from opbridge.bundle.graph import GraphRow
from opbridge.bundle.trust import MARKS
from opbridge.capture.assumption import Assumption, verdict_text
from opbridge.engines.base import TensorSpec
from opbridge.errors import InputError
from opbridge.kernels.dtypes import numpy_dtype
from opbridge.records import StoredRecord, from_dict
from opbridge.records import to_json as finite
from opbridge.user_key import read_regular

__all__ = [
    "FAILING_INPUT",
    "FORMAT",
    "MANIFEST",
    "MODEL_SIGNATURE",
    "REPORT",
    "SIDE_FILES",
    "SOURCES",
    "VERIFICATION",
    "VERIFICATION_SIGNATURE",
    "check_files",
    "check_nothing_else",
    "checked_sources",
    "file_hash",
    "manifest_hash",
    "outcome",
    "parsed",
    "read_manifest",
    "read_side_file",
    "to_json",
    "unlisted_files",
]

FORMAT = 1
"""The version of the bundle format that this version writes, and the only one that it reads."""

MANIFEST = "bundle.json"
VERIFICATION = "verification.json"
FAILING_INPUT = "failing_input.npz"
BENCHMARK = "benchmark.json"
SOURCES = "sources.json"
REPORT = "report.html"
MODEL_SIGNATURE = "model.sig"
VERIFICATION_SIGNATURE = "verification.sig"
SIDE_FILES = (
    *(VERIFICATION, SOURCES, REPORT, FAILING_INPUT, BENCHMARK, MARKS),
    *(MODEL_SIGNATURE, VERIFICATION_SIGNATURE),
)
"""The files that the manifest does not list: they are written later, or have absolute paths."""

_CHUNK = 4 << 20
_DIGITS = 300
_DEPTH = 100


@dataclasses.dataclass(frozen=True)
class _File(StoredRecord):
    sha256: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class _Model(StoredRecord):
    file: str
    engines: tuple[str, ...]
    opset: int | None = None
    ir_version: int | None = None


@dataclasses.dataclass(frozen=True)
class _Kernels(StoredRecord):
    engine: str
    file: str
    platform: str
    optional: bool


@dataclasses.dataclass(frozen=True)
class _Operator(StoredRecord):
    target: str
    rung: str
    count: int
    provider: str = ""


@dataclasses.dataclass(frozen=True)
class _StateBuffer(StoredRecord):
    buffer: str
    input: str
    output: str


@dataclasses.dataclass(frozen=True)
class _Original(StoredRecord):
    sha256: str


@dataclasses.dataclass(frozen=True)
class _Manifest(StoredRecord):
    """What this version reads of a manifest, with its types."""

    opbridge: str
    sha256: str
    models: tuple[_Model, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    files: Mapping[str, _File]
    entry: str | None = None
    kernels: tuple[_Kernels, ...] = ()
    operators: tuple[_Operator, ...] = ()
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    adaptations: Mapping[str, tuple[Mapping[str, Any], ...]] = dataclasses.field(default_factory=dict)
    dynamic: Mapping[str, tuple[int | None, int | None]] = dataclasses.field(default_factory=dict)
    state_buffers: tuple[_StateBuffer, ...] = ()
    opset_reason: str = ""
    assumptions: tuple[Assumption, ...] = ()
    was_training: bool = False
    original: _Original = _Original("")
    weights: str | None = None
    state: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _Sources(StoredRecord):
    """What this version reads of ``sources.json``, with its types."""

    entry_path: str | None = None
    nodes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    targets: Mapping[str, str] = dataclasses.field(default_factory=dict)
    captured: Mapping[str, str] = dataclasses.field(default_factory=dict)
    values: Mapping[str, tuple[str, int | None]] = dataclasses.field(default_factory=dict)
    operators: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    findings: tuple[Mapping[str, Any], ...] = ()
    graph: tuple[GraphRow, ...] = ()


def checked_sources(folder: Path, data: dict[str, Any]) -> dict[str, Any]:
    """The content of ``sources.json``. Raises InputError if a value has another type."""
    try:
        from_dict(_Sources, data)
    except InputError as error:
        what = error.message.removeprefix("_Sources.").rstrip(".")
        raise InputError(f"{folder / SOURCES} is damaged: {what}.", fix=f"delete {SOURCES}.") from error
    return data


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle.

    Raises:
        InputError: There is no bundle, or its manifest is damaged, of another format or inconsistent.
    """
    file = folder / MANIFEST
    try:
        manifest = parsed(read_regular(file))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _no_bundle(folder) from error
    except OSError as error:
        raise InputError(f"Can't read {file}: {error.strerror or error}.", fix="check its permissions.") from error
    except ValueError as error:
        raise _damaged(folder, f"{MANIFEST} is not JSON ({error})") from error
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise InputError(
            f"{file} is not the manifest of an opbridge bundle.", fix="pass a folder that opbridge export wrote."
        )
    if manifest["format"] != FORMAT:
        raise InputError(
            f"{folder} is a bundle of format {manifest['format']!r}, written by opbridge "
            f"{manifest.get('opbridge', '(unknown)')}; this opbridge reads format {FORMAT}.",
            fix="use the opbridge that wrote it, or export the model again with this one.",
        )
    _check_manifest(folder, manifest)
    return manifest


def parsed(content: bytes) -> Any:
    """JSON data, strictly.

    Raises:
        ValueError: It is not JSON, is nested too deeply, has an integer that no float can hold, NaN or an infinite
            number, or an object has a key twice, of which another program could take the other value.
    """
    try:
        data = json.loads(content, parse_int=_integer, parse_constant=_constant, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    level = [data]
    for _ in range(_DEPTH):
        level = [item for one in level if isinstance(one, dict | list) for item in _items(one)]
        if not level:
            return data
    raise ValueError("it is nested too deeply")


def read_side_file(file: Path) -> dict[str, Any] | None:
    """The JSON object in a side file; None if there is no such file. Raises InputError if it is damaged."""
    try:
        data = parsed(read_regular(file))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"Can't read {file}: {error}.", fix=f"delete {file.name}, then verify again.") from error
    if not isinstance(data, dict):
        raise InputError(f"{file} holds no JSON object.", fix=f"delete {file.name}, then verify again.")
    return data


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"it has an integer of {len(text)} digits")
    return int(text)


def _constant(text: str) -> float:
    raise ValueError(f"it has the number {text}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise ValueError(f"it has the key {twice[:60]!r} twice")
    return data


def _items(data: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return data.values() if isinstance(data, dict) else data


def _check_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    try:
        read = from_dict(_Manifest, manifest)
    except InputError as error:
        raise _damaged(folder, error.message.replace("_Manifest.", f"{MANIFEST}: ", 1).rstrip(".")) from error
    if read.sha256 != manifest_hash(manifest):
        raise _damaged(folder, f"{MANIFEST} was changed after it was written")
    if not read.models or not all(model.engines for model in read.models):
        raise _damaged(folder, f"{MANIFEST} lists no model, or one without an engine")
    for kind, name in (*(("model", model.file) for model in read.models), *(("library", k.file) for k in read.kernels)):
        if name not in read.files:
            raise _damaged(folder, f"{MANIFEST} lists the {kind} {name!r} without its sha256")
    for name in read.files:
        if not _is_inside(name):
            raise _damaged(folder, f"{MANIFEST} lists {name!r}, which is not a plain path inside of the bundle")
    for spec in (*read.inputs, *read.outputs):
        if any(isinstance(size, int) and size < 0 for size in spec.shape):
            raise _damaged(folder, f"{MANIFEST} gives {spec.name!r} the shape {list(spec.shape)}")
        try:
            numpy_dtype(spec.dtype)
        except (TypeError, ValueError) as error:
            raise _damaged(folder, f"{MANIFEST} gives {spec.name!r} the dtype {spec.dtype[:60]!r}") from error


def _is_inside(name: str) -> bool:
    """Whether a name in a manifest is one of a file below the bundle's folder, on every system and in every message."""
    parts = name.split("/")
    is_plain = not any(letter in "\\:" or unicodedata.category(letter)[0] == "C" for letter in name)
    return is_plain and not ({"", ".", ".."} & set(parts)) and not PurePosixPath(name).is_absolute()


def check_files(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Check every file that the manifest lists against its size and hash. Raises InputError for one that differs."""
    for name, recorded in files.items():
        file = folder / name
        try:
            size = file.stat().st_size
            if not file.is_file():
                raise _damaged(folder, f"{name} is not a regular file")
            if size != recorded["bytes"]:
                raise _damaged(folder, f"{name} has {size} bytes instead of {recorded['bytes']}")
            if file_hash(file) != recorded["sha256"]:
                raise _damaged(folder, f"the content of {name} does not match its sha256")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _damaged(folder, f"{name} is missing") from error
        except OSError as error:
            raise InputError(f"Can't read {file}: {error.strerror}.", fix="check its permissions.") from error


def check_nothing_else(folder: Path, known: Collection[str]) -> None:
    """Check that a bundle holds regular files of these names alone: no links, pipes or devices, and no other files.

    Raises:
        InputError: The bundle holds something else, which the message names.
    """
    for name, entry in _entries(folder):
        kind = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISLNK(kind):
            what = "a link, which may lead out of the bundle"
        elif not stat.S_ISREG(kind):
            what = "neither a file nor a folder"
        elif name not in known and not is_temporary(name):
            what = "not listed in the manifest, so its content can't be checked"
        else:
            continue
        raise InputError(
            f"The bundle {folder} was not made by you on this machine, and {name} in it is {what}.",
            fix=f"delete it if it is not needed; a link can be replaced by its file with cp -rL. Or, if you trust "
            f"whoever made all of {folder}: --trust (in Python: trust=True).",
        )


def unlisted_files(folder: Path, known: Collection[str]) -> list[str]:
    """The files in a folder whose names are not known, sorted."""
    return sorted(name for name, entry in _entries(folder) if name not in known and not is_temporary(entry.name))


def _entries(folder: Path, inside: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What is in a folder and the folders in it, other than folders; links are not followed."""
    with os.scandir(folder / inside) as found:
        for entry in sorted(found, key=lambda item: item.name):
            name = f"{inside}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(folder, f"{name}/")
            else:
                yield name, entry


def file_hash(file: Path) -> str:
    """The SHA-256 of a file's content, as a hexadecimal number."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(_CHUNK, file.stat().st_size + 1)))
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            digest.update(buffer[:count])
    return digest.hexdigest()


def manifest_hash(manifest: Mapping[str, Any]) -> str:
    """The SHA-256 of a manifest without its own ``sha256``, as a hexadecimal number."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(to_json(rest).encode()).hexdigest()


def to_json(data: Any) -> str:
    """Deterministic, strict JSON. A non-finite float becomes a string that ``float()`` accepts."""
    return json.dumps(finite(data), sort_keys=True, indent=2, allow_nan=False) + "\n"


def _no_bundle(folder: Path) -> InputError:
    fix = "pass the folder that opbridge export wrote with -o."
    if not folder.exists():
        return InputError(f"There is no bundle at {folder}: no such folder.", fix=fix)
    if folder.is_file():
        return InputError(f"{folder} is a file; a bundle is a folder with a {MANIFEST}.", fix=fix)
    return InputError(f"{folder} is not a bundle: it has no {MANIFEST}.", fix=fix)


def _damaged(folder: Path, what: str) -> InputError:
    return InputError(
        f"The bundle {folder} is damaged: {what}.",
        fix="copy the bundle again from where it was made, or export the model again with --overwrite.",
    )


_FAILING = ("differs", "shape", "dtype", "missing")
"""The statuses of outputs that fail (``proof/verify/verification.py``)."""


def outcome(verification: Mapping[str, Any], assumptions: Collection[Any]) -> str:
    """The verdict, and the first outputs that fail, or the error: ``"failed (y 3.4 times the tolerance)"``."""
    worst: dict[str, float] = {}
    for found in verification.get("comparisons", ()):
        if found["status"] in _FAILING:
            worst[found["output"]] = max(worst.get(found["output"], 0.0), float(found["ratio"]))
    far = [f"{name} {ratio:.3g} times the tolerance" if ratio else f"{name} differs" for name, ratio in worst.items()]
    reason = ", ".join(far[:3]) or str(verification.get("error") or "").partition("\n")[0]
    verdict = verdict_text(verification.get("verdict", "not verified"), assumptions)
    return verdict + (f" ({reason})" if reason else "")
