"""TVM: the installed package."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from opbridge.engines.base import Refusal, Session
from opbridge.engines.onnx_specs import check_model_file, check_threads, onnx_specs
from opbridge.engines.roles import CompilesAhead
from opbridge.engines.tvm import native
from opbridge.errors import BuildError, EngineError, InputError
from opbridge.kernels.library import KernelLibrary
from opbridge.kernels.replaced import unless_replaced
from opbridge.kernels.toolchain import find_compiler

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.engines.tvm.support import NodeSupport

__all__ = ["TvmEngine"]


class TvmEngine(CompilesAhead):
    """TVM on the CPU, with its ONNX frontend, LLVM backend and virtual machine."""

    name: str = "tvm"
    package: ClassVar[str] = "apache-tvm"
    limits: Mapping[str, str] = {
        "without Python": "called from Python",
        "node times": "does not measure the time of each node",
    }

    @property
    def version(self) -> str:
        """The version of TVM. Raises EngineNotInstalledError if the package is missing."""
        return native.version()

    @functools.cached_property
    def newest_opset(self) -> int:  # type: ignore[override]
        """The newest operator version for which the frontend has a converter."""
        import onnx

        return min(native.newest_version(), int(onnx.defs.onnx_opset_version()))

    @property
    def takes_functions(self) -> bool:
        """False: function bodies are inlined."""
        return False

    @property
    def takes_kernels(self) -> bool:
        """True: a packed function calls the plain library."""
        return True

    @functools.cached_property
    def _support(self) -> NodeSupport:
        from opbridge.engines.tvm.support import NodeSupport

        return NodeSupport(self)

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Ask whether TVM computes this node, by compiling and running it alone; see :class:`NodeSupport`."""
        return self._support.ask(node, opset_imports)

    def compile_model(self, model: Path, libraries: Sequence[Path]) -> tuple[Path, ...]:
        """Write ``model.tvm.so`` and ``model.tvm.json``; see the base class.

        Without a C++ compiler, which links the library, no file is written, and each load compiles the model.

        Raises:
            EngineError: TVM refuses the model.
        """
        executable, descriptions = _compiled(model, _targets(libraries))
        try:
            find_compiler()
        except BuildError:
            return ()
        code, description = _compiled_paths(model)
        executable.export_library(str(code))
        data = {"tvm": self.version, "kernels": descriptions}
        description.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
        return description, code

    def machine_code(self, path: Path) -> tuple[Path, ...]:
        """The compiled model, if there is one."""
        code, _ = _compiled_paths(path)
        return (code,) if os.path.lexists(code) else ()

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
            path: An ONNX model. Files that this version of TVM compiled are loaded if they are in the same folder; else
                the model is compiled.
            threads: The number of threads of TVM's pool and of each kernel; by default one per core.
            providers: Not supported; must be None.
            libraries: Libraries of kernels.

        Raises:
            InputError: A file is missing or damaged, or an option or a library is wrong.
            EngineError: TVM refuses the model; the message is TVM's.
        """
        native.runtime()
        if providers is not None:
            raise InputError("TVM has no execution providers.", fix="leave providers= out.")
        check_threads(threads)
        path = Path(path)
        check_model_file(path)
        from opbridge.engines.tvm.kernels import Kernels
        from opbridge.engines.tvm.session import TvmSession

        opened = [KernelLibrary(Path(library)) for library in libraries]
        ready = _made_before(path, self.version)
        inputs, outputs = onnx_specs(path)
        if ready is None:
            ready = _compiled(path, {o.target for library in opened for o in library.operators})
        executable, descriptions = ready
        kernels = Kernels(descriptions, opened, threads or os.cpu_count() or 1)
        return TvmSession(executable, inputs, outputs, kernels, threads)


def _compiled_paths(model: Path) -> tuple[Path, Path]:
    # In a bundle for several engines, the ONNX file's name may already contain this engine's name.
    stem = model.stem.removesuffix(".tvm")
    return model.with_name(f"{stem}.tvm.so"), model.with_name(f"{stem}.tvm.json")


def _made_before(model: Path, version: str) -> tuple[Any, list[dict[str, Any]]] | None:
    """The compiled model in the same folder, if this version of TVM compiled it; otherwise None."""
    code, description = _compiled_paths(model)
    if not code.is_file() or not description.is_file():
        return None
    try:
        data = json.loads(description.read_bytes())
        made, kernels = data["tvm"], data["kernels"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{description.name}, which describes the compiled model, is damaged: {error}.",
            fix="export the bundle again.",
        ) from error
    if made != version:
        return None
    try:
        return native.runtime().runtime.load_module(str(unless_replaced(code))), kernels
    except Exception as error:
        raise EngineError(
            f"TVM {version} can't load {code.name}: {native.one_line(error)}", fix="export the bundle on this machine."
        ) from error


def _compiled(path: Path, targets: Collection[str]) -> tuple[Any, list[dict[str, Any]]]:
    """The compiled model of an ONNX file, and a description of each kernel that it calls."""
    import onnx_ir as ir

    from opbridge.engines.tvm.kernels import calls_for, renamed
    from opbridge.onnx_model.read import read_model

    model = ir.serde.serialize_model(ir.external_data.load_to_model(read_model(path)))
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") and not dim.dim_param:
                # Unnamed dynamic sizes would all be the same size.
                dim.dim_param = f"{value.name}_{axis}"
    descriptions = renamed(model, targets)
    module = native.import_onnx(model, calls_for(model, descriptions))
    try:
        return native.runtime().compile(module, target="llvm"), descriptions
    except Exception as error:
        raise EngineError(
            f"TVM {native.version()} can't compile {path.name!r}: {native.one_line(error)}",
            fix="export it with fixed sizes, or use another engine.",
            details=str(error),
        ) from error


def _targets(libraries: Sequence[Path]) -> set[str]:
    return {operator.target for library in libraries for operator in KernelLibrary(Path(library)).operators}
