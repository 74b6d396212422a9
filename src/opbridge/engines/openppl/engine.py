"""OpenPPL on x86-64: models can be exported anywhere, and run if its Python binding is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from opbridge.engines.base import Engine, NotRun, Refusal, Session
from opbridge.engines.openppl import native
from opbridge.engines.openppl.listed import LISTED_VERSION

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["OpenPplEngine"]


class OpenPplEngine(Engine):
    """OpenPPL (ppl.nn) on x86-64.

    The supported operators are a list (``listed.py``), since OpenPPL can't be asked. Custom operators are compiled into
    OpenPPL itself, so it takes no kernels of opbridge.
    """

    name: str = "openppl"
    package: ClassVar[str] = "pyppl"

    @property
    def version(self) -> str:
        """The version of the installed build; without one, the version of the list of operators."""
        return native.binding().version if native.is_built() else LISTED_VERSION

    @property
    def newest_opset(self) -> int:
        """The newest opset of which OpenPPL has nearly all operators."""
        from opbridge.engines.openppl.support import NEWEST_OPSET

        return NEWEST_OPSET

    @property
    def newest_ir_version(self) -> int:
        """The IR version of the newest opset."""
        return 8

    @property
    def takes_functions(self) -> bool:
        """False: OpenPPL has no model-local functions."""
        return False

    @property
    def install(self) -> str:
        """OpenPPL is built from source; this names the instructions."""
        return native.HOW_TO_BUILD

    @property
    def limits(self) -> Mapping[str, str]:  # type: ignore[override]
        """OpenPPL takes no kernels; without a build it runs no models."""
        refused = dict.fromkeys(_KERNELS, "openppl takes no kernels of opbridge")
        refused["node times"] = "does not measure the time of each node"
        if self.not_run is None:
            return refused
        return {**dict.fromkeys(_RUNNING, "pyppl is not installed|exported, not run"), **refused}

    @property
    def not_run(self) -> NotRun | None:
        """Why models can't run here: OpenPPL's Python binding is missing."""
        if native.is_built():
            return None
        return NotRun(
            "exported, not run",
            "The model uses only operators and an opset of OpenPPL's list, but its Python binding pyppl is not "
            "installed, so it was not run.",
            native.HOW_TO_BUILD,
        )

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Look the operator up in the list, for models of this opset."""
        from opbridge.engines.openppl.support import refusal_of

        return refusal_of(node, opset_imports)

    def load(
        self,
        path: Path,
        *,
        threads: int | None = None,
        providers: Sequence[str] | None = None,
        libraries: Sequence[Path] = (),
    ) -> Session:
        """Load a model file.

        Args:
            path: An ONNX model of opset 11 to 16.
            threads: Must be the number of OpenPPL's build, which is 1 without OpenMP, or None.
            providers: Not supported; must be None.
            libraries: Not supported; must be empty.

        Raises:
            InputError: The file is missing or not ONNX, or an option is not supported.
            EngineNotInstalledError: OpenPPL's Python binding is not installed.
            EngineError: OpenPPL refuses the model; the message has its return code, and OpenPPL's log the operator.
        """
        from opbridge.engines.openppl.session import load_session

        return load_session(Path(path), threads=threads, providers=providers, libraries=libraries)


_KERNELS = ("kernels", "without Python", "kernel attributes", "several outputs", "optional inputs", "float64", "int64")
_RUNNING = ("runs", "function bodies", "dynamic shapes", "threads", "two sessions")
