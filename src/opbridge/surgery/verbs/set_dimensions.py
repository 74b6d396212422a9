"""Make dimensions of inputs dynamic, or fix them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.errors import EngineError, InputError, first_line
from opbridge.onnx_model.structure import did_you_mean
from opbridge.surgery.baked_sizes import Resized, repair
from opbridge.surgery.dimensions import Size, size_of, sizes_of, substituted, symbols_in
from opbridge.surgery.edited import Change, Edited, finished, model_of, values_of
from opbridge.surgery.running import loaded, random_feeds
from opbridge.surgery.shapes import infer_again, refine_shapes

__all__ = ["set_dimensions"]

_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43)


def set_dimensions(
    model: Any, sizes: Mapping[str, Mapping[int, Size]], *, engine: str | None = "onnxruntime"
) -> Edited:
    """Give dimensions of inputs a name, which makes them dynamic, or a fixed size.

    All shapes are updated, and so are constants that hold the old size (the target of a ``Reshape``, an expanded
    token). The result is then run at other sizes. If the dimension is the first of every input and occurs in every
    output, it is a batch dimension: each part of a batch must give the same results as when it is run alone.

    Args:
        model: A path, an ``ir.Model`` or a ``ModelProto``. It is not changed.
        sizes: The new name or size by input and axis: ``{"x": {0: "batch"}}``. Dimensions with the same name are equal.
        engine: The engine that runs the result; None to check the shapes only.

    Raises:
        InputError: An input or axis does not exist, or a node depends on the old size and can't be updated; the message
            names the node.
    """
    own = model_of(model)
    refine_shapes(own)
    changes: list[Change] = []
    resized: list[Resized] = []
    for name, axes in sizes.items():
        value = _input(own, name)
        for axis, size in axes.items():
            changes.append(_change(own, value, axis, size, resized))
    if resized:
        changes += _resize(own, resized)
        if engine is not None:
            changes.append(_prove(model_of(model), own, resized, engine))
    return finished(model, own, changes)


def _input(model: ir.Model, name: str) -> ir.Value:
    found = next((value for value in model.graph.inputs if value.name == name), None)
    if found is None:
        raise InputError(
            f"The model has no input {name!r}.", fix=did_you_mean(name, [str(v.name) for v in model.graph.inputs])
        )
    if found.shape is None:
        raise InputError(f"The rank of the input {name!r} is not known.", fix="export the model with shapes.")
    return found


def _change(model: ir.Model, value: ir.Value, axis: int, size: Size, resized: list[Resized]) -> Change:
    """Rename or fix a named dimension at once; add any other change to ``resized``."""
    stated = sizes_of(value) or ()
    if not -len(stated) <= axis < len(stated):
        raise InputError(f"The input {value.name!r} has {len(stated)} axes, and no axis {axis}.", fix="count from 0.")
    if isinstance(size, str) and not size.isidentifier():
        raise InputError(f"{size!r} is not a valid name of a dimension.", fix="use letters, digits and underscores.")
    if isinstance(size, int) and size < 1:
        raise InputError(f"A dimension can't have the size {size}.", fix="give a positive size, or a name.")
    axis %= len(stated)
    old = stated[axis]
    if isinstance(old, str) and old.isidentifier() and size is not None:
        for item in values_of(model):
            if any(old in symbols_in(other) for other in sizes_of(item) or ()):
                item.shape = ir.Shape([substituted(other, {old: size}) for other in sizes_of(item) or ()])
    elif isinstance(old, str):
        raise InputError(
            f"The axis {axis} of {value.name!r} is {old!r}, which follows from other dimensions.",
            fix="set those dimensions instead.",
        )
    elif old is None:
        value.shape = ir.Shape([size if position == axis else item for position, item in enumerate(stated)])
    elif old != size:
        resized.append(Resized(value, axis, old, size))
    return Change(f"the axis {axis} of {value.name!r} is {size!r} instead of {old!r}", (str(value.name),))


def _resize(model: ir.Model, resized: Sequence[Resized]) -> list[Change]:
    """Update the whole model, first with numbers for all sizes, then with the names restored."""
    inputs = {value: sizes_of(value) for value in model.graph.inputs}
    outputs = list(model.graph.outputs)
    names = sorted({name for sizes in inputs.values() for size in sizes or () for name in symbols_in(size)})
    names += list(dict.fromkeys(str(item.size) for item in resized if isinstance(item.size, str)))
    numbers = dict(zip(dict.fromkeys(names), _PRIMES * 4, strict=False))
    _set_inputs(model, {value: [size_of(size, numbers) for size in sizes or ()] for value, sizes in inputs.items()})
    _forget(model, outputs)
    infer_again(model)
    old = {value: sizes_of(value) for value in values_of(model)}
    changes = repair(
        model, [dataclasses.replace(item, number=size_of(item.size, numbers) or 0) for item in resized], old
    )
    _forget(model, outputs)
    infer_again(model)
    measured = {value: sizes_of(value) for value in values_of(model)}
    stated = {value: list(sizes or ()) for value, sizes in inputs.items()}
    for item in resized:
        stated[item.value][item.axis] = item.size
    _set_inputs(model, stated)
    _forget(model, model.graph.outputs)
    infer_again(model)
    for value, sizes in measured.items():
        _name_unknown(value, sizes or (), numbers)
    return changes


def _name_unknown(value: ir.Value, measured: Sequence[Size], numbers: Mapping[str, int]) -> None:
    """Restore sizes that inference lost from the sizes measured when all sizes were numbers."""
    sizes = sizes_of(value)
    if sizes is None or None not in sizes or len(sizes) != len(measured):
        return
    named: list[Size] = []
    for size, number in zip(sizes, measured, strict=True):
        name = next((n for n, prime in numbers.items() if isinstance(number, int) and number % prime == 0), None)
        if size is not None or name is None or not isinstance(number, int):
            named.append(size)
        else:
            factor = number // numbers[name]
            named.append(name if factor == 1 else f"{factor}*{name}")
    value.shape = ir.Shape(named)


def _set_inputs(model: ir.Model, sizes: Mapping[ir.Value, Sequence[Any]]) -> None:
    for value in model.graph.inputs:
        if value.shape is not None:
            value.shape = ir.Shape(sizes[value])


def _forget(model: ir.Model, outputs: Sequence[ir.Value]) -> None:
    for value in outputs:
        if value.producer() is not None:
            value.shape = None


def _prove(original: ir.Model, model: ir.Model, resized: Sequence[Resized], engine: str) -> Change:
    """Run the model at other sizes, and compare it with the original if the results must agree.

    Raises:
        InputError: The engine fails at another size, or a part of a batch gives other results than when run alone.
    """
    names = {str(item.size) for item in resized if isinstance(item.size, str)}
    shown = "at the new size" if not names else f"at other sizes of {', '.join(sorted(names))}"
    try:
        with loaded(original, engine) as before:
            before.run(random_feeds(original, {}, 0))
            for number in (3, 2):
                numbers = dict.fromkeys(names, number)
                feeds = random_feeds(model, numbers, number)
                try:
                    with loaded(model, engine) as after:
                        results = after.run(feeds)
                except EngineError as error:
                    raise InputError(
                        f"{engine} fails {shown}: {error.message}",
                        fix="the old size is a part of the model; export it with this dimension dynamic.",
                    ) from error
                if _is_batch(original, model, resized):
                    axes = {str(v.name): (sizes_of(v) or ()).index(resized[0].size) for v in model.graph.outputs}
                    _compare_parts(before, feeds, results, axes, resized[0].old)
    except EngineError as error:
        return Change(f"not run: {engine} does not take the model: {first_line(error)}")
    return Change(f"run in {engine} {shown}")


def _is_batch(original: ir.Model, model: ir.Model, resized: Sequence[Resized]) -> bool:
    size = resized[0].size
    alike = all(item.axis == 0 and item.old == 1 and item.size == size for item in resized)
    whole = {item.value.name for item in resized} == {value.name for value in original.graph.inputs}
    return alike and whole and all((sizes_of(value) or ()).count(size) == 1 for value in model.graph.outputs)


def _compare_parts(before: Any, feeds: Any, results: Any, axes: Mapping[str, int], old: int) -> None:
    for part in range(len(next(iter(feeds.values())))):
        expected = before.run({name: array[part : part + 1] for name, array in feeds.items()})
        for name, whole in expected.items():
            found = results[name].take([part], axes[name]).astype(np.float64)
            scale = float(np.abs(whole.astype(np.float64)).max(initial=1e-6))
            if not np.allclose(found, whole.astype(np.float64), rtol=1e-3, atol=1e-4 * scale, equal_nan=True):
                raise InputError(
                    f"The output {name!r} of one part of a batch depends on the other parts: the size {old} is a part "
                    "of the model.",
                    fix="export the model with this dimension dynamic.",
                )
