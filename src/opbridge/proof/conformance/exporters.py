"""The two exporters that are compared: opbridge's own stages, and the plain torch.onnx.export."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from opbridge.capture.capture import Captured
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.fakes import check_fakes
from opbridge.catalog.declare.operator import without_kernels
from opbridge.engines.base import Engine
from opbridge.engines.probe import probe
from opbridge.errors import UnsupportedOperatorError
from opbridge.ladder.climb import climb
from opbridge.onnx_model.write import save_model
from opbridge.torch_graph.silence import silenced

__all__ = ["EXPORTERS", "Exported", "Failure", "export_with_torch"]

_FILE = "model.onnx"
_PLAIN = frozenset({"native", "opset"})


class Failure(Exception):
    """A stage that failed for a sample.

    Args:
        stage: The name of the stage, as in :data:`opbridge.proof.conformance.results.STATUSES`.
        message: The reason.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


@dataclasses.dataclass(frozen=True)
class Exported:
    """A model file for an engine.

    Attributes:
        path: The model.
        libraries: The ways to load the model: each item is a list of kernel libraries, which may be empty.
        rungs: The rung of each operator that torch's own mapping does not handle.
    """

    path: Path
    libraries: tuple[tuple[Path, ...], ...] = ((),)
    rungs: Mapping[str, str] = dataclasses.field(default_factory=dict)


def by_opbridge(
    captured: Captured, engine: Engine, folder: Path, catalog: Catalog, dynamic_shapes: Any = None
) -> Exported:
    """Export in the same way as :func:`opbridge.export`, from the captured graph to the model file.

    Raises:
        Failure: The stage "translate" failed, or "load" if every operator has a mapping but the engine accepts none.
    """
    try:
        with without_kernels():
            check_fakes(captured.program)
        climbed = climb(captured, catalog, [engine])
    except UnsupportedOperatorError as error:
        raise Failure("load" if f"[{engine.name}]" in error.message else "translate", error.message) from error
    except Exception as error:
        raise Failure("translate", str(error)) from error
    rungs = {step.target: step.rung for step in climbed.steps if step.rung not in _PLAIN}
    model = climbed.models[engine.name]
    save_model(model, folder, name=_FILE)
    built = climbed.built.get(engine.name)
    if built is None:
        return Exported(folder / _FILE, rungs=rungs)
    built.write(folder)
    runs_without = not probe(model, engine)
    return Exported(folder / _FILE, ((folder / built.file,), *([()] if runs_without else [])), rungs)


def by_torch(
    captured: Captured, engine: Engine, folder: Path, catalog: Catalog, dynamic_shapes: Any = None
) -> Exported:
    """Export the same module and inputs with the plain ``torch.onnx.export``.

    Raises:
        Failure: The stage "capture" or "translate", as reported by torch.onnx, failed.
    """
    assert captured.module is not None
    export_with_torch(captured.module, captured.args, captured.kwargs, dynamic_shapes, folder / _FILE)
    return Exported(folder / _FILE)


def export_with_torch(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any, file: Path
) -> torch.onnx.ONNXProgram:
    """Export with the plain ``torch.onnx.export`` in its default settings, and write the model to ``file``.

    Raises:
        Failure: The stage "capture" or "translate", as reported by torch.onnx, failed.
    """
    try:
        with silenced():
            program = torch.onnx.export(
                module, tuple(args), kwargs=dict(kwargs), dynamo=True, dynamic_shapes=dynamic_shapes, verbose=False
            )
            assert program is not None
            program.save(file)
    except Exception as error:
        stage = "capture" if "TorchExportError" in type(error).__name__ else "translate"
        raise Failure(stage, _reason(error)) from error
    return program


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"


EXPORTERS: Mapping[str, Callable[[Captured, Engine, Path, Catalog, Any], Exported]] = {
    "opbridge": by_opbridge,
    "torch": by_torch,
}
