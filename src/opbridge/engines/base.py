"""The contract of an engine: what it is asked, and what it answers.

An engine is a folder of this package whose ``__init__`` defines ``ENGINE``, a subclass of :class:`Engine`.
Importing that folder must not import the engine's own package: that happens on first use, so that a missing engine is
an :class:`~opbridge.errors.EngineNotInstalledError` with the line that installs it.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.engines.environments import EngineEnvironment

__all__ = ["IR_VERSION", "Engine", "Refusal", "Session", "TensorSpec"]


IR_VERSION = 10
"""The version of the ONNX IR that models are written in unless something asks for another: the first with function
overloads."""


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """An input or output of a model.

    Attributes:
        name: Its name in the model.
        dtype: NumPy's name of its element type ("float32", "int64", "bool"; "bfloat16" is ml_dtypes').
        shape: One int or dimension name (dynamic) per axis; ``()`` is a scalar.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The specification as JSON data."""
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why an engine does not take a node: data, so that the plan can climb to the next rung.

    Attributes:
        node: The node's name in the model.
        operator: ``"domain::Op"``; the standard domain is written ``"ai.onnx"``.
        reason: The engine's own words, or the type and version it lacks a kernel for, in one line.
        missing_dtypes: Where the element type alone is missing: the dtypes the engine has no kernel for.
        opset: Where no engine was asked, because the model's opset can't express the node: that opset.
    """

    node: str
    operator: str
    reason: str
    missing_dtypes: tuple[str, ...] = ()
    opset: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The refusal as JSON data."""
        return dataclasses.asdict(self)


class Session(abc.ABC):
    """A model loaded by an engine, ready to run. Safe to call from several threads if the engine is."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @abc.abstractmethod
    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once.

        Args:
            feeds: One array per input, by name, with the input's exact dtype and a shape that fits.

        Returns:
            One array per output, by name, in the model's order.

        Raises:
            InputError: A name, dtype or shape does not fit.
            EngineError: The engine failed; the message is the engine's.
        """

    def __call__(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """Run the model on arrays in the order of ``inputs``; the outputs come in the order of ``outputs``."""
        from opbridge.errors import InputError

        if len(arrays) != len(self.inputs):
            names = ", ".join(spec.name for spec in self.inputs)
            raise InputError(
                f"The model has {len(self.inputs)} inputs ({names}), but {len(arrays)} arrays were passed.",
                fix="pass one array per input, in this order, or use session.run({name: array}).",
            )
        results = self.run({spec.name: array for spec, array in zip(self.inputs, arrays, strict=True)})
        return tuple(results[spec.name] for spec in self.outputs)


class Engine(abc.ABC):
    """An inference engine, as the installed package answers for it.

    Attributes:
        name: The name users write (``--engine NAME``). With a version in it, the engine is in an environment of its
            own.
        package: The distribution that ``pip install`` takes.
        accepts: What the engine loads: ``"onnx"``, ``"exported_program"`` or ``"module"``.
        in_environment: Makes the engine of another version from the environment that has it; None where only the
            installed one can be asked. What it is asked then goes to :meth:`answer` in a child process there.
        python: The interpreter of that environment; None for this process's own.
    """

    name: str
    package: ClassVar[str]
    accepts: ClassVar[str] = "onnx"
    in_environment: ClassVar[Callable[[EngineEnvironment], Engine] | None] = None
    python: Path | None = None

    @property
    @abc.abstractmethod
    def version(self) -> str:
        """The installed version. Raises EngineNotInstalledError when there is none."""

    @property
    @abc.abstractmethod
    def newest_opset(self) -> int:
        """The newest version of the standard ONNX domain that the engine knows."""

    @property
    def newest_ir_version(self) -> int:
        """The newest version of the ONNX IR that the engine reads."""
        return IR_VERSION

    @property
    def takes_functions(self) -> bool:
        """Whether the engine runs models with model-local functions (else they are inlined)."""
        return True

    @property
    def kernel_adapter(self) -> Path | None:
        """The C++ file that makes a library of opbridge's kernels one of the engine's own; None if it takes none."""
        return None

    def is_installed(self) -> bool:
        """Whether the engine's package can be imported here."""
        from opbridge.errors import EngineNotInstalledError

        try:
            return bool(self.version)
        except EngineNotInstalledError:
            return False

    @abc.abstractmethod
    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Ask the installed engine whether it has a kernel for this node at this opset, element type and rank.

        Args:
            node: A node whose inputs carry dtype and, where known, shape. A node with subgraphs is judged by itself;
                the nodes inside are asked for one by one.
            opset_imports: The model's domain versions.

        Returns:
            None when the engine takes it, otherwise the reason.
        """

    def answer(self, question: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Answer this engine's own question, asked by the process that set it (see ``in_environment``).

        It runs where only NumPy, ml_dtypes and the engine are installed.

        Args:
            question: JSON data.
            arrays: What is better sent as bytes.

        Returns:
            JSON data.
        """
        from opbridge.errors import EngineError

        raise EngineError(
            f"{self.name} is asked nothing from other processes, and got a question.",
            fix="this is a bug in opbridge: please report it together with the log.",
        )

    @abc.abstractmethod
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
            path: The model.
            threads: Threads per operator; the engine's default is one per core.
            providers: The engine's execution providers in order of preference.
            libraries: Libraries of kernels, built with the engine's adapter.

        Raises:
            InputError: A library is missing, no library, or for another platform.
            EngineError: The engine refuses the model; the message is the engine's.
        """
