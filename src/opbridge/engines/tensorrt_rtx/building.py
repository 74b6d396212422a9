"""Build an engine file from an ONNX model, which needs no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opbridge.engines.tensorrt_rtx import native
from opbridge.engines.tensorrt_rtx.native import ParserError, Product
from opbridge.engines.tensorrt_rtx.support import reason_of
from opbridge.errors import EngineError

__all__ = ["PROFILE", "build_engine", "sibling_path", "write_engine"]

PROFILE = (1, 16, 1024)
"""The minimum, optimum and maximum size of a dynamic dimension in an engine file.

An ONNX model states no ranges. For other ranges, build from the bundle's model with the product's ``trtexec``.
"""


def write_engine(product: Product, name: str, model: Path) -> Path:
    """Build a model, and write the engine file to the same folder.

    Args:
        product: The product.
        name: The engine's name.
        model: An ONNX model.

    Raises:
        EngineError: The parser refuses the model, or the builder fails; the message is the product's.
    """
    path = sibling_path(model, name, ".engine")
    path.write_bytes(build_engine(product, model))
    return path


def sibling_path(model: Path, name: str, ending: str) -> Path:
    """A path in the model's folder whose name begins with the model's stem and the engine's name."""
    stem = model.stem if model.stem.endswith(f".{name}") else f"{model.stem}.{name}"
    return model.with_name(stem + ending)


def build_engine(product: Product, model: Path) -> bytes:
    """The engine file of a model; see :func:`write_engine`."""
    parsed = native.parse(product, model)
    if parsed.errors:
        raise EngineError(
            f"The parser of {product.title} refuses {model.name!r}: {'; '.join(map(_described, parsed.errors[:5]))}.",
            fix="run `opbridge diagnose` on the model; a node of a custom operator needs a function body (body_for).",
        )
    builder, logger = native.builder(product), native.logger(product)
    logger.messages = []
    serialized = builder.build_serialized_network(parsed.network, _configuration(product, builder, parsed.network))
    if serialized is None:
        reason = " ".join(logger.messages[-1].split()) if logger.messages else "it gives no reason"
        raise EngineError(
            f"The builder of {product.title} fails on {model.name!r}: {reason}",
            fix="if it is about a dynamic dimension, export the model with fixed sizes.",
            details="\n".join(logger.messages),
        )
    return bytes(serialized)


def _configuration(product: Product, builder: Any, network: Any) -> Any:
    """A configuration with full float32 precision and a range for each dynamic dimension."""
    trt = native.runtime(product)
    configuration = builder.create_builder_config()
    flag = getattr(trt.BuilderFlag, "TF32", None)
    if flag is not None:
        configuration.clear_flag(flag)
    profile = builder.create_optimization_profile()
    dynamic = False
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        sizes = tuple(tensor.shape)
        if -1 not in sizes:
            continue
        dynamic = True
        ranges = [tuple(bound if size == -1 else size for size in sizes) for bound in PROFILE]
        profile.set_shape(tensor.name, *ranges)
    if dynamic:
        configuration.add_optimization_profile(profile)
    return configuration


def _described(error: ParserError) -> str:
    where = f"node {error.node!r} ({error.operator})" if error.operator else "the model"
    inside = f", inside {', '.join(error.inside)}" if error.inside else ""
    return f"{where}{inside}: {reason_of(error)}"
