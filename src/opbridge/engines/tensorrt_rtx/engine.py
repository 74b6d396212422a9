"""TensorRT for RTX: its installed parser and builder. TensorRT uses the same code."""

from __future__ import annotations

import functools
import os
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
    """TensorRT for RTX on NVIDIA's GPUs. Without a GPU it can still be asked, and its engine file can be built.

    Running a model has not been tested on a GPU; the tests cover the parser and the builder.

    Attributes:
        product: One of the two products, TensorRT for RTX or TensorRT.
    """

    name: str = "tensorrt_rtx"
    package: ClassVar[str] = "tensorrt_rtx_cu13_bindings"
    product: ClassVar[Product] = RTX

    @property
    def install(self) -> str:
        """The command that installs the product, or where its installation is described."""
        return self.product.install

    @property
    def version(self) -> str:
        """The installed version. Raises EngineNotInstalledError if the package is missing."""
        return str(runtime(self.product).__version__)

    @functools.cached_property
    def newest_opset(self) -> int:  # type: ignore[override]
        """The newest opset that can be written: the parser refuses no opset for its number."""
        from opbridge.onnx_model.opsets import NEWEST_OPSET

        self.version  # noqa: B018 - raises if the package is missing
        return NEWEST_OPSET

    @property
    def limits(self) -> Mapping[str, str]:  # type: ignore[override]
        """Kernels are plugins, which the user compiles; without a GPU, no model runs."""
        without_plugin = dict.fromkeys(_KERNELS, f"{self.name} takes no kernels of opbridge")
        limits = {
            **without_plugin,
            "float64": "computes float64 as float32",
            "node times": "does not measure the time of each node",
        }
        idle = self.not_run
        return limits if idle is None else {**dict.fromkeys(_RUNNING, "has no NVIDIA GPU"), **limits}

    @property
    def not_run(self) -> NotRun | None:
        """Why models can't run here: there is no GPU."""
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
        """Ask the parser about a model of this node alone, if there can be one."""
        return self._support.ask(node, opset_imports)

    def compile_model(self, model: Path, libraries: Sequence[Path]) -> tuple[Path, ...]:
        """Write the engine file; see the base class."""
        from opbridge.engines.tensorrt_rtx.building import write_engine

        return (write_engine(self.product, self.name, model),)

    def write_sources(self, model: Path) -> tuple[Path, ...]:
        """Write the sources of plugins for the nodes that have kernels; see the base class."""
        from opbridge.engines.tensorrt_rtx.plugins import write_plugins

        return write_plugins(self.product, self.name, model)

    def machine_code(self, path: Path) -> tuple[Path, ...]:
        """The engine file, if there is one."""
        from opbridge.engines.tensorrt_rtx.building import sibling_path

        file = sibling_path(path, self.name, ".engine")
        return (file,) if os.path.lexists(file) else ()

    def load(
        self,
        path: Path,
        *,
        threads: int | None = None,
        providers: Sequence[str] | None = None,
        libraries: Sequence[Path] = (),
    ) -> Session:
        """Load the engine file in the model's folder, or build it in memory.

        Args:
            path: The ``.onnx`` file.
            threads: Ignored on a GPU.
            providers: Not supported; must be None.
            libraries: Not supported; kernels are plugins, whose sources are in ``plugins/`` of the bundle.

        Raises:
            InputError: The file is missing or not ONNX, or an option is not supported.
            EngineError: There is no GPU, or the parser or the builder refuses the model.
        """
        from opbridge.engines.tensorrt_rtx.session import load_session

        return load_session(self, Path(path), threads=threads, providers=providers, libraries=libraries)


_KERNELS = ("kernels", "without Python", "kernel attributes", "several outputs", "optional inputs")
_RUNNING = ("runs", "function bodies", "dynamic shapes", "int64", "threads", "two sessions")
