"""The installed executorch package: the only module that imports it and that uses its internals.

* ``exir.operator.convert.to_out_variant``: the kernel of the runtime for an operator. There is no public equivalent.
* ``exir.tracer._default_decomposition_table``: what ``to_edge`` decomposes. Its public argument takes exceptions only.
* ``ExecutorchProgramManager.executorch_program``: the operators of a finished program, which is a public attribute.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import logging
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from opbridge.errors import EngineNotInstalledError

__all__ = [
    *("Program", "decompositions", "folder", "kernels", "load_method", "lowered", "out_variant"),
    *("package_version", "quiet", "runtime"),
]

_FIX = "pip install --upgrade executorch"


def package_version() -> str:
    """The installed version, without importing the package, which takes seconds.

    Raises:
        EngineNotInstalledError: The package is not installed.
    """
    if importlib.util.find_spec("executorch") is None:
        raise EngineNotInstalledError("executorch is not installed.", fix=_FIX)
    try:
        return version("executorch")
    except PackageNotFoundError as error:
        raise EngineNotInstalledError("executorch is not installed: another module has that name.", fix=_FIX) from error


def _imported(name: str) -> Any:
    package_version()
    try:
        with quiet():
            return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise EngineNotInstalledError(
            f"executorch {package_version()} is installed, but {name} can't be imported: {error}",
            fix=f"{_FIX}, with the release of torch that it was built for.",
        ) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress the output and the logs of ExecuTorch's compiler."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def folder() -> Path:
    """The folder of the package, with its headers and libraries."""
    package_version()
    found = importlib.util.find_spec("executorch")
    assert found is not None
    return Path(next(iter(found.submodule_search_locations or [])))


@functools.cache
def runtime() -> Any:
    """The runtime. This loads its library, which libraries of kernels need."""
    return _imported("executorch.runtime").Runtime.get()


# The kernels that this process registered in its runtime.
added_kernels: set[str] = set()


def kernels() -> frozenset[str]:
    """The names of the kernels that the installed runtime has by default, such as ``"aten::add.out"``."""
    return frozenset(runtime().operator_registry.operator_names) - added_kernels


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions that ``to_edge`` applies."""
    table: dict[Any, Callable[..., Any]] = _imported("executorch.exir.tracer")._default_decomposition_table()
    return table


def out_variant(overload: Any) -> str | None:
    """The name of an operator's kernel; None if the operator has no out variant."""
    convert = _imported("executorch.exir.operator.convert")
    try:
        found, _ = convert.to_out_variant(overload)
    except (RuntimeError, AssertionError):
        return None
    return str(found._schema.name) + (f".{found._schema.overload_name}" if found._schema.overload_name else "")


class Program:
    """A program in the runtime's format.

    Attributes:
        buffer: The file's contents.
        operators: The names of the kernels that the program calls.
    """

    def __init__(self, manager: Any) -> None:
        self.buffer = bytes(manager.buffer)
        plans = manager.executorch_program.execution_plan
        self.operators = sorted(
            {
                f"{item.name}.{item.overload}" if item.overload else item.name
                for plan in plans
                for item in plan.operators
            }
        )


def lowered(program: Any) -> Program:
    """Compile a torch program for the runtime's own kernels. Errors are executorch's own exceptions."""
    exir = _imported("executorch.exir")
    with quiet():
        edge = exir.to_edge(program, compile_config=exir.EdgeCompileConfig(_check_ir_validity=False))
        return Program(edge.to_executorch())


def load_method(path: Path) -> tuple[Any, Any]:
    """A program file and its method ``forward``, which refers to it. Errors are executorch's own exceptions."""
    program = runtime().load_program(path)
    return program, program.load_method("forward")
