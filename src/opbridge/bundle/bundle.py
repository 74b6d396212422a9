"""The bundle: a folder with a model, its manifest, and the result of its verification.

::

    model.onnx  ...      the model's files, each listed with its sha256
    bundle.json          the manifest: byte-identical for identical input, without absolute paths
    verification.json    the result of the last verification (side file: may be absent, is replaced as a whole)
    sources.json         the source locations of the entry and the nodes (side file with absolute paths)
    failing_input.npz    a small input on which a verification failed, if one was searched for (side file)
    report.html          a readable report made from the files above (side file)

A bundle is written atomically, by renaming a temporary folder next to it. This module imports neither torch nor an
engine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from opbridge.atomic import (
    delete_stale,
    is_temporary,
    replace_file,
    replace_folder,
    reported,
    sync_tree,
    temporary_sibling,
)
from opbridge.engines.base import TensorSpec
from opbridge.errors import InputError
from opbridge.records import to_json as finite
from opbridge.version import __version__

__all__ = [
    "FORMAT",
    "MANIFEST",
    "REPORT",
    "SOURCES",
    "VERIFICATION",
    "Bundle",
    "check_destination",
    "read_bundle",
    "to_json",
    "write_bundle",
    "write_side_file",
]

FORMAT = 1
"""The version of the bundle format that this version writes, and the only one that it reads."""

MANIFEST = "bundle.json"
VERIFICATION = "verification.json"
SOURCES = "sources.json"
REPORT = "report.html"
SIDE_FILES = (VERIFICATION, SOURCES, REPORT, "failing_input.npz")

_CHUNK = 4 << 20
_REQUIRED = {"format": int, "opbridge": str, "models": list, "inputs": list, "outputs": list, "files": dict}


@dataclasses.dataclass(frozen=True)
class Bundle:
    """A bundle on disk.

    Attributes:
        path: The folder of the bundle.
        manifest: The content of ``bundle.json``.
    """

    path: Path
    manifest: Mapping[str, Any]

    @property
    def entry(self) -> str | None:
        """The entry that the bundle was exported from, as recorded in the manifest."""
        return self.manifest.get("entry")

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The model's inputs, in order."""
        return _specs(self.manifest["inputs"])

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The model's outputs, in order."""
        return _specs(self.manifest["outputs"])

    @property
    def verification(self) -> dict[str, Any] | None:
        """The content of ``verification.json``; None if the bundle was never verified."""
        return _read_side_file(self.path / VERIFICATION)

    @property
    def verified(self) -> bool | None:
        """Whether the last verification passed without assumptions; None if there was none."""
        verdict = (self.verification or {}).get("verdict")
        return None if verdict is None else verdict == "passed" and not self.manifest.get("assumptions")

    @property
    def sources(self) -> dict[str, Any]:
        """The content of ``sources.json``; empty if the file is absent."""
        return _read_side_file(self.path / SOURCES) or {}

    def model_file(self, engine: str) -> Path:
        """The model file for ``engine`` or for another version of it. Raises InputError if there is none."""
        own = self._own_name(engine)
        for model in self.manifest["models"]:
            if own in model["engines"]:
                return self.path / str(model["file"])
        known = sorted({name for model in self.manifest["models"] for name in model["engines"]})
        raise InputError(
            f"The bundle {self.path} holds no model for the engine {engine!r}, only for {', '.join(known)}.",
            fix=f"export it again with --engine {','.join([*known, engine])}, or use {known[0]}.",
        )

    def kernels(self, engine: str) -> Mapping[str, Any] | None:
        """The manifest's entry about the engine's library of kernels; None if there is no library."""
        own = self._own_name(engine)
        return next((library for library in self.manifest.get("kernels", ()) if library["engine"] == own), None)

    def runs(self, engine: str) -> list[tuple[str, tuple[Path, ...]]]:
        """The labels and libraries of the runs on ``engine``: with kernels, and without if all nodes have bodies."""
        kernels = self.kernels(engine)
        if kernels is None:
            return [(engine, ())]
        found: list[tuple[str, tuple[Path, ...]]] = [(f"{engine} with kernels", (self.path / kernels["file"],))]
        return [*found, (f"{engine} with function bodies", ())] if kernels["optional"] else found

    def _own_name(self, engine: str) -> str:
        """The name of ``engine`` among the bundle's engines, perhaps in another version."""
        names = [name for model in self.manifest["models"] for name in model["engines"]]
        family = engine.partition("==")[0]
        return next((name for name in names if name == engine), "") or next(
            (name for name in names if name.partition("==")[0] == family), engine
        )

    def to_dict(self) -> dict[str, Any]:
        """The bundle as JSON data: ``path``, ``verified``, the manifest, and the two side files."""
        return {
            "path": str(self.path),
            "verified": self.verified,
            "manifest": dict(self.manifest),
            "verification": self.verification,
            "sources": self.sources,
        }


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle and check every file against its sha256.

    Raises:
        InputError: There is no bundle at ``path``, or one of its files, which the message names, is missing, truncated
            or changed.
    """
    folder = Path(path)
    if not folder.exists():
        delete_stale(folder)  # This also restores a bundle whose replacement was interrupted.
    manifest = _read_manifest(folder)
    for name, recorded in manifest["files"].items():
        _check_file(folder, name, recorded)
    return Bundle(folder, manifest)


def check_destination(path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Check, before any work is done, that a bundle can be written to ``path``.

    Raises:
        InputError: ``path`` exists and must not be replaced, or the parent folder is not writable.
    """
    target = Path(os.path.realpath(path))
    delete_stale(target)
    if target.exists():
        _check_replaceable(Path(path), target, overwrite)
    parent = next(folder for folder in target.parents if folder.exists())
    if not parent.is_dir():
        raise InputError(f"Can't write {path}: {parent} is a file.", fix="choose an output path below a folder.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(
            f"Can't write {path}: no permission to create files in {parent}.",
            fix="choose another output folder, or give yourself write permission there.",
        )


def write_bundle(
    path: str | os.PathLike[str],
    manifest: Mapping[str, Any],
    write: Callable[[Path], None],
    *,
    sources: Mapping[str, Any] | None = None,
    verification: Callable[[Path], Mapping[str, Any] | None] | None = None,
    page: Callable[[Mapping[str, Any]], str] | None = None,
    overwrite: bool = False,
) -> Bundle:
    """Write a bundle atomically.

    Args:
        path: The folder to create, including its parents.
        manifest: The manifest without ``format``, ``opbridge``, ``files`` and ``sha256``, which are added here.
        write: A function that writes the model's files into a folder.
        sources: The content of ``sources.json``: ``entry_path``, ``nodes`` and ``operators``.
        verification: A function of the temporary folder with the model's files that returns the content of
            ``verification.json``, or None for no such file.
        page: A function of the future ``Bundle.to_dict()`` that returns the content of ``report.html``; None for no
            such file.
        overwrite: Whether to replace an existing bundle. Other files and folders are never replaced.

    Raises:
        InputError: ``path`` can't be used (:func:`check_destination`), the disk is full, or a file can't be written.
    """
    check_destination(path, overwrite=overwrite)
    target = Path(os.path.realpath(path))
    with temporary_sibling(path, target) as folder:
        with reported(path):
            write(folder)
            complete = _complete(manifest, folder)
            (folder / MANIFEST).write_bytes(_json(complete))
        proof = verification(folder) if verification is not None else None
        with reported(path):
            for name, data in ((SOURCES, sources), (VERIFICATION, proof)):
                if data is not None:
                    (folder / name).write_bytes(_json(data))
            if page is not None:
                data = {**Bundle(folder, complete).to_dict(), "path": str(path)}
                (folder / REPORT).write_text(page(data), encoding="utf-8", errors="replace")
            sync_tree(folder)
            replace_folder(folder, target)
    return Bundle(Path(path), complete)


def write_side_file(bundle: Bundle, name: str, data: Mapping[str, Any] | str) -> None:
    """Write or replace a side file of a bundle atomically; ``data`` is JSON data or text."""
    if name not in SIDE_FILES:
        raise ValueError(f"{name!r} is not one of {SIDE_FILES}")
    content = data.encode(errors="replace") if isinstance(data, str) else _json(data)
    with reported(bundle.path / name, is_new=False):
        replace_file(bundle.path / name, content)


def _specs(listed: list[Any]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(data["name"], data["dtype"], tuple(data["shape"])) for data in listed)


def _read_side_file(file: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"Can't read {file}: {error}.", fix=f"delete {file.name}, then verify again.") from error
    if not isinstance(data, dict):
        raise InputError(f"{file} holds no JSON object.", fix=f"delete {file.name}, then verify again.")
    return data


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / MANIFEST
    try:
        content = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _no_bundle(folder) from error
    except OSError as error:
        raise InputError(f"Can't read {file}: {error.strerror}.", fix="check its permissions.") from error
    try:
        manifest = json.loads(content)
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


def _check_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    for key, kind in _REQUIRED.items():
        if not isinstance(manifest.get(key), kind):
            raise _damaged(folder, f"{MANIFEST} has no valid {key!r}")
    if manifest.get("sha256") != _manifest_hash(manifest):
        raise _damaged(folder, f"{MANIFEST} was changed after it was written")
    for model in manifest["models"]:
        if model.get("file") not in manifest["files"]:
            raise _damaged(folder, f"{MANIFEST} lists the model {model.get('file')!r} without its sha256")
    for name in manifest["files"]:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise _damaged(folder, f"{MANIFEST} lists the file {name!r} outside of the bundle")


def _check_file(folder: Path, name: str, recorded: Mapping[str, Any]) -> None:
    file = folder / name
    try:
        size = file.stat().st_size
        if size != recorded["bytes"]:
            raise _damaged(folder, f"{name} has {size} bytes instead of {recorded['bytes']}")
        if _file_hash(file) != recorded["sha256"]:
            raise _damaged(folder, f"the content of {name} does not match its sha256")
    except FileNotFoundError as error:
        raise _damaged(folder, f"{name} is missing") from error
    except OSError as error:
        raise InputError(f"Can't read {file}: {error.strerror}.", fix="check its permissions.") from error


def _file_hash(file: Path) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(_CHUNK, file.stat().st_size + 1)))
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            digest.update(buffer[:count])
    return digest.hexdigest()


def _manifest_hash(manifest: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(_json(rest)).hexdigest()


def to_json(data: Any) -> str:
    """Deterministic, strict JSON. A non-finite float becomes a string that ``float()`` accepts."""
    return json.dumps(finite(data), sort_keys=True, indent=2, allow_nan=False) + "\n"


def _json(data: Mapping[str, Any]) -> bytes:
    return to_json(data).encode()


def _complete(manifest: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    listed = {
        file.relative_to(folder).as_posix(): {"sha256": _file_hash(file), "bytes": file.stat().st_size}
        for file in files
    }
    # Converting to JSON and back makes the caller's data equal to that of a reader of the file.
    complete = json.loads(_json({**manifest, "format": FORMAT, "opbridge": __version__, "files": listed}))
    return {**complete, "sha256": _manifest_hash(complete)}


def _check_replaceable(path: Path, target: Path, overwrite: bool) -> None:
    if not target.is_dir():
        raise InputError(f"{path} exists and is not a folder.", fix="choose another output path with -o.")
    if not any(target.iterdir()):
        return
    if not _is_bundle(target):
        raise InputError(
            f"{path} exists and is not a bundle (it has no {MANIFEST} of opbridge), so it is never replaced.",
            fix="choose a new folder with -o.",
        )
    if not overwrite:
        raise InputError(
            f"There is already a bundle at {path}.",
            fix="choose another folder with -o, or replace it with --overwrite (in Python: overwrite=True).",
        )
    if strangers := _strangers(target):
        raise InputError(
            f"{path} holds files that are not the bundle's, and replacing the bundle would delete them: "
            f"{', '.join(strangers[:5])}{', ...' if len(strangers) > 5 else ''}.",
            fix="move them elsewhere, or choose another folder with -o.",
        )


def _is_bundle(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and "format" in manifest and isinstance(manifest.get("files"), dict)


def _strangers(folder: Path) -> list[str]:
    own = {MANIFEST, *SIDE_FILES, *json.loads((folder / MANIFEST).read_bytes())["files"]}
    files = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if not file.is_dir())
    return sorted(file for file in files if file not in own and not is_temporary(file))
