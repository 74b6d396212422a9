"""OpenPPL on x86-64: models are made for it everywhere, and run where its Python binding was built."""

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

    What it takes is a list (``listed.py``), since it can't be asked. Operators of one's own are compiled into OpenPPL
    itself, so it takes no kernels of opbridge's.
    """

    name: str = "openppl"
    package: ClassVar[str] = "pyppl"

    @property
    def version(self) -> str:
        """The version of the build here; without one, that of the list of operators, which needs none."""
        return native.binding().version if native.is_built() else LISTED_VERSION

    @property
    def newest_opset(self) -> int:
        """The newest opset of which it has all but a few operators."""
        from opbridge.engines.openppl.support import NEWEST_OPSET

        return NEWEST_OPSET

    @property
    def newest_ir_version(self) -> int:
        """That of the newest opset."""
        return 8

    @property
    def takes_functions(self) -> bool:
        """It knows none."""
        return False

    @property
    def install(self) -> str:
        """It is built from source."""
        return native.HOW_TO_BUILD

    @property
    def limits(self) -> Mapping[str, str]:  # type: ignore[override]
        """No kernels; without a build, no runs."""
        refused = dict.fromkeys(_KERNELS, "openppl takes no kernels of opbridge's")
        refused["node times"] = "does not tell what each of its nodes costs"
        if self.not_run is None:
            return refused
        return {**dict.fromkeys(_RUNNING, "pyppl is not installed|exported, not run"), **refused}

    @property
    def not_run(self) -> NotRun | None:
        """Why nothing runs here: OpenPPL was not built with its Python binding."""
        if native.is_built():
            return None
        return NotRun(
            "exported, not run",
            "Models are made of operators that OpenPPL's list has, in an opset that it takes; its Python binding "
            "pyppl is not installed, so they are not run.",
            native.HOW_TO_BUILD,
        )

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Whether its list has the operator, for models of this opset."""
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
            threads: OpenPPL's own number is that of its build, one without OpenMP; another can't be asked for.
            providers: There are none.
            libraries: It takes none.

        Raises:
            InputError: The file is missing or no ONNX, or an option is given that there is none of.
            EngineNotInstalledError: OpenPPL was not built here.
            EngineError: OpenPPL refuses the model; the message has its return code, and its log the operator.
        """
        from opbridge.engines.openppl.session import load_session

        return load_session(Path(path), threads=threads, providers=providers, libraries=libraries)


_KERNELS = ("kernels", "without Python", "kernel attributes", "several outputs", "optional inputs", "float64", "int64")
_RUNNING = ("runs", "function bodies", "dynamic shapes", "threads", "two sessions")
