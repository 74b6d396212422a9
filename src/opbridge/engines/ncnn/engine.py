"""ncnn: the installed packages ncnn and pnnx."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from opbridge.atomic import TemporaryFolder
from opbridge.engines.base import Refusal, Session
from opbridge.engines.ncnn import native
from opbridge.engines.ncnn.carried import CARRIED
from opbridge.engines.roles import CompilesAhead
from opbridge.errors import EngineError, InputError
from opbridge.kernels.library import KernelLibrary

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.engines.ncnn.support import NodeSupport

__all__ = ["NcnnEngine"]


class NcnnEngine(CompilesAhead):
    """ncnn on the CPU, in float32.

    The converter pnnx reads ONNX models. It is needed to export a bundle and to ask about nodes, not to run one. Its
    executable is enough: ``pip install --no-deps pnnx`` does not install torch.
    """

    name: str = "ncnn"
    package: ClassVar[str] = "ncnn"
    limits: Mapping[str, str] = {
        "without Python": "no headers",
        "float64": "float32",
        "node times": "does not measure the time of each node",
    }

    def cannot_hold(self, dtype: str, shape: Sequence[int]) -> str | None:
        """Types other than those that ncnn carries, and empty tensors."""
        if dtype not in CARRIED:
            return f"ncnn has no tensors of {dtype}"
        return "ncnn has no empty tensors" if 0 in shape else None

    @property
    def install(self) -> str:
        """The command that installs ncnn and its converter."""
        return native.INSTALL

    @property
    def version(self) -> str:
        """The version of ncnn. Raises EngineNotInstalledError if the package is missing."""
        return native.version()

    @functools.cached_property
    def newest_opset(self) -> int:  # type: ignore[override]
        """The newest version of the standard domain that pnnx reads, from its message for a model that is too new."""
        import onnx
        from onnx import TensorProto, helper

        from opbridge.engines.ncnn.pnnx import run_pnnx

        value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "question", value[:1], value[1:])
        newest = int(onnx.defs.onnx_opset_version())
        try:
            imports = [helper.make_opsetid("", _TOO_NEW)]
            run_pnnx(helper.make_model(graph, opset_imports=imports, ir_version=self.newest_ir_version))
        except EngineError as error:
            limit = re.search(r"ai\.onnx is till opset (\d+)", error.details or "")
            return min(newest, int(limit[1])) if limit else newest
        return newest

    @property
    def takes_functions(self) -> bool:
        """False: function bodies are inlined."""
        return False

    @property
    def takes_kernels(self) -> bool:
        """True: layers written in Python call the plain library, since the package has no headers for C++ layers."""
        return True

    @functools.cached_property
    def _support(self) -> NodeSupport:
        from opbridge.engines.ncnn.support import NodeSupport

        return NodeSupport(self.version, self.newest_opset)

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Ask whether ncnn computes this node, by converting and running it alone; see :class:`NodeSupport`."""
        return self._support.ask(node, opset_imports)

    def compile_model(self, model: Path, libraries: Sequence[Path]) -> tuple[Path, ...]:
        """Write ``model.ncnn.json``, ``.param`` and ``.bin``; see the base class.

        Raises:
            EngineError: pnnx or ncnn refuses the model as a whole, or ncnn can't load what pnnx made.
        """
        from opbridge.engines.ncnn.conversion import convert_file, write_files

        files = write_files(convert_file(model, _targets(libraries)), model.with_name(model.stem.removesuffix(".ncnn")))
        self.load(model, libraries=libraries)
        return files

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
            path: An ONNX model. Its converted files are loaded if they are in the same folder; else pnnx converts it.
            threads: The number of threads per layer; by default one per core.
            providers: Not supported; must be None.
            libraries: Libraries of kernels.

        Raises:
            InputError: A file is missing or damaged, or an option or a library is wrong.
            EngineError: pnnx or ncnn refuses the model; the message is theirs.
        """
        from opbridge.engines.ncnn.session import load_session, main_file

        native.runtime()
        if providers is not None:
            raise InputError("ncnn has no execution providers.", fix="leave providers= out.")
        path = Path(path)
        main = main_file(path)
        if main.is_file():
            return load_session(main, threads=threads, libraries=libraries)
        # Converting needs onnx, running does not.
        from opbridge.engines.ncnn.conversion import convert_file, write_files

        with TemporaryFolder() as name:
            converted = convert_file(path, _targets(libraries))
            main = write_files(converted, Path(name) / "model")[0]
            return load_session(main, threads=threads, libraries=libraries)


_TOO_NEW = 1000


def _targets(libraries: Sequence[Path]) -> set[str]:
    return {operator.target for library in libraries for operator in KernelLibrary(Path(library)).operators}
