"""The bundle: a folder with a model, its manifest, and the result of its verification.

::

    model.onnx  ...      the model's files, each listed with its sha256
    bundle.json          the manifest: byte-identical for identical input, without absolute paths
    verification.json    the result of the last verification, and the digest of the manifest it is about (side file)
    sources.json         the source locations of the entry and the nodes (side file with absolute paths)
    failing_input.npz    a small input on which a verification failed, if one was searched for (side file)
    benchmark.json       the times of the last benchmark, if there was one (side file)
    report.html          a readable report made from the files above (side file)
    marks.json           the marks of the user who wrote these files (side file; see trust.py)

A bundle without this user's mark is a stranger's: its code does not run unless the user trusts it. A bundle is written
atomically (write.py). This module imports neither torch nor an engine.
"""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opbridge.atomic import delete_stale
from opbridge.bundle.checks import (
    BENCHMARK,
    MANIFEST,
    MODEL_SIGNATURE,
    REPORT,
    SIDE_FILES,
    SOURCES,
    VERIFICATION,
    VERIFICATION_SIGNATURE,
    check_files,
    check_nothing_else,
    checked_sources,
    outcome,
    read_manifest,
    read_side_file,
)
from opbridge.bundle.signing import check_signature
from opbridge.bundle.trust import Consent, Trust, has_mark
from opbridge.engines.base import NOT_RUN, Engine, TensorSpec
from opbridge.errors import InputError

__all__ = ["Bundle", "read_bundle"]


@dataclasses.dataclass(frozen=True)
class Bundle:
    """A bundle on disk.

    Attributes:
        path: The folder of the bundle.
        manifest: The content of ``bundle.json``.
        trust: Why code of the bundle may run, if it may.
        is_vouched: Whether ``verification.json`` is signed with a key that the user named.
    """

    path: Path
    manifest: Mapping[str, Any]
    trust: Trust = Trust.NONE
    is_vouched: bool = False

    def __repr__(self) -> str:
        """``"Bundle('build/head': passed, for onnxruntime)"``; with the failing outputs, if there are any."""
        names = dict.fromkeys(name for model in self.manifest["models"] for name in model["engines"])
        claimed = "claimed " if self.claim else ""
        found = f"{claimed}{outcome(self.verification or {}, self.manifest.get('assumptions', ()))}"
        return f"{type(self).__name__}({str(self.path)!r}: {found}, for {', '.join(names)})"

    def _repr_html_(self) -> str:
        """The report, for a notebook, if this user wrote it."""
        if not (self.path / REPORT).is_file() or self.trust is Trust.NONE:
            return html.escape(repr(self))
        page = html.escape((self.path / REPORT).read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" width="100%" height="600"></iframe>'

    @property
    def entry(self) -> str | None:
        """The entry that the bundle was exported from, as recorded in the manifest."""
        return self.manifest.get("entry")

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The model's inputs, in order."""
        return tuple(map(TensorSpec.from_dict, self.manifest["inputs"]))

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The model's outputs, in order."""
        return tuple(map(TensorSpec.from_dict, self.manifest["outputs"]))

    @property
    def verification(self) -> dict[str, Any] | None:
        """The content of ``verification.json``; None if there is none about this bundle."""
        return self._about_it(VERIFICATION)

    @property
    def verified(self) -> bool | None:
        """Whether the last verification passed without assumptions.

        None if there was none, if no engine ran, or if it is a stranger's :attr:`claim`.
        """
        verdict = (self.verification or {}).get("verdict")
        if verdict is None or verdict in NOT_RUN or self.claim:
            return None
        return verdict == "passed" and not self.manifest.get("assumptions")

    @property
    def claim(self) -> bool:
        """Whether ``verification.json`` has a result, but neither this user wrote it nor did he name who signed it."""
        return self.verification is not None and not self.is_vouched and not self._is_own(VERIFICATION)

    @property
    def sources(self) -> dict[str, Any]:
        """The content of ``sources.json``; empty if the file is absent."""
        return checked_sources(self.path, read_side_file(self.path / SOURCES) or {})

    def model_file(self, engine: str) -> Path:
        """The model file for ``engine`` or for another version of it. Raises InputError if there is none."""
        own = self._own_name(engine)
        for model in self.manifest["models"]:
            if own in model["engines"]:
                return self.path / str(model["file"])
        known = sorted({name for model in self.manifest["models"] for name in model["engines"]} - {"none"})
        raise InputError(
            f"The bundle {self.path} holds no model for the engine {engine!r}, only for {', '.join(known) or 'none'}.",
            fix=f"export it again with --engine {','.join([*known, engine])}"
            + (f", or use {known[0]}." if known else "."),
        )

    def engines(self) -> list[str]:
        """The engines that the bundle was made for.

        Raises:
            InputError: A stranger's bundle names a version of an engine, which would have to be installed.
        """
        names = list(dict.fromkeys(name for model in self.manifest["models"] for name in model["engines"]))
        versions = [name for name in names if "==" in name]
        if versions and self.trust is Trust.NONE:
            raise self.refusal(
                f"{self.path} is for {versions[0]}, which opbridge would install",
                f"name an engine, for example --engine {versions[0].partition('==')[0]}",
            )
        return names

    def loadable(self, engine: Engine) -> Path:
        """The model file for an engine that is about to load it.

        Raises:
            InputError: There is no model for the engine, or the engine would load machine code of a stranger.
        """
        file = self.model_file(engine.name)
        self.check_machine_code(engine, file)
        return file

    def check_machine_code(self, engine: Engine, file: Path) -> None:
        """Raise InputError if loading ``file`` runs machine code of a stranger, or code added to the bundle later."""
        for native in engine.machine_code(file):
            if self.trust is Trust.NONE:
                raise self.refusal(f"{native.name} is machine code for {engine.name}", "export the model here")
            if native.relative_to(self.path).as_posix() not in self.manifest["files"]:
                raise InputError(
                    f"{native} is machine code for {engine.name} that {MANIFEST} does not list.",
                    fix="delete it, or export the bundle again.",
                )

    def refusal(self, what: str, instead: str) -> InputError:
        """The error for something that is done only for a trusted bundle.

        Args:
            what: What would run.
            instead: What the user can do without trusting the bundle, as an instruction.
        """
        return InputError(
            f"{what}, and {self.path} was not made by you on this machine: nothing in it that can run code is used.",
            fix=f"{instead}; or, if you trust whoever made the bundle, pass --trust (in Python: trust=True).",
        )

    @property
    def recorded_path(self) -> str | None:
        """The path of the entry's file when the bundle was made; None if it is unknown, or may be a stranger's."""
        if self.trust is not Trust.GIVEN and not (self.trust is Trust.OWN and self._is_own(SOURCES)):
            return None
        path = self.sources.get("entry_path")
        return path if isinstance(path, str) else None

    def _about_it(self, name: str) -> dict[str, Any] | None:
        """The content of a side file, unless it is about another bundle."""
        found = read_side_file(self.path / name)
        return found if found is not None and found.get("bundle", self._digest) == self._digest else None

    def _is_own(self, name: str) -> bool:
        return has_mark(self.path, self._digest, name)

    @property
    def _digest(self) -> str:
        return str(self.manifest.get("sha256", ""))

    def kernels(self, engine: str) -> Mapping[str, Any] | None:
        """The manifest's entry about the engine's library of kernels; None if there is no library."""
        own = self._own_name(engine)
        return next((library for library in self.manifest.get("kernels", ()) if library["engine"] == own), None)

    def runs(self, engine: str) -> list[tuple[str, tuple[Path, ...]]]:
        """The labels and libraries of the runs on ``engine``: with kernels, and without if all nodes have bodies.

        The kernels of a stranger's bundle do not run. Raises InputError if it has no bodies either.
        """
        kernels = self.kernels(engine)
        if kernels is None:
            return [(engine, ())]
        if self.trust is Trust.NONE:
            if not kernels["optional"]:
                raise self.refusal(
                    f"The model for {engine} needs the bundle's kernels, {kernels['file']}, which are machine code",
                    "export the model here",
                )
            return [(f"{engine} with function bodies", ())]
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
        """The bundle as JSON data: ``path``, ``verified``, ``claim``, the manifest, and the side files with data."""
        return {
            "path": str(self.path),
            "verified": self.verified,
            "claim": self.claim,
            "manifest": dict(self.manifest),
            "verification": self.verification,
            "sources": self.sources,
            "benchmark": self._about_it(BENCHMARK),
        }


def read_bundle(path: str | os.PathLike[str], *, trust: Consent = False) -> Bundle:
    """Read a bundle and check every file against its sha256.

    Args:
        path: The folder of the bundle.
        trust: Whether the user trusts whoever made the bundle, or the public key that it must be signed with. Without
            it, code of a stranger's bundle does not run.

    Raises:
        InputError: There is no bundle at ``path``, or one of its files, which the message names, is missing, truncated
            or changed; or a stranger's bundle holds anything but regular files that its manifest lists; or it is not
            signed with the key.
    """
    folder = Path(path)
    if not folder.exists():
        delete_stale(folder)  # This also restores a bundle whose replacement was interrupted.
    manifest = read_manifest(folder)
    if isinstance(trust, bool):
        why = Trust.OWN if _is_own(folder, manifest) else Trust.GIVEN if trust else Trust.NONE
    else:
        why = Trust.SIGNED
    if why in (Trust.NONE, Trust.SIGNED):
        check_nothing_else(folder, {MANIFEST, *SIDE_FILES, *manifest["files"]})
    check_files(folder, manifest["files"])
    if isinstance(trust, bool):
        return Bundle(folder, manifest, why)
    check_signature(folder, MODEL_SIGNATURE, trust)
    return Bundle(folder, manifest, why, _is_vouched(folder, trust))


def _is_own(folder: Path, manifest: Mapping[str, Any]) -> bool:
    digest = manifest["sha256"]
    return has_mark(folder, digest, MANIFEST, digest.encode())


def _is_vouched(folder: Path, key: str | os.PathLike[str]) -> bool:
    """Whether the verification is signed; it is not if the bundle was verified again since then."""
    try:
        check_signature(folder, VERIFICATION_SIGNATURE, key)
    except InputError:
        return False
    return True
