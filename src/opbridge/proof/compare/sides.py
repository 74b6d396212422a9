"""One model of a comparison that an engine runs: an ``.onnx`` file of any exporter, or a bundle."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbridge import engines
from opbridge.bundle.bundle import Bundle, read_bundle
from opbridge.bundle.load import check_model
from opbridge.bundle.trust import Consent
from opbridge.engines.base import Engine
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.errors import EngineError, InputError

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["ModelSide", "model_side"]


@dataclasses.dataclass(frozen=True)
class ModelSide:
    """A model and the engine that runs it.

    Attributes:
        text: The file or bundle as the user wrote it.
        engine: The engine.
        file: The file that the engine loads.
        libraries: The kernel libraries of the model.
        sources: The user's source line by node name, if the bundle records it.
        values: The value of the captured graph by ONNX value name, if the bundle records it.
        bundle: The bundle that contains the model; None for a file outside a bundle.
        run: What runs its custom operators: "kernels" or "function bodies"; empty if there is no choice.
    """

    text: str
    engine: Engine
    file: Path
    libraries: tuple[Path, ...] = ()
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    values: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    bundle: Bundle | None = None
    run: str = ""

    @property
    def label(self) -> str:
        """A description for messages."""
        bodies = f" with {self.run}" if self.run and not self.libraries else ""
        return f"{self.text} on {self.engine.name} {self.engine.version}{bodies}"

    @property
    def has_graph(self) -> bool:
        """Whether the file is an ONNX model."""
        return self.engine.accepts == "onnx"

    @property
    def from_torch(self) -> bool:
        """Whether the model is in a bundle that was exported from a PyTorch model."""
        return self.bundle is not None and "original" not in self.bundle.manifest

    def load(self) -> IsolatedSession:
        """Load the model in its engine, in a child process.

        Raises:
            InputError: The file is not a valid model. It is read first, because functions that call functions can
                expand to a model without end, which an engine would try to inline.
            EngineError: The engine rejects the model.
        """
        if self.has_graph:
            self.graph()
        return IsolatedSession(self.engine.name, self.file, libraries=self.libraries)

    def graph(self) -> ir.Model:
        """The ONNX model."""
        from opbridge.onnx_model.read import read_model

        return read_model(self.file)


def model_side(
    model: str | Path | Bundle, engine_name: str | None, *, text: str | None = None, trust: Consent = False
) -> ModelSide:
    """The side for a file or bundle.

    Args:
        model: The path of a file or bundle, or a bundle.
        engine_name: The engine; None for the bundle's first engine, or ONNX Runtime for a file.
        text: The name to show instead of the path.
        trust: Whether the user trusts whoever made the bundle.

    Raises:
        InputError: The path does not exist, or the bundle has no model for the engine.
        EngineError: The engine is not installed, or can't run models on this machine.
    """
    if isinstance(model, str | Path) and not Path(model).is_dir():
        return _file_side(Path(model), engine_name or "onnxruntime", text, trust)
    if not isinstance(model, Bundle):
        model = read_bundle(model, trust=trust)
    engine = _running(engine_name or model.engines()[0])
    file = model.loadable(engine)
    run, libraries = model.runs(engine.name)[0]
    sources = model.sources
    nodes, values = sources.get("nodes") or {}, sources.get("values") or {}
    shown = text or str(model.path)
    return ModelSide(shown, engine, file, libraries, dict(nodes), dict(values), model, run.partition(" with ")[2])


def _file_side(file: Path, engine_name: str, text: str | None, trust: Consent) -> ModelSide:
    engine = _running(engine_name)
    check_model(engine, file, trust=trust)
    if not file.is_file():
        raise InputError(f"There is no bundle or model at {str(file)!r}.", fix="check the path.")
    return ModelSide(text or str(file), engine, file)


def _running(name: str) -> Engine:
    """The engine. Raises EngineError if it is not installed or can't run models on this machine."""
    engine = engines.get(name)
    engine.version  # noqa: B018 - raises EngineNotInstalledError before any work is done
    if engine.not_run is not None:
        raise EngineError(
            f"{engine.name} runs no model on this machine: {engine.not_run.reason}", fix=engine.not_run.fix
        )
    return engine
