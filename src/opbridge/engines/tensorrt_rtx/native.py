"""The installed TensorRT: the only module that imports it."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from pathlib import Path
from typing import Any

from opbridge.errors import EngineNotInstalledError

__all__ = ["RTX", "TENSORRT", "Parsed", "ParserError", "Product", "builder", "logger", "parse", "runtime"]


@dataclasses.dataclass(frozen=True)
class Product:
    """One of the two products.

    Attributes:
        title: The product's name.
        modules: The Python modules that may contain it; the first that exists is used.
        install: The command that installs it, or the address of the instructions.
    """

    title: str
    modules: tuple[str, ...]
    install: str


RTX = Product(
    "TensorRT for RTX",
    ("tensorrt_rtx", "tensorrt_rtx_bindings"),
    "pip install --upgrade tensorrt-rtx-cu13-bindings tensorrt-rtx-cu13-libs",
)
TENSORRT = Product("TensorRT", ("tensorrt",), "https://docs.nvidia.com/deeplearning/tensorrt (its Python wheel)")


@dataclasses.dataclass(frozen=True)
class ParserError:
    """An error of the parser.

    Attributes:
        description: The parser's message, or the condition that did not hold.
        function: The parser's function that reports it.
        node: The node's name; empty if the error is not about a node.
        operator: The node's operator type.
        inside: The calls and subgraphs that contain the node, from the outermost.
    """

    description: str
    function: str
    node: str
    operator: str
    inside: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Parsed:
    """A parsed model.

    Attributes:
        network: The engine's network.
        errors: Empty if the parser takes the model.
        keep: The objects that must live as long as the network.
    """

    network: Any
    errors: tuple[ParserError, ...]
    keep: Any


@functools.cache
def runtime(product: Product) -> Any:
    """The product's Python module.

    Raises:
        EngineNotInstalledError: The package is not installed, or can't be imported.
    """
    for name in product.modules:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        except (ImportError, OSError) as error:
            raise EngineNotInstalledError(
                f"{product.title} is installed, but {name} can't be imported: {error}", fix=product.install
            ) from error
        if hasattr(module, "OnnxParser"):
            return module
    raise EngineNotInstalledError(f"{product.title} is not installed.", fix=product.install)


@functools.cache
def builder(product: Product) -> Any:
    """The builder of this process, with its logger."""
    return runtime(product).Builder(logger(product))


@functools.cache
def logger(product: Product) -> Any:
    """A logger that keeps the last errors, in ``messages``, and prints nothing."""
    trt = runtime(product)

    class Logger(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.messages: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.messages = [*self.messages[-9:], message]

    return Logger()


def parse(product: Product, model: bytes | Path) -> Parsed:
    """Parse a model: serialized bytes, or a file with external data in the same folder.

    The parser continues after a node that it refuses, so that all refused nodes are reported.
    """
    trt = runtime(product)
    made = builder(product)
    flags = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = made.create_network(0 if flags is None else 1 << int(flags))
    parser = trt.OnnxParser(network, logger(product))
    if isinstance(model, Path):
        taken = parser.supports_model_v2(model.read_bytes(), str(model.absolute()))
    else:
        taken = parser.supports_model_v2(model, None)
    errors = [_described(parser.get_error(index)) for index in range(parser.num_errors)]
    if not taken and not errors:
        errors = [ParserError("the parser gives no reason", "", "", "", ())]
    return Parsed(network, tuple(errors), (parser, made))


def _described(error: Any) -> ParserError:
    named = error.node() >= 0
    return ParserError(
        " ".join(error.desc().split()),
        error.func(),
        error.node_name() if named else "",
        error.node_operator() if named else "",
        tuple(error.local_function_stack()),
    )
