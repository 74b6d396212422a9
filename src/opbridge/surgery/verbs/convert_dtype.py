"""Convert a model to float16, except for nodes that need float32 as shown by running both models."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.errors import EngineError, InputError, first_line
from opbridge.onnx_model.structure import did_you_mean
from opbridge.surgery.edited import Change, Edited, describe, finished, model_of
from opbridge.surgery.narrowing import Narrowed, narrow
from opbridge.surgery.rounding import rounded
from opbridge.surgery.running import Feeds, loaded, random_feeds
from opbridge.surgery.shapes import refine_shapes

__all__ = ["convert_dtype"]

_DTYPES = {"float16": ir.DataType.FLOAT16, "bfloat16": ir.DataType.BFLOAT16}
_ROUNDS = 24
_AT_ONCE = 64
"""The number of values that are compared in one run, and so held in memory at once."""


def convert_dtype(
    model: Any,
    dtype: str = "float16",
    *,
    keep_io: bool = False,
    tolerance: float = 0.01,
    inputs: Sequence[Feeds] | None = None,
    engine: str = "onnxruntime",
    seed: int = 0,
) -> Edited:
    """Convert a float32 model to a narrower type.

    The original is compared, on random inputs, with a model that rounds like the narrow model (engines may skip the
    rounding on a CPU). If the outputs differ, all values in between are compared. A node stays float32 if its results
    exceed the range of the type, or have errors that its inputs do not explain. This is repeated until the outputs
    agree; then the narrow model itself is run. There is no list of operators. Nodes with subgraphs and custom nodes
    stay float32.

    Args:
        model: A path, an ``ir.Model`` or a ``ModelProto``. It is not changed.
        dtype: ``"float16"`` or ``"bfloat16"``.
        keep_io: Whether inputs and outputs stay float32.
        tolerance: The largest error of an output, as a fraction of its largest magnitude.
        inputs: Inputs of the float32 model, by name, one mapping per case; by default two cases of random numbers.
        engine: The engine that runs both models.
        seed: The seed of the random inputs.

    Raises:
        InputError: The outputs do not agree, whichever nodes stay float32.
        EngineError: The engine can't run the original model.
    """
    if dtype not in _DTYPES:
        raise InputError(f"No conversion to {dtype!r} is known.", fix=did_you_mean(dtype, _DTYPES))
    own = model_of(model)
    refine_shapes(own)
    _name_nodes(own)
    cases = list(inputs) if inputs is not None else [random_feeds(own, {}, seed + case) for case in range(2)]
    _check_cases(own, cases)
    proof = _Proof(own, _DTYPES[dtype], cases, engine, tolerance)
    kept: dict[str, str] = {}
    for _ in range(_ROUNDS):
        narrowed = narrow(own, _DTYPES[dtype], frozenset(kept), keep_io=keep_io)
        verdict = proof.judge(narrowed)
        if verdict.passed:
            return finished(model, narrowed.model, _changes(own, narrowed, kept, verdict, dtype, engine))
        found = {name: reason for name, reason in verdict.blamed.items() if name not in kept}
        if not found:
            break
        kept.update(found)
    raise InputError(
        f"The output {verdict.output!r} is off by {verdict.error:.2g} of its largest magnitude in {dtype}, with "
        f"{len(kept)} nodes in float32; {tolerance:g} is allowed.",
        fix="allow more with tolerance, or pass inputs that are typical of the model.",
    )


def _check_cases(model: ir.Model, cases: Sequence[Feeds]) -> None:
    names = [str(value.name) for value in model.graph.inputs if value.const_value is None]
    if not cases:
        raise InputError("inputs is empty, so there is nothing to compare.", fix="pass one case, or leave it out.")
    for case in cases:
        if missing := [name for name in names if name not in case]:
            raise InputError(
                f"The inputs lack {missing[0]!r}, which the model takes.", fix=f"pass {', '.join(map(repr, names))}."
            )


def _name_nodes(model: ir.Model) -> None:
    names: set[str] = set()
    for number, node in enumerate(model.graph):
        if not node.name or node.name in names:
            node.name = f"{node.op_type}_{number}"
        names.add(node.name)


def _changes(
    model: ir.Model, narrowed: Narrowed, kept: Mapping[str, str], verdict: _Verdict, dtype: str, engine: str
) -> list[Change]:
    changes = [Change(f"{narrowed.count} nodes compute in {dtype}")]
    for name, reason in narrowed.fixed.items():
        changes.append(Change(f"stays float32: {reason}", (name,)))
    by_name = {describe(node): node for node in model.graph}
    for name, reason in kept.items():
        changes.append(Change(f"stays float32: {by_name[name].op_type} {reason}", (name,)))
    changes.append(Change(f"compared in {engine}: off by at most {verdict.error:.2g} of the largest magnitude"))
    return changes


@dataclasses.dataclass(frozen=True)
class _Verdict:
    """The result of a comparison: the worst output, and the nodes to keep in float32 with the reasons."""

    passed: bool
    output: str
    error: float
    blamed: Mapping[str, str]


class _Proof:
    """Compares narrow models with the original model."""

    def __init__(
        self, model: ir.Model, dtype: ir.DataType, cases: Sequence[Feeds], engine: str, tolerance: float
    ) -> None:
        self._model = model
        self._dtype = dtype
        self._cases = cases
        self._engine = engine
        self._tolerance = tolerance
        self._outputs = [str(value.name) for value in model.graph.outputs]
        self._inner = [
            str(value.name)
            for node in model.graph
            for value in node.outputs
            if value.dtype is ir.DataType.FLOAT and value.name and not value.is_graph_output()
        ]
        with loaded(model, engine) as session:
            self._expected = [session.run(_typed(session, case)) for case in cases]

    def judge(self, narrowed: Narrowed) -> _Verdict:
        """Compare the outputs; if an error is too large, find the nodes that cause it."""
        rounding, names = rounded(self._model, narrowed.narrow, self._dtype)
        errors = self._output_errors(rounding)
        if max(errors.values()) <= self._tolerance:
            errors = {name: max(error, errors[name]) for name, error in self._output_errors(narrowed.model).items()}
        worst = max(errors, key=lambda name: errors[name])
        if errors[worst] <= self._tolerance:
            return _Verdict(True, worst, errors[worst], {})
        return _Verdict(False, worst, errors[worst], self._blame(narrowed, rounding, names, errors))

    def _output_errors(self, model: ir.Model) -> dict[str, float]:
        try:
            with loaded(model, self._engine) as session:
                found = [session.run(_typed(session, case)) for case in self._cases]
        except EngineError as error:
            raise InputError(
                f"{self._engine} does not run the model in {self._dtype.name.lower()}: {first_line(error)}",
                fix="keep float32 for this engine, or name another with engine=.",
            ) from error
        return {
            name: max(_error(a[name], b[name]) for a, b in zip(self._expected, found, strict=True))
            for name in self._outputs
        }

    def _blame(
        self, narrowed: Narrowed, rounding: ir.Model, names: Mapping[str, str], outputs: Mapping[str, float]
    ) -> dict[str, str]:
        errors = {**self._inner_errors(rounding, names), **outputs}
        grown: list[tuple[float, str, str]] = []
        for node in self._model.graph:
            if node.name not in narrowed.narrow:
                continue
            after = max((errors.get(str(value.name), 0.0) for value in node.outputs), default=0.0)
            before = max((errors.get(str(value.name), 0.0) for value in node.inputs if value is not None), default=0.0)
            if np.isinf(after) and not np.isinf(before):
                grown.append((np.inf, str(node.name), "overflows"))
            elif np.isfinite(after) and after > self._tolerance / 4:
                grown.append((after / (before + _NOISE), str(node.name), f"makes an error of {after:.2g}"))
        if overflowing := [item for item in grown if np.isinf(item[0])]:
            return {name: reason for _, name, reason in overflowing}
        worst = sorted(grown, reverse=True)[: max(1, len(grown) // 10)]
        return {name: reason for _, name, reason in worst}

    def _inner_errors(self, rounding: ir.Model, shown: Mapping[str, str]) -> dict[str, float]:
        errors: dict[str, float] = {}
        inner = [name for name in self._inner if name in shown]
        for start in range(0, len(inner), _AT_ONCE):
            names = inner[start : start + _AT_ONCE]
            case = self._cases[0]
            with loaded(_showing(self._model, names), self._engine) as session:
                expected = session.run(_typed(session, case))
            with loaded(_showing(rounding, [shown[name] for name in names]), self._engine) as session:
                found = session.run(_typed(session, case))
            errors |= {name: _error(expected[name], found[shown[name]]) for name in names}
        return errors


_NOISE = 2.0**-10


def _showing(model: ir.Model, names: Sequence[str]) -> ir.Model:
    """The model with additional outputs."""
    copy: ir.Model = model.clone()
    wanted = set(names)
    for node in copy.graph:
        copy.graph.outputs.extend(
            value for value in node.outputs if value.name in wanted and not value.is_graph_output()
        )
    return copy


def _typed(session: Any, case: Feeds) -> dict[str, np.ndarray]:
    """The inputs in the types that the model expects."""
    try:
        return {spec.name: np.asarray(case[spec.name]).astype(np.dtype(spec.dtype)) for spec in session.inputs}
    except ValueError as error:
        types = ", ".join(f"{spec.name!r} {spec.dtype}" for spec in session.inputs)
        fix = f"pass arrays of these types: {types}."
        raise InputError(f"The inputs are not numbers: {error}.", fix=fix) from error


def _error(expected: np.ndarray, found: np.ndarray) -> float:
    """The largest difference, as a fraction of the largest magnitude; infinite if finite elements don't match."""
    one, other = expected.astype(np.float64), found.astype(np.float64)
    if not one.size:
        return 0.0
    finite = np.isfinite(one)
    if (finite != np.isfinite(other)).any():
        return float("inf")
    scale = np.abs(one[finite]).max(initial=0.0)
    difference = np.abs(one[finite] - other[finite]).max(initial=0.0)
    return float(difference / scale) if scale else float(difference)
