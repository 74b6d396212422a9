"""One model of a comparison that PyTorch runs: the user's module, or its captured program."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from opbridge.capture.capture import Captured, capture
from opbridge.capture.entry import Entry
from opbridge.catalog.declare.catalog import Catalog
from opbridge.engines.base import Session, TensorSpec
from opbridge.errors import EngineError, InputError, OpbridgeError, described_error
from opbridge.proof.verify.captured_graph import CapturedGraph
from opbridge.proof.verify.eager import Eager
from opbridge.proof.verify.inputs import InputSpecs, to_numpy
from opbridge.proof.verify.reference_captured import output_positions
from opbridge.proof.verify.verification import DEFAULT_SEED

__all__ = ["EAGER", "PROGRAM", "TorchSession", "TorchSide", "captured_entry", "torch_side"]

EAGER, PROGRAM = "eager", "program"
"""How PyTorch runs an entry: as the user's module, or as the program that torch.export captures."""


@dataclasses.dataclass(frozen=True)
class TorchSide:
    """A PyTorch model.

    Attributes:
        text: The entry as the user wrote it.
        captured: The captured graph, and the user's module unless only the program is compared.
    """

    text: str
    captured: Captured

    @property
    def label(self) -> str:
        """A description for messages."""
        how = "the captured program" if self.captured.module is None else "eager"
        return f"{self.text} in PyTorch {torch.__version__}, {how}"

    def load(self) -> TorchSession:
        """Prepare the model to run in this process."""
        return TorchSession(self.captured)


def captured_entry(entry: Entry, catalog: Catalog) -> Captured:
    """Capture an entry. Raises CaptureError if torch.export can't capture it."""
    return capture(
        entry.model,
        entry.args,
        entry.kwargs,
        dynamic_shapes=entry.dynamic_shapes,
        input_names=entry.input_names,
        output_names=entry.output_names,
        rewrites=catalog.rewrites(),
    )


def torch_side(text: str, captured: Captured, where: str) -> TorchSide:
    """The side for an entry that PyTorch runs.

    Args:
        text: The entry as the user wrote it.
        captured: The captured program.
        where: :data:`EAGER` or :data:`PROGRAM`.

    Raises:
        InputError: ``where`` is :data:`EAGER` but the entry is a saved program, which has no module.
    """
    if where == EAGER and captured.module is None:
        raise InputError(
            f"{text} is a captured program, and can't run as a module.", fix=f"write --engine {PROGRAM} for it."
        )
    return TorchSide(text, captured if where == EAGER else dataclasses.replace(captured, module=None))


class TorchSession(Session):
    """A PyTorch model with the interface of an engine's session."""

    def __init__(self, captured: Captured) -> None:
        self._names = list(captured.output_names)
        self._specs = InputSpecs(captured)
        self._reference = CapturedGraph(captured.program, output_positions(captured.program, len(self._names)))
        self._eager = None if captured.module is None else Eager(captured.module, self._reference.positions)
        self.inputs = tuple(
            TensorSpec(item.name, to_numpy(item.example).dtype.name, _shape(item)) for item in self._specs.inputs
        )
        self.outputs = tuple(
            TensorSpec(name, _dtype(node), ())
            for name, node in zip(self._names, self._reference.output_nodes, strict=True)
        )

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once; see :meth:`opbridge.engines.base.Session.run`."""
        flat, _ = self._specs.given(feeds)
        try:
            if self._eager is not None:
                results = self._eager.run(*self._specs.arguments(flat), seed=DEFAULT_SEED)
            else:
                results = self._reference.run(flat, seed=DEFAULT_SEED, float64=False).own
        except OpbridgeError:
            raise
        except Exception as error:
            raise EngineError(
                f"PyTorch failed: {described_error(error)}",
                fix="pass inputs that the model takes.",
                details=str(error),
            ) from error
        return {name: to_numpy(value) for name, value in zip(self._names, results, strict=True)}

    def close(self) -> None:
        """Do nothing: there is no process to end."""


def _shape(item: Any) -> tuple[int | str, ...]:
    sizes: list[int | str] = [int(size) if size.is_Integer else str(size) for size in item.shape]
    return (*sizes, *([2] if isinstance(item.example, torch.Tensor) and item.example.is_complex() else []))


def _dtype(node: Any) -> str:
    """The dtype of an output, with ONNX's name."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else node
    if not isinstance(value, torch.Tensor):
        return "int64"
    return str(torch.empty(0, dtype=value.dtype).abs().dtype if value.is_complex() else value.dtype).removeprefix(
        "torch."
    )
