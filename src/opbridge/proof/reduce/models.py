"""Finds the smallest part of an ONNX model on which an engine still fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedFunctionsPass, RemoveUnusedNodesPass, RemoveUnusedOpsetsPass

from opbridge.atomic import TemporaryFolder
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.engines.process.limits import Limits
from opbridge.errors import InputError, OpbridgeError
from opbridge.onnx_model.infer import fill_types
from opbridge.onnx_model.write import save_model
from opbridge.proof.compare.sides import ModelSide
from opbridge.proof.reduce.minimise import minimise
from opbridge.proof.reduce.problem import Feeds, Problem, evaluate, part_of
from opbridge.proof.reduce.shrink import shrink
from opbridge.proof.reduce.trials import Clock, EngineTrials, Tried
from opbridge.proof.verify.onnx_inputs import OnnxInputs, OnnxSizes
from opbridge.proof.verify.verification import DEFAULT_SEED

__all__ = ["failing_case", "nothing_fails", "reduce_model"]

_MOST_TRIALS = 8


def failing_case(
    side: ModelSide, trials: EngineTrials, inputs: Sequence[Feeds] | None, seed: int | None
) -> tuple[Problem, Tried] | None:
    """Find inputs on which the engine fails, with the failure; None if all tried inputs pass.

    Raises:
        InputError: No inputs can be created.
    """
    model = side.graph()
    fill_types(model)
    for feeds in _cases(model, DEFAULT_SEED if seed is None else seed) if inputs is None else inputs:
        problem = Problem(model, feeds)
        tried = trials.run(problem)
        if tried.failure is not None:
            return problem, tried
    return None


def _cases(model: ir.Model, seed: int) -> Iterator[Feeds]:
    """Fresh inputs at several sizes that the evaluator accepts; if it accepts none, the first ones tried."""
    inputs = OnnxInputs(model)
    tried = 0
    first: Feeds | None = None
    for sizes in inputs.first_sizes():
        for scale in inputs.scales():
            feeds = inputs.feeds(sizes, seed, scale)
            first = first or feeds
            tried += 1
            if evaluate(model, feeds) is not None:
                yield feeds
                for number, direction in enumerate((1, -1), 1):
                    for other in OnnxSizes(sizes).others(direction, ()) if sizes else ():
                        yield inputs.feeds(other, seed + number, scale)
                        break
                return
            if tried >= _MOST_TRIALS:
                break
        if tried >= _MOST_TRIALS:
            break
    if first is not None:
        yield first


def reduce_model(
    problem: Problem, tried: Tried, side: ModelSide, trials: EngineTrials, clock: Clock
) -> tuple[Problem, Tried]:
    """Find the smallest part that fails in the same way, with its failure.

    Args:
        problem: The whole model with its inputs.
        tried: The failure of the model.
        side: The engine and its kernels.
        trials: Runs models on the engine.
        clock: The time limit of the search.
    """
    failure = tried.failure
    assert failure is not None
    standard = tried.expected is not None
    best = [(problem, tried)]

    def fails(candidate: Problem | None, expected: Feeds | None = None) -> bool:
        if candidate is None or clock.is_over or not candidate.nodes:
            return False
        result = trials.run(candidate, must_be_standard=standard, expected=expected)
        if failure.is_like(result.failure):
            best[0] = (candidate, result)
            return True
        return False

    values = _Recorded(problem, side)

    def part_fails(nodes: Sequence[ir.Node]) -> bool:
        part = part_of(problem, nodes, values)
        # A part reads values of the whole model, so its expected results are those of the whole model.
        return fails(part, None if part is None or not standard else values.outputs(part))

    minimise(problem.nodes, part_fails)
    for candidate in _with_fewer_outputs(*best[0]):
        if fails(candidate):
            break
    shrink(best[0][0], fails)
    return best[0]


def _with_fewer_outputs(problem: Problem, tried: Tried) -> Iterator[Problem]:
    """The model with only one output, for each of its outputs; wrong outputs come first."""
    names = [str(value.name) for value in problem.model.graph.outputs]
    wrong = [item.output for item in tried.comparisons if not item.passed]
    if len(names) < 2:
        return
    for name in sorted(names, key=lambda name: name not in wrong):
        model = problem.model.clone()
        kept = [value for value in model.graph.outputs if value.name == name]
        model.graph.outputs[:] = kept
        RemoveUnusedNodesPass()(model)
        RemoveUnusedOpsetsPass()(model)
        unread = [value for value in model.graph.inputs if not value.uses()]
        for value in unread:
            model.graph.inputs.remove(value)
        read = {str(value.name) for value in model.graph.inputs}
        yield Problem(model, {key: array for key, array in problem.feeds.items() if key in read})


class _Recorded(Mapping[str, Any]):
    """The values of a model on its inputs: by the evaluator, or by the engine if the evaluator rejects the model."""

    def __init__(self, problem: Problem, side: ModelSide) -> None:
        self._problem = problem
        self._side = side
        names = [value.name for node in problem.nodes for value in node.outputs if value.name]
        self._evaluated: dict[str, Any] = evaluate(problem.model, problem.feeds, names) or {}
        self._known = dict(self._evaluated)

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = self._by_engine(name)
        if self._known[name] is None:
            raise KeyError(name)
        return self._known[name]

    def outputs(self, part: Problem) -> Feeds | None:
        """The outputs of a part of the model, by the evaluator; None if one is not available as an array."""
        found = {str(value.name): self._evaluated.get(str(value.name)) for value in part.model.graph.outputs}
        arrays = {name: array for name, array in found.items() if isinstance(array, np.ndarray)}
        return arrays if len(arrays) == len(found) else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def _by_engine(self, name: str) -> np.ndarray | None:
        """The value, if the engine can compute it before it fails."""
        graph = self._problem.model.graph
        values = [value for node in graph for value in node.outputs if value.name == name]
        inputs = [value for value in graph.inputs if value.name in self._problem.feeds]
        if not values:
            return None
        try:
            part = ir.convenience.extract(graph, inputs, values)
        except ValueError:
            return None
        functions = [function.clone() for function in self._problem.model.functions.values()]
        model = ir.Model(part, ir_version=self._problem.model.ir_version, functions=functions)
        part.opset_imports.update(graph.opset_imports)
        RemoveUnusedFunctionsPass()(model)
        RemoveUnusedOpsetsPass()(model)
        with TemporaryFolder() as folder:
            save_model(model, Path(folder))
            try:
                with IsolatedSession(
                    self._side.engine.name,
                    Path(folder) / "model.onnx",
                    libraries=self._side.libraries,
                    limits=Limits(60.0),
                ) as session:
                    return session.run(self._problem.feeds)[name]
            except OpbridgeError:
                return None


def nothing_fails(side: ModelSide, reference: Any) -> InputError:
    """The error to raise if there is no failure to reduce."""
    pytorch = " and what PyTorch computes" if reference is not None or side.from_torch else ""
    return InputError(
        f"Nothing fails: {side.label} computes what the standard specifies{pytorch}, on all inputs that were tried.",
        fix="pass the inputs on which it fails with --inputs FILE.npz, or another engine with --engine.",
    )
