"""Replaces standard operators that an engine does not have by other operators, without loss of accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from opbridge.engines.probe import probe
from opbridge.onnx_model.adaptation import Adaptation, AdaptationResult
from opbridge.onnx_model.infer import fill_types, with_types
from opbridge.onnx_model.names import describe_node
from opbridge.onnx_model.opsets.building import Builder, Names
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.schemas import is_standard
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.scopes import scopes

if TYPE_CHECKING:
    from opbridge.engines.base import Engine
    from opbridge.kernels.library import KernelOperator

__all__ = ["ExpressByOthersPass"]


ORDER = 36

_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def for_engine(model: ir.Model, engine: Engine, kernels: Sequence[KernelOperator]) -> ExpressByOthersPass | None:
    """The pass if the engine refuses one of these operators in the model."""
    typed = with_types(model)
    refused = (
        engine.supports(node, scope.opset_imports) is not None
        for scope in scopes(typed)
        for node in scope.all_nodes()
        if is_standard(node) and node.op_type in _WAYS
    )
    return ExpressByOthersPass(engine) if any(refused) else None


class ExpressByOthersPass(ir.passes.InPlacePass):
    """Replace each refused node by other operators, if the engine then refuses less of the model."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    def call(self, model: ir.Model) -> AdaptationResult:
        """Change ``model`` in place; the result lists the replaced nodes, and must not be used if there are none."""
        fill_types(model)
        before = len(probe(model, self._engine))
        names = Names(model)
        done: dict[str, list[str]] = {}
        for scope in scopes(model):
            opset = scope.opset_imports.get("", model.opset_imports.get("", 1))
            for node in list(scope.all_nodes()):
                if not is_standard(node) or node.op_type not in _WAYS:
                    continue
                if self._engine.supports(node, scope.opset_imports) is None:
                    continue
                name, operator = describe_node(node), node.op_type
                if _express(node, opset, names):
                    done.setdefault(f"ai.onnx::{operator}", []).append(name)
            for node in scope.all_nodes():
                node.version = None
        adaptations = tuple(
            Adaptation(f"{operator} becomes other operators", tuple(nodes), operator)
            for operator, nodes in done.items()
        )
        return AdaptationResult(model, bool(done) and len(probe(model, self._engine)) < before, adaptations)


def _express(node: ir.Node, opset: int, names: Names) -> bool:
    builder = Builder(node, opset, names, lambda made: None)
    site = Site(node, opset, opset, builder, builder)
    try:
        site.replace(_WAYS[node.op_type](site, builder))
    except CannotExpress:
        return False
    return True


def _floating(site: Site, position: int = 0) -> ir.Value:
    value = site.input(position)
    if site.dtype(value) not in _FLOATS:
        raise CannotExpress("it is for floating-point types only")
    assert value is not None
    return value


def _reciprocal(site: Site, op: Builder) -> ir.Value:
    x = _floating(site)
    result: ir.Value = op.Div(op.like(1, x), x)
    return result


def _abs(site: Site, op: Builder) -> ir.Value:
    return _magnitude(op, _floating(site))


def _magnitude(op: Builder, x: ir.Value) -> ir.Value:
    result: ir.Value = op.Where(op.Less(x, op.like(0, x)), op.Neg(x), x)
    return result


def _round(site: Site, op: Builder) -> ir.Value:
    """Round half to even. The difference from the floor is exact where the result depends on it.

    The computation uses the absolute value, so that a zero gets the sign of the input.
    """
    x = _floating(site)
    size = _magnitude(op, x)
    floor = op.Floor(size)
    above = op.Add(floor, op.like(1, x))
    rest = op.Sub(size, floor)
    odd = op.Sub(floor, op.Mul(op.like(2, x), op.Floor(op.Mul(op.like(0.5, x), floor))))
    tie = op.Where(op.Greater(odd, op.like(0.5, x)), above, floor)
    up = op.Where(op.Greater(rest, op.like(0.5, x)), above, tie)
    result: ir.Value = op.Mul(op.Sign(x), op.Where(op.Less(rest, op.like(0.5, x)), floor, up))
    return result


def _softplus(site: Site, op: Builder) -> ir.Value:
    """max(x, 0) + log1p(exp(-|x|)); log1p by Theorem 4 of Goldberg's "What every computer scientist should know"."""
    x = _floating(site)
    u = op.Exp(op.Neg(_magnitude(op, x)))
    w = op.Add(u, op.like(1, x))
    step = op.Sub(w, op.like(1, x))
    nothing = op.Equal(step, op.like(0, x))
    safe = op.Where(nothing, op.like(1, x), step)
    log1p = op.Where(nothing, u, op.Div(op.Mul(op.Log(w), u), safe))
    result: ir.Value = op.Add(op.Relu(x), log1p)
    return result


def _place_of_extreme(site: Site, op: Builder) -> ir.Value:
    """The first index of the largest or smallest element; for equal elements, TopK returns the lower index first."""
    x = site.input(0)
    if site.attribute("select_last_index"):
        raise CannotExpress("it returns the last of equal elements")
    assert x is not None
    axis = site.attribute("axis")
    one = op.constant(np.array([1], dtype=np.int64))
    _, index = op.make("TopK", x, one, axis=axis, largest=int(site.node.op_type == "ArgMax"), outputs=2)
    if site.attribute("keepdims"):
        return index  # type: ignore[no-any-return]
    if site.opset < 13:
        return op.Squeeze(index, axes=[axis])  # type: ignore[no-any-return]
    return op.Squeeze(index, op.constant(np.array([axis], dtype=np.int64)))  # type: ignore[no-any-return]


def _reduce_l2(site: Site, op: Builder) -> ir.Value:
    x = _floating(site)
    squares = op.Mul(x, x)
    axes, given = site.attribute("axes") if site.opset < 18 else None, site.input(1)
    keepdims = site.attribute("keepdims")
    if axes is not None and site.opset >= 13:
        given = op.constant(np.array(axes, dtype=np.int64))
    if site.opset >= 13:
        noop = site.attribute("noop_with_empty_axes") if site.opset >= 18 else None
        total = op.ReduceSum(squares, given, keepdims=keepdims, noop_with_empty_axes=noop)
    else:
        total = op.ReduceSum(squares, axes=axes, keepdims=keepdims)
    result: ir.Value = op.Sqrt(total)
    return result


def _remainder(site: Site, op: Builder) -> ir.Value:
    """The remainder of integers with the divisor's sign, computed from Div, which truncates."""
    a, b = site.input(0), site.input(1)
    if site.dtype(a) not in (ir.DataType.INT32, ir.DataType.INT64) or site.attribute("fmod"):
        raise CannotExpress("it is for integers with the divisor's sign only")
    assert a is not None
    rest = op.Sub(a, op.Mul(b, op.Div(a, b)))
    zero = op.like(0, a)
    # Engines without Mod have Sign only for floats.
    below = op.And(op.Less(rest, zero), op.Greater(b, zero))
    above = op.And(op.Greater(rest, zero), op.Less(b, zero))
    moved = op.Add(rest, b)
    result: ir.Value = op.Where(below, moved, op.Where(above, moved, rest))
    return result


def _instance_normalization(site: Site, op: Builder) -> ir.Value:
    x = _floating(site)
    rank = site.rank(x)
    axes = list(range(2, rank))
    centred = op.Sub(x, _mean(op, x, axes))
    epsilon = op.like(site.attribute("epsilon"), x)
    normal = op.Div(centred, op.Sqrt(op.Add(_mean(op, op.Mul(centred, centred), axes), epsilon)))
    sizes = op.constant(np.array([-1] + [1] * (rank - 2), dtype=np.int64))
    scale, bias = (op.Reshape(site.input(position), sizes) for position in (1, 2))
    result: ir.Value = op.Add(op.Mul(normal, scale), bias)
    return result


def _mean(op: Builder, value: ir.Value, axes: list[int]) -> ir.Value:
    if op.opset >= 18:
        return op.ReduceMean(value, op.constant(np.array(axes, dtype=np.int64)), keepdims=1)  # type: ignore[no-any-return]
    return op.ReduceMean(value, axes=axes, keepdims=1)  # type: ignore[no-any-return]


def _softmax(site: Site, op: Builder) -> ir.Value:
    """Softmax over the last axis, between two Transpose nodes."""
    x = _floating(site)
    rank = site.rank(x)
    axis = site.attribute("axis") % rank
    if site.opset < 13 or axis == rank - 1:
        raise CannotExpress("it is over the last axis already")
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    result: ir.Value = op.Transpose(op.Softmax(op.Transpose(x, perm=order), axis=-1), perm=order)
    return result


def _extreme(site: Site, op: Builder) -> ir.Value:
    """The elementwise maximum or minimum of all inputs, pair by pair; NaN if an element is NaN."""
    result = _floating(site)
    for position in range(1, len(site.node.inputs)):
        other = site.input(position)
        better = (op.Greater if site.node.op_type == "Max" else op.Less)(result, other)
        stays = op.Not(op.And(op.Not(better), op.Equal(result, result)))
        result = op.Where(stays, result, other)
    return result


def _roi_align(site: Site, op: Builder) -> ir.Value:
    """RoiAlign of boxes that are scaled before it: TVM subtracts the half pixel first and scales then."""
    boxes = _floating(site, 1)
    scaled = op.Mul(boxes, op.like(site.attribute("spatial_scale"), boxes))
    result: ir.Value = site.again(site.input(0), scaled, site.input(2), spatial_scale=1.0)
    return result


def _or(site: Site, op: Builder) -> ir.Value:
    a, b = site.input(0), site.input(1)
    result: ir.Value = op.Not(op.And(op.Not(a), op.Not(b)))
    return result


_WAYS: dict[str, Callable[[Site, Builder], ir.Value]] = {
    "Abs": _abs,
    "ArgMax": _place_of_extreme,
    "ArgMin": _place_of_extreme,
    "InstanceNormalization": _instance_normalization,
    "Max": _extreme,
    "Min": _extreme,
    "Mod": _remainder,
    "Or": _or,
    "Reciprocal": _reciprocal,
    "ReduceL2": _reduce_l2,
    "RoiAlign": _roi_align,
    "Round": _round,
    "Softmax": _softmax,
    "Softplus": _softplus,
}
