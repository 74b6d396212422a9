"""Judges a node by running a model of that node alone, and comparing its results with the standard's.

This is for engines that do not list what they support and that silently misread some nodes. They run in a child
process, in which a crash counts as a refusal.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from opbridge import engines
from opbridge.engines.asked import AskedEngine
from opbridge.engines.base import IR_VERSION, Refusal
from opbridge.engines.refusals import UNKNOWN, Reason, first_version, refusal_of
from opbridge.errors import EngineError, EngineNotInstalledError, InputError

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["TrialSupport", "difference", "feeds_of", "has_subgraph", "lone_model", "standard_results"]

_TOLERANCE = 2e-3
"""The largest error of one node, relative to its largest result: it separates a different formula from rounding."""

_ANY_SIZE = 8
"""The size that stands for a dynamic one."""

_SMALL = 64
"""Constants up to this size (axes, shapes) keep their values in the question. Larger ones are weights."""


class TrialSupport(abc.ABC):
    """Answers whether an engine takes a node, by running it. Answers are cached per distinct question.

    Args:
        engine: The engine's name and version in reasons, such as "TVM 0.27.0".
        name: The engine, as in :func:`opbridge.engines.get`.
    """

    def __init__(self, engine: str, name: str) -> None:
        self.engine = engine
        self._asked = AskedEngine(engine, name)
        self._answers: dict[bytes, Reason | None] = {}

    def ask(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """See :meth:`Engine.supports <opbridge.engines.base.Engine.supports>`."""
        if node.domain or first_version(node.op_type) is None:
            return refusal_of(node, UNKNOWN)
        reason = self.known_reason(node, node.version or opset_imports.get("", 1))
        if reason is None:
            model = self.question(node, opset_imports)
            if model is None:
                return None
            key = model.SerializeToString(deterministic=True)
            if key not in self._answers:
                self._answers[key] = self._try(model)
            reason = self._answers[key]
        return refusal_of(node, reason)

    @abc.abstractmethod
    def known_reason(self, node: ir.Node, opset: int) -> Reason | None:
        """The reason for a refusal that is known without running the node; None if there is none."""

    def question(self, node: ir.Node, opset_imports: Mapping[str, int]) -> onnx.ModelProto | None:
        """The model of the node; None if only a conversion of the whole model can tell."""
        return lone_model(node, opset_imports, IR_VERSION)

    def _try(self, model: onnx.ModelProto) -> Reason | None:
        feeds = feeds_of(model)
        expected = standard_results(model, feeds)
        if expected is None:
            # Indices of a small tensor, such as of the only image of a batch, may be zeros only.
            feeds = {name: np.zeros_like(array) if array.dtype.kind == "i" else array for name, array in feeds.items()}
            expected = standard_results(model, feeds)
        if expected is None or not all(array.size for array in expected.values()):
            # The made-up sizes do not fit the operator's attributes; those of the whole model will.
            return None
        try:
            found = self._asked.results(model.SerializeToString(), feeds)
        except EngineNotInstalledError:
            raise
        except (EngineError, InputError) as error:
            return Reason(error.message)
        for name, array in expected.items():
            other = difference(found[name], array)
            if other is not None:
                return Reason(f"{self.engine} computes another result: {other}")
        return None


def has_subgraph(node: ir.Node) -> bool:
    """Whether the node holds other nodes, as If and Loop do."""
    import onnx_ir as ir

    graphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return any(attribute.type in graphs for attribute in node.attributes.values())


def lone_model(node: ir.Node, opset_imports: Mapping[str, int], ir_version: int) -> onnx.ModelProto | None:
    """A model of this node alone, with fixed sizes; equal for nodes that ask the same question.

    Returns:
        None if a type or a rank is unknown, or an attribute is a parameter of an enclosing function.
    """
    import onnx_ir as ir

    if any(attribute.is_ref() for attribute in node.attributes.values()):
        return None
    inputs = [None if value is None else _lone(value, f"x{i}") for i, value in enumerate(node.inputs)]
    given = [value for value in node.inputs if value is not None]
    if any(value.dtype is None or (value.shape is None and _constant(value) is None) for value in given):
        return None
    outputs = [
        ir.Value(name="" if value.name == "" else f"y{i}", type=value.type) for i, value in enumerate(node.outputs)
    ]
    single = ir.Node(node.domain, node.op_type, inputs, list(node.attributes.values()), outputs=outputs, name="node")
    graph = ir.Graph(
        [value for value in inputs if value is not None and value.const_value is None],
        [value for value in outputs if value.name],
        nodes=[single],
        initializers=[value for value in inputs if value is not None and value.const_value is not None],
        opset_imports={"": node.version or opset_imports.get("", 1)},
        name="question",
    )
    return ir.serde.serialize_model(ir.Model(graph, ir_version=ir_version))


def _lone(value: ir.Value, name: str) -> ir.Value:
    import onnx_ir as ir

    constant = _constant(value)
    if constant is None:
        sizes = [size if isinstance(size, int) else _ANY_SIZE for size in value.shape or ()]
        return ir.Value(name=name, type=value.type, shape=ir.Shape(sizes))
    if constant.size > _SMALL:
        # The values of weights, which are large, do not matter.
        filled = _filled(constant.dtype.numpy(), constant.shape.numpy(), 1)
        constant = ir.tensor(filled, dtype=constant.dtype)
    return ir.Value(name=name, type=value.type, shape=constant.shape, const_value=constant)


def _constant(value: ir.Value) -> Any:
    import onnx_ir as ir

    return ir.convenience.get_const_tensor(value)


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Reproducible inputs for a single node: numbers of both signs, and small indices.

    Integer inputs of a node with integer outputs are not indices, so they have both signs as well: an engine that adds
    the bits of small positive integers as float32 would get the right sum.
    """
    import onnx

    integers = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
    span = (-999, 1000) if all(value.type.tensor_type.elem_type in integers for value in model.graph.output) else (0, 2)
    feeds = {}
    for seed, value in enumerate(model.graph.input):
        tensor = value.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        feeds[value.name] = _filled(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type), shape, seed, span)
    return feeds


def _filled(dtype: np.dtype[Any], shape: Any, seed: int, span: tuple[int, int] = (0, 2)) -> np.ndarray:
    random = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        return random.integers(*span, tuple(shape)).astype(dtype)
    if dtype == np.bool_:
        return random.integers(0, 2, tuple(shape)).astype(dtype)
    return random.standard_normal(tuple(shape)).astype(dtype)


def standard_results(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """The results of a single node by an engine that implements the whole standard; None if it refuses these sizes.

    The shapes of the results are written to the model's outputs.
    """
    try:
        results = _judge().results(model.SerializeToString(), feeds)
    except (EngineError, InputError):
        return None
    for value in model.graph.output:
        del value.type.tensor_type.shape.dim[:]
        for size in results[value.name].shape:
            value.type.tensor_type.shape.dim.add().dim_value = size
    return results


@functools.cache
def _judge() -> AskedEngine:
    name = "onnxruntime" if engines.get("onnxruntime").is_installed() else "reference"
    return AskedEngine(name, name)


def difference(got: np.ndarray, expected: np.ndarray) -> str | None:
    """How an engine's result differs from the standard's; None if it differs by rounding only."""
    if got.shape != expected.shape:
        return f"shape {list(got.shape)} in place of {list(expected.shape)}"
    if got.dtype != expected.dtype:
        return f"{got.dtype.name} in place of {expected.dtype.name}"
    if expected.dtype.kind in "OUS":
        return None if np.array_equal(got, expected) else "other strings"
    got64, expected64 = (array.astype(np.float64) for array in (got, expected))
    # Elements that are not finite in the standard's result are not compared.
    finite = np.isfinite(expected64)
    if not finite.any():
        return None
    error, scale = np.abs(got64[finite] - expected64[finite]).max(), max(np.abs(expected64[finite]).max(), 1.0)
    return (
        None
        if error <= _tolerance(expected.dtype) * scale
        else (f"it is off by {error:.3g} where results reach {scale:.3g}")
    )


def _tolerance(dtype: np.dtype[Any]) -> float:
    return max(_TOLERANCE, {"float16": 4e-3, "bfloat16": 3e-2}.get(dtype.name, 0.0))
