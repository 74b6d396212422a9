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
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from opbridge.errors import EngineError, EngineNotInstalledError, InputError
from opbridge.kernels.adapter_flags import AdapterFlags

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

    from opbridge.engines.environments import EngineEnvironment
    from opbridge.engines.profiling import NodeTime
    from opbridge.engines.torch_program import TorchProgram

__all__ = ["IR_VERSION", "AdapterFlags", "Engine", "NotRun", "Refusal", "Session", "TensorSpec"]


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
        is_unknown: Whether the engine has no operator of this name, in any version or for any type. Only then does a
            model-local function of that name run in its place.
    """

    node: str
    operator: str
    reason: str
    missing_dtypes: tuple[str, ...] = ()
    opset: int | None = None
    is_unknown: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The refusal as JSON data."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class NotRun:
    """Why an engine runs no model on this machine, though it takes one.

    Attributes:
        verdict: How far it comes, which is then a verification's verdict: "built, not run" or "exported, not run".
        reason: What is missing, in a sentence.
        fix: How to get it.
    """

    verdict: str
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
        """Free what the session holds, a child process for one. Closing twice is allowed."""

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
        name: The name users write (``--engine NAME``). With a version in it, the engine is in an environment of its
            own.
        package: The distribution that ``pip install`` takes.
        accepts: What the engine loads: ``"onnx"``; or ``"exported_program"`` or ``"module"``: then it leaves the flow
            after capture (``climb_torch.py``), and has :meth:`supports_call` and :meth:`convert`.
        is_reference: Whether what it computes, in a model's own types, may be what other engines are held against.
        limits: What it can't do, of :data:`~opbridge.engines.abilities.ABILITIES`: a pattern of the error that a user
            gets. The contract's tests ask for each ability, and for that error where there is none.
        in_environment: Makes the engine of another version from the environment that has it; None where only the
            installed one can be asked. What it is asked then goes to :meth:`answer` in a child process there.
        python: The interpreter of that environment; None for this process's own.
    """

    name: str
    package: ClassVar[str]
    accepts: ClassVar[str] = "onnx"
    is_reference: ClassVar[bool] = False
    limits: Mapping[str, str] = MappingProxyType({})
    in_environment: ClassVar[Callable[[EngineEnvironment], Engine] | None] = None
    python: Path | None = None

    @property
    @abc.abstractmethod
    def version(self) -> str:
        """The installed version. Raises EngineNotInstalledError when there is none."""

    @property
    def newest_opset(self) -> int:
        """The newest version of the standard ONNX domain that the engine knows; 0 for one that loads no ONNX."""
        return 0

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
        """The C++ file that makes a library of opbridge's kernels one of the engine's own; None if there is none."""
        return None

    @property
    def adapter_flags(self) -> AdapterFlags:
        """What that file needs to be compiled and linked."""
        return AdapterFlags()

    @property
    def takes_kernels(self) -> bool:
        """Whether :meth:`load` takes libraries of kernels; one without an adapter calls the C ABI by itself."""
        return self.kernel_adapter is not None

    @property
    def not_run(self) -> NotRun | None:
        """Why the engine runs no model on this machine, though it can be asked; None where it runs them."""
        return None

    @property
    def install(self) -> str:
        """The command that installs it, or where that is described."""
        return f'pip install "opbridge[{self.name.partition("==")[0].replace("_", "-")}]"'

    def is_installed(self) -> bool:
        """Whether the engine's package can be imported here."""
        try:
            return bool(self.version)
        except EngineNotInstalledError:
            return False

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Ask the installed engine whether it has a kernel for this node at this opset, element type and rank.

        Every engine that loads ONNX answers it.

        Args:
            node: A node whose inputs carry dtype and, where known, shape. A node with subgraphs is judged by itself;
                the nodes inside are asked for one by one.
            opset_imports: The model's domain versions.

        Returns:
            None when the engine takes it, otherwise the reason.
        """
        raise EngineError(f"{self.name} takes no ONNX nodes, and can't be asked about one.", fix="ask supports_call.")

    def supports_call(self, node: torch.fx.Node) -> Refusal | None:
        """Ask an engine that takes a torch program about a call in it; one that can't be asked takes everything.

        Args:
            node: A call of an ``OpOverload``; ``node.meta["val"]`` and those of its arguments are fake tensors.

        Returns:
            None when the engine takes it, otherwise the reason.
        """
        return None

    def convert(self, program: TorchProgram, folder: Path) -> str:
        """Make the model files of an engine that takes a torch program.

        Args:
            program: The program, with calls that the engine takes and those of its kernels.
            folder: Where to write them. Their names begin with ``model.`` and the engine's name.

        Returns:
            The name of the file that :meth:`load` is to be given.

        Raises:
            EngineError: The engine refuses the program; the message is the engine's.
        """
        raise EngineError(f"{self.name} takes ONNX models.", fix="export one for it.")

    def compile_model(self, model: Path, libraries: Sequence[Path]) -> tuple[Path, ...]:
        """Make of an ONNX model what the engine makes ahead of time, while a bundle is written.

        Args:
            model: The model, in the folder of the bundle.
            libraries: The engine's library of kernels, if the model has kernels.

        Returns:
            The files written beside it; their names begin with the model's stem and the engine's name.

        Raises:
            EngineError: It can't be made.
        """
        return ()

    def write_sources(self, model: Path) -> tuple[Path, ...]:
        """Write, while a bundle is written, what a user compiles for the engine of the kernels that are declared.

        It runs in the process that declared them; :meth:`compile_model` runs in a child process.

        Args:
            model: The model, in the folder of the bundle.

        Returns:
            The files written beside it; their names begin with the model's stem and the engine's name.
        """
        return ()

    def answer(self, question: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Answer this engine's own question, asked by the process that set it (see ``in_environment``).

        It runs where only NumPy, ml_dtypes and the engine are installed.

        Args:
            question: JSON data.
            arrays: What is better sent as bytes.

        Returns:
            JSON data.
        """
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

    def profile(
        self, path: Path, feeds: Mapping[str, np.ndarray], *, libraries: Sequence[Path] = (), runs: int = 7
    ) -> tuple[NodeTime, ...]:
        """Run a model file several times, and say what each of its nodes costs.

        Args:
            path: The model.
            feeds: One array per input, by name.
            libraries: Libraries of kernels.
            runs: How often it is run; the first run is not counted where the engine tells them apart.

        Raises:
            EngineError: The engine does not tell, or it fails.
        """
        raise EngineError(
            f"{self.name} does not tell what each of its nodes costs.",
            fix="ask an engine that does: onnxruntime or openvino.",
        )

    def load_lean(self, path: Path) -> Session:
        """Load a model file to run it a few times, with little more memory than its weights where the engine can.

        Args:
            path: The model.

        Raises:
            EngineError: The engine refuses the model; the message is the engine's.
        """
        return self.load(path)
