"""TensorRT for RTX, as its installed parser and builder answer for it; TensorRT proper by the same code."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from opbridge.engines.base import NotRun, Refusal, Session
from opbridge.engines.roles import CompilesAhead
from opbridge.engines.tensorrt_rtx.native import RTX, Product, runtime

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.engines.tensorrt_rtx.support import NodeSupport

__all__ = ["TensorRTRTXEngine"]


class TensorRTRTXEngine(CompilesAhead):
    """TensorRT for RTX on NVIDIA's GPUs. It is asked, and its engine file is built, without one too.

    A model in it was never run by the authors of this adapter, who had no such GPU: what is verified elsewhere is that
    the parser takes the model and that the builder builds it.

    Attributes:
        product: Which of the two products it is.
    """

    name: str = "tensorrt_rtx"
    package: ClassVar[str] = "tensorrt_rtx_cu13_bindings"
    product: ClassVar[Product] = RTX

    @property
    def version(self) -> str:
        """The installed version. Raises EngineNotInstalledError when there is none."""
        return str(runtime(self.product).__version__)

    @functools.cached_property
    def newest_opset(self) -> int:  # type: ignore[override]
        """The newest version of the standard domain that can be written: the parser refuses none that is newer."""
        from opbridge.onnx_model.opsets import NEWEST_OPSET

        self.version  # noqa: B018, what is not installed takes no opset
        return NEWEST_OPSET

    @property
    def limits(self) -> Mapping[str, str]:  # type: ignore[override]
        """Its kernels are plugins, which are compiled elsewhere; without a GPU it runs nothing."""
        without_plugin = dict.fromkeys(_KERNELS, f"{self.name} takes no kernels of opbridge's")
        limits = {
            **without_plugin,
            "float64": "computes float64 as float32",
            "node times": "does not tell what each of its nodes costs",
        }
        idle = self.not_run
        return limits if idle is None else {**dict.fromkeys(_RUNNING, "has no NVIDIA GPU"), **limits}

    @property
    def not_run(self) -> NotRun | None:
        """Why nothing runs here: there is no GPU."""
        from opbridge.engines.tensorrt_rtx.cuda import gpu_count

        if gpu_count() > 0:
            return None
        sibling = " (a sibling of TensorRT, which may take other models)" if self.product is RTX else ""
        return NotRun(
            "built, not run",
            f"{self.product.title} {self.version}{sibling} parses and builds models here, but this machine has no "
            "NVIDIA GPU to run them.",
            f"verify the bundle on a machine with one: opbridge verify BUNDLE --engine {self.name}.",
        )

    @functools.cached_property
    def _support(self) -> NodeSupport:
        from opbridge.engines.tensorrt_rtx.support import NodeSupport

        return NodeSupport(self.product, self.version, self.newest_opset)

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Whether the parser takes this node: by a model of the node alone, where there can be one."""
        return self._support.ask(node, opset_imports)

    def compile_model(self, model: Path, libraries: Sequence[Path]) -> tuple[Path, ...]:
        """Build the engine file."""
        from opbridge.engines.tensorrt_rtx.building import write_engine

        return (write_engine(self.product, self.name, model),)

    def write_sources(self, model: Path) -> tuple[Path, ...]:
        """Write the sources of plugins for the nodes that have kernels."""
        from opbridge.engines.tensorrt_rtx.plugins import write_plugins

        return write_plugins(self.product, self.name, model)

    def load(
        self,
        path: Path,
        *,
        threads: int | None = None,
        providers: Sequence[str] | None = None,
        libraries: Sequence[Path] = (),
    ) -> Session:
        """Load the engine file beside a model, or build the model's in memory.

        Args:
            path: The ``.onnx`` file.
            threads: Means nothing on a GPU.
            providers: There are none.
            libraries: Libraries of plugins, which ``plugins/`` of the bundle has the sources of.

        Raises:
            InputError: The file is missing or no ONNX, or an option is given that there is none of.
            EngineError: There is no GPU, or the parser or the builder refuses the model.
        """
        from opbridge.engines.tensorrt_rtx.session import load_session

        return load_session(self, Path(path), threads=threads, providers=providers, libraries=libraries)


_KERNELS = ("kernels", "without Python", "kernel attributes", "several outputs", "optional inputs")
_RUNNING = ("runs", "function bodies", "dynamic shapes", "int64", "threads", "two sessions")
