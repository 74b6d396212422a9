"""Einsum: new in opset 12."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder
from opbridge.onnx_model.opsets.dynamic_shapes import squeeze, unsqueeze
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("Einsum", version=12)
def products(site: Site) -> None:
    """The node becomes matrix products, or products and sums."""
    dtype, wide = site.dtype(site.input(0)), _summable(site.dtype(site.input(0)))
    terms, result = _labels(site)
    values = []
    for labels, value in zip(terms, site.node.inputs, strict=True):
        values.append(_without_repeats(site, labels, site.op.cast(value, wide)))
    labels, value = values[0]
    for position, (other_labels, other) in enumerate(values[1:], start=1):
        later = set(result).union(*(names for names, _ in values[position + 1 :]))
        labels, value = _product(site, (labels, value), (other_labels, other), later)
    labels, value = _kept(site, labels, value, result)
    if set(labels) != set(result):
        raise CannotExpress("a label of its result is in none of its inputs")
    order = [labels.index(label) for label in result]
    if order != sorted(order):
        value = site.op.Transpose(value, perm=order)
    site.replace(site.op.cast(value, dtype))


def _summable(dtype: ir.DataType) -> ir.DataType:
    return ir.DataType.INT32 if dtype.is_integer() and dtype.bitwidth < 32 else dtype


def _labels(site: Site) -> tuple[list[list[str]], list[str]]:
    """The labels of the axes of each input and of the result; an ellipsis is replaced by new labels."""
    left, arrow, right = site.attribute("equation").replace(" ", "").partition("->")
    texts = left.split(",")
    wide = 0
    for text, value in zip(texts, site.node.inputs, strict=True):
        if "..." in text:
            wide = max(wide, site.rank(value, "neither are the axes of its ellipsis") - len(text.replace("...", "")))
    if not arrow:
        letters = sorted({letter for letter in left if letter.isalpha() and left.count(letter) == 1})
        right = ("..." if "..." in left else "") + "".join(letters)

    def split(text: str, number: int) -> list[str]:
        before, dots, after = text.partition("...")
        return [*before, *([f".{wide - number + i}" for i in range(number)] if dots else []), *after]

    counts = [site.rank(value, "neither are its axes") - len(text.replace("...", ""))
              for text, value in zip(texts, site.node.inputs, strict=True)]  # fmt: skip
    return [split(text, count) for text, count in zip(texts, counts, strict=True)], split(right, wide)


def _without_repeats(site: Site, labels: list[str], value: ir.Value) -> tuple[list[str], ir.Value]:
    """The diagonal of axes with the same label: off-diagonal elements are zeroed, and one of the axes is summed."""
    op = site.op
    labels = list(labels)
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            size = op.Gather(op.Shape(value), op.constant(np.array(first)), axis=0)
            numbers = op.Range(op.constant(np.array(0)), size, op.constant(np.array(1)))
            row, column = ([-1 if place == axis else 1 for place in range(len(labels))] for axis in (first, second))
            same = op.Equal(op.Reshape(numbers, op.constant(np.array(row))),
                            op.Reshape(numbers, op.constant(np.array(column))))  # fmt: skip
            value = op.make("ReduceSum", op.Where(same, value, op.like(0, value)), axes=[second], keepdims=0)
            del labels[second]
    return labels, value


def _product(
    site: Site, one: tuple[list[str], ir.Value], other: tuple[list[str], ir.Value], later: set[str]
) -> tuple[list[str], ir.Value]:
    """The product of two inputs, summed over the common labels that are not needed later."""
    op = site.op
    (left, x), (right, y) = one, other
    shared = [label for label in left if label in right and label not in later]
    if shared and not any(label.startswith(".") for label in (*left, *right)):
        return _matrix_product(site, one, other, later)
    labels = [*left, *(label for label in right if label not in left)]
    return _kept(site, labels, op.Mul(_aligned(site, left, x, labels), _aligned(site, right, y, labels)), later)


def _aligned(site: Site, own: list[str], value: ir.Value, labels: list[str]) -> ir.Value:
    """The value with an axis for each label, of size 1 for missing labels."""
    order = sorted(range(len(own)), key=lambda place: labels.index(own[place]))
    if order != sorted(order):
        value = site.op.Transpose(value, perm=order)
    return unsqueeze(site.op, value, [place for place, label in enumerate(labels) if label not in own])


def _matrix_product(
    site: Site, one: tuple[list[str], ir.Value], other: tuple[list[str], ir.Value], later: set[str]
) -> tuple[list[str], ir.Value]:
    """Flatten the axes to a batch, rows, columns, and the axis of summation."""
    op = site.op
    (left, x), (right, y) = one, other
    batch = [label for label in left if label in right and label in later]
    summed = [label for label in left if label in right and label not in later]
    rows = [label for label in left if label not in right]
    columns = [label for label in right if label not in left]
    sizes = {label: (value, names.index(label)) for names, value in (one, other) for label in names}

    def flat(own: list[str], value: ir.Value, groups: list[list[str]]) -> ir.Value:
        order = [own.index(label) for group in groups for label in group]
        if order != sorted(order):
            value = op.Transpose(value, perm=order)
        parts = [_size(op, group, sizes) for group in groups]
        result: ir.Value = op.Reshape(value, op.Concat(*parts, axis=0))
        return result

    product = op.MatMul(flat(left, x, [batch, rows, summed]), flat(right, y, [batch, summed, columns]))
    labels = [*batch, *rows, *columns]
    if not labels:
        return [], squeeze(op, product, [0, 1, 2])
    each = [_size(op, [label], sizes) for label in labels]
    value = op.Reshape(product, op.Concat(*each, axis=0) if len(each) > 1 else each[0])
    return _kept(site, labels, value, later)


def _size(op: Builder, group: list[str], sizes: dict[str, tuple[ir.Value, int]]) -> Any:
    """The product of the sizes of labels, as a tensor of rank 1."""
    total = op.constant(np.array([1]))
    for label in group:
        value, axis = sizes[label]
        total = op.Mul(total, op.Gather(op.Shape(value), op.constant(np.array([axis])), axis=0))
    return total


def _kept(site: Site, labels: list[str], value: ir.Value, needed: Collection[str]) -> tuple[list[str], ir.Value]:
    """The value summed over the labels that are not needed."""
    gone = [place for place, label in enumerate(labels) if label not in needed]
    if gone:
        value = site.op.make("ReduceSum", value, axes=gone, keepdims=0)
    return [label for label in labels if label in needed], value
