"""The contract of an engine: what every engine answers and does.

An engine is a folder of this package whose ``__init__`` defines ``ENGINE``, a subclass of :class:`Engine`. What only
some engines do is in :mod:`opbridge.engines.roles`; callers check for it with ``isinstance``.
Importing an engine's folder must not import the engine's own package. That happens on first use, so that a missing
package raises :class:`~opbridge.errors.EngineNotInstalledError` with the command that installs it.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from opbridge.errors import EngineNotInstalledError, InputError
from opbridge.kernels.adapter_flags import AdapterFlags
from opbridge.records import Record, StoredRecord

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "IR_VERSION",
    "NOT_RUN",
    "AdapterFlags",
    "Engine",
    "NotRun",
    "Refusal",
    "RefusalKind",
    "Session",
    "TensorSpec",
]


IR_VERSION = 10
"""The ONNX IR version that models are written in by default: the first one with function overloads."""


@dataclasses.dataclass(frozen=True)
class TensorSpec(StoredRecord):
    """An input or output of a model.

    Attributes:
        name: The name of the input or output in the model.
        dtype: NumPy's name of the element type ("float32", "int64", "bool"), or ml_dtypes' name ("bfloat16").
        shape: One int or dimension name (dynamic) per axis; ``()`` is a scalar.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]


class RefusalKind(enum.StrEnum):
    """What an engine objects to."""

    UNKNOWN_OPERATOR = "unknown operator"
    """The engine has no operator of this name, in any version or for any dtype. Only then does it run a model-local
    function of that name: an operator that it knows takes precedence over the function."""

    DTYPE = "dtype"
    """The engine has the operator, but not for these element types."""

    OPSET = "opset"
    """The engine does not take the model's opset, or the operator does not exist in it."""

    RANK = "rank"
    """The engine has the operator, but not for tensors of this rank."""

    OTHER = "other"
    """Anything else; the reason is the engine's own message."""


@dataclasses.dataclass(frozen=True)
class Refusal(Record):
    """Why an engine does not take a node: data, so that the plan can climb to the next rung.

    Attributes:
        node: The node's name in the model.
        operator: ``"domain::Op"``; the standard domain is written ``"ai.onnx"``.
        reason: One line: the engine's own message, or the dtype or version for which it has no kernel.
        missing_dtypes: The dtypes without a kernel, if the element type is the only problem.
        opset: The model's opset, if the opset itself can't express the node; None if the engine refused it.
        kind: What the engine objects to.
    """

    node: str
    operator: str
    reason: str
    missing_dtypes: tuple[str, ...] = ()
    opset: int | None = None
    kind: RefusalKind = RefusalKind.OTHER


NOT_RUN = ("built, not run", "exported, not run")
"""The verdicts of :class:`NotRun`."""


@dataclasses.dataclass(frozen=True)
class NotRun:
    """Why an installed engine can't run models on this machine.

    Attributes:
        verdict: The verdict that a verification reports: "built, not run" or "exported, not run".
        reason: What is missing, in a sentence.
        fix: How to get it.
    """

    verdict: Literal["built, not run", "exported, not run"]
    reason: str
    fix: str


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

    def close(self) -> None:  # noqa: B027 - most sessions have nothing to do
        """Free the session's resources, such as a child process. Closing twice is allowed."""

    def __call__(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """Run the model on arrays in the order of ``inputs``; the outputs come in the order of ``outputs``."""
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
        name: The name users write (``--engine NAME``). A name with a version is an engine in an environment of its own.
        package: The distribution that ``pip install`` takes.
        accepts: What the engine loads: ``"onnx"``, or ``"exported_program"`` for an engine of
            :class:`~opbridge.engines.roles.TakesTorchPrograms`, which leaves the flow after capture.
        is_reference: Whether other engines may be compared with this one's results in a model's own dtypes.
        joins_elementwise: Whether the engine itself computes a chain of elementwise nodes in one loop, or gains nothing
            by it.
        limits: The abilities of :data:`~opbridge.engines.abilities.ABILITIES` that the engine does not have, each with
            a pattern of the error that a user gets. The contract's tests check each ability, or that error.
    """

    name: str
    package: ClassVar[str]
    accepts: ClassVar[str] = "onnx"
    is_reference: ClassVar[bool] = False
    joins_elementwise: ClassVar[bool] = True
    limits: Mapping[str, str] = MappingProxyType({})

    @property
    @abc.abstractmethod
    def version(self) -> str:
        """The installed version. Raises EngineNotInstalledError if the package is missing."""

    @property
    def newest_opset(self) -> int:
        """The newest version of the standard ONNX domain that the engine knows; 0 if it loads no ONNX."""
        return 0

    @property
    def served_opset(self) -> int:
        """The newest opset of which a model gets an operator only because it is faster; by default the newest known.

        An engine whose older versions are deployed too states what its versions of the last two years take.
        """
        return self.newest_opset

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
        """The C++ file that turns a library of opbridge's kernels into one of the engine's own; None without one."""
        return None

    @property
    def adapter_flags(self) -> AdapterFlags:
        """The flags for compiling and linking the adapter."""
        return AdapterFlags()

    @property
    def program_sources(self) -> Path | None:
        """The folder of a C++ program that runs a bundle in the engine, for ``opbridge new-app``; None without one."""
        return None

    def cannot_hold(self, dtype: str, shape: Sequence[int]) -> str | None:
        """Why the engine has no tensors of this element type and shape; None if it has.

        Args:
            dtype: The name of the element type, as in :class:`TensorSpec`.
            shape: The sizes.
        """
        return None

    @property
    def takes_kernels(self) -> bool:
        """Whether :meth:`load` takes libraries of kernels. An engine without an adapter calls the C ABI directly."""
        return self.kernel_adapter is not None

    @property
    def not_run(self) -> NotRun | None:
        """Why the engine can't run models on this machine, though it is installed; None if it can."""
        return None

    @property
    def install(self) -> str:
        """The command that installs the engine, or where its installation is described."""
        return f"pip install --upgrade {self.package}"

    def is_installed(self) -> bool:
        """Whether the engine's package can be imported here."""
        try:
            return bool(self.version)
        except EngineNotInstalledError:
            return False

    @abc.abstractmethod
    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Ask the installed engine whether it has a kernel for this node at this opset, element type and rank.

        Args:
            node: A node whose inputs carry dtype and, where known, shape. A node with subgraphs is judged without the
                nodes inside, which are asked about one by one.
            opset_imports: The model's domain versions.

        Returns:
            None if the engine takes the node, otherwise the reason.
        """

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
            threads: The number of threads per operator; the engine's default is one per core.
            providers: The engine's execution providers in order of preference.
            libraries: Libraries of kernels, built with the engine's adapter.

        Raises:
            InputError: A library is missing, is not a library, or is built for another platform.
            EngineError: The engine refuses the model; the message is the engine's.
        """

    def machine_code(self, path: Path) -> tuple[Path, ...]:
        """The files of machine code that :meth:`load` would run for a model file: itself, or files beside it.

        Those of a bundle from somebody else are loaded only if the user trusts it. Libraries of kernels, which are
        passed to :meth:`load`, are not among them.
        """
        return ()

    def load_lean(self, path: Path) -> Session:
        """Load a model file to run it a few times, with little more memory than its weights if the engine can.

        Args:
            path: The model.

        Raises:
            EngineError: The engine refuses the model; the message is the engine's.
        """
        return self.load(path)
