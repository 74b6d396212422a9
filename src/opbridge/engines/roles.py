"""What only some engines do. An engine that does it derives from the class; callers check with ``isinstance``."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from opbridge.engines.base import Engine, Refusal
from opbridge.errors import EngineError

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

    from opbridge.engines.environments import EngineEnvironment
    from opbridge.engines.profiling import NodeTime
    from opbridge.engines.torch_program import TorchProgram

__all__ = ["AnswersQuestions", "CompilesAhead", "InEnvironments", "Profiles", "TakesTorchPrograms"]


class TakesTorchPrograms(Engine):
    """An engine that converts a torch program instead of loading ONNX. It leaves the flow after capture."""

    accepts: ClassVar[str] = "exported_program"

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Not available: this engine takes no ONNX nodes."""
        raise EngineError(
            f"{self.name} takes torch programs and can't be asked about an ONNX node.",
            fix="ask it about a call of a torch operator, with supports_call.",
        )

    def supports_call(self, node: torch.fx.Node) -> Refusal | None:
        """Ask the engine whether it has the kernels of a call. An engine that can't be asked takes every call.

        Args:
            node: A call of an ``OpOverload``; ``node.meta["val"]`` and those of its arguments are fake tensors.

        Returns:
            None if the engine takes the call, otherwise the reason.
        """
        return None

    @abc.abstractmethod
    def convert(self, program: TorchProgram, folder: Path) -> str:
        """Write the model files of a torch program.

        Args:
            program: A program whose calls are those that the engine takes and those that have kernels.
            folder: The folder to write to. The names of the files begin with ``model.`` and the engine's name.

        Returns:
            The name of the file that :meth:`load` takes.

        Raises:
            EngineError: The engine refuses the program; the message is the engine's.
        """


class CompilesAhead(Engine):
    """An engine that converts or compiles an ONNX model while a bundle is written."""

    @abc.abstractmethod
    def compile_model(self, model: Path, libraries: Sequence[Path]) -> tuple[Path, ...]:
        """Write the engine's own files of an ONNX model. This runs in a child process.

        Args:
            model: The model, in the folder of the bundle.
            libraries: The engine's library of kernels, if the model has kernels.

        Returns:
            The files written next to the model; their names begin with the model's stem and the engine's name.

        Raises:
            EngineError: The engine can't convert or compile the model.
        """

    def write_sources(self, model: Path) -> tuple[Path, ...]:
        """Write sources of the declared kernels that a user compiles for the engine on another machine.

        This runs in the process that declared the kernels.

        Args:
            model: The model, in the folder of the bundle.

        Returns:
            The files written next to the model; their names begin with the model's stem and the engine's name.
        """
        return ()


class Profiles(Engine):
    """An engine that measures the time of each node."""

    @abc.abstractmethod
    def profile(
        self, path: Path, feeds: Mapping[str, np.ndarray], *, libraries: Sequence[Path] = (), runs: int = 7
    ) -> tuple[NodeTime, ...]:
        """Run a model file several times, and return the time of each of its nodes.

        Args:
            path: The model.
            feeds: One array per input, by name.
            libraries: Libraries of kernels.
            runs: The number of runs. The first run is not counted if the engine reports the runs separately.

        Raises:
            EngineError: The engine fails.
        """


class AnswersQuestions(Engine):
    """An engine that is asked in a child process, so that a crash at a question does not end the asking process."""

    @abc.abstractmethod
    def answer(self, question: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Answer a question of this engine's own making. This runs in the child process.

        That process may have no packages other than NumPy, ml_dtypes and the engine.

        Args:
            question: JSON data.
            arrays: Data of the question that is better sent as bytes.

        Returns:
            JSON data.
        """


class InEnvironments(AnswersQuestions):
    """An engine of which other versions can be used, each in a Python environment of its own.

    Attributes:
        python: The interpreter of the environment; None if the engine is the one that this process can import.
    """

    python: Path | None = None

    @classmethod
    @abc.abstractmethod
    def in_environment(cls, environment: EngineEnvironment) -> InEnvironments:
        """The engine of another version; every question and model goes to a child process of its environment."""
