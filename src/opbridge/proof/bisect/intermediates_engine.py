"""Runs parts of an engine's model: any of its values can be outputs or inputs of a part, which is a separate model.

Each part is an ordinary model, so kernels, functions and subgraphs run as they do in the whole model. The engine may
optimize a model with other outputs differently, so a divergence can vanish when it is observed.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from opbridge.atomic import TemporaryFolder
from opbridge.engines.base import Engine, Session
from opbridge.engines.process.isolation import IsolatedSession, compile_isolated
from opbridge.onnx_model.infer import fill_types
from opbridge.onnx_model.read import read_model
from opbridge.onnx_model.write import save_model
from opbridge.surgery.verbs.extract import drop_functions

__all__ = ["EngineModel", "loader", "marked_model"]

Loader = Callable[[Path], Session]


def loader(engine: Engine, libraries: Sequence[Path] = ()) -> Loader:
    """A function that loads a model file in a child process; an engine that compiles ahead of time does this first."""

    def load(file: Path) -> Session:
        compile_isolated(engine, file, libraries)
        return IsolatedSession(engine.name, file, libraries=libraries)

    return load


def marked_model(
    model: ir.Model, marked: Sequence[str], given: Mapping[str, np.ndarray] | None = None
) -> tuple[ir.Model, dict[str, str]]:
    """The part of a model that computes some of its values.

    Args:
        model: The model, which is not changed; its weights are shared with the result.
        marked: The names of the values that become the outputs. They are results of nodes of the main graph.
        given: Values that later nodes read from an input instead; only the types of the arrays are used.

    Returns:
        The part, and the names of the inputs that replace the values in ``given``. A value may be in both: it is then
        computed, and later nodes read the input.
    """
    part = model.clone()
    graph = part.graph
    values = {str(value.name): value for node in graph for value in node.outputs}
    taken = set(values) | set(graph.initializers) | {str(value.name) for value in graph.inputs}
    stands_for: dict[str, str] = {}
    for name, array in (given or {}).items():
        stands_for[name] = _fresh(f"{name}.given", taken)
        _read_from_input(graph, values[name], stands_for[name], array)
    graph.outputs[:] = [values[name] for name in marked]
    RemoveUnusedNodesPass()(part)
    drop_functions(part)
    kept = [value for value in graph.inputs if value.uses() or value in graph.outputs]
    graph.inputs[:] = kept
    names = {value.name for value in kept}
    return part, {name: stand_in for name, stand_in in stands_for.items() if stand_in in names}


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _read_from_input(graph: ir.Graph, value: ir.Value, name: str, array: np.ndarray) -> None:
    stated = list(value.shape) if value.shape is not None and len(value.shape) == array.ndim else [None] * array.ndim
    # The engine determines the size of a symbol, and may determine it wrongly.
    shape = [size if size == actual else None for size, actual in zip(stated, array.shape, strict=True)]
    dtype = value.dtype or ir.DataType.from_numpy(array.dtype)
    stand_in = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
    for node, index in tuple(value.uses()):
        node.replace_input_with(index, stand_in)
    graph.inputs.append(stand_in)


class EngineModel:
    """An engine's model, which can be run in parts. A context manager.

    Args:
        model: The model, or its file.
        load: Loads a model file in the engine; see :func:`loader`.

    Attributes:
        runs: The number of runs of the engine.
        run_seconds: The time spent in the engine, loading included.
    """

    def __init__(self, model: Path | ir.Model, load: Loader) -> None:
        self._load = load
        self._model = model if isinstance(model, ir.Model) else read_model(model)
        fill_types(self._model)
        self._folder = TemporaryFolder()
        self._nodes = list(self._model.graph)
        self._depths = {node: depth for depth, node in enumerate(self._nodes)}
        self._producers = {
            str(value.name): node for node in self._nodes for value in node.outputs if value.name and _is_tensor(value)
        }
        self._uses = {node: frozenset(_read_by(node)) for node in self._nodes}
        self.runs = 0
        self.run_seconds = 0.0

    def __enter__(self) -> EngineModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    @property
    def depth(self) -> int:
        """The number of nodes of the main graph."""
        return len(self._nodes)

    @property
    def weight_bytes(self) -> int:
        """The bytes of the model's weights."""
        tensors = (value.const_value for value in self._model.graph.initializers.values())
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)

    @property
    def values(self) -> Collection[str]:
        """The names of the tensors that nodes of the main graph compute, in order."""
        return self._producers.keys()

    def node(self, value: str) -> ir.Node:
        """The node that computes a value."""
        return self._producers[value]

    def depth_of(self, value: str) -> int:
        """The position of the node that computes a value."""
        return self._depths[self._producers[value]]

    def element_type(self, value: str) -> np.dtype | None:
        """The element type that the model states for a value."""
        found = next(output for output in self.node(value).outputs if output.name == value).dtype
        return None if found is None or found is ir.DataType.STRING else found.numpy()

    def ancestors(self, values: Iterable[str]) -> set[str]:
        """The values from which some values are computed; one of these is included only if another depends on it."""
        return {name for node in self._before(values, ()) for name in self._inputs_of(node)}

    def segment(self, value: str, ends: Collection[str]) -> tuple[list[ir.Node], set[str]]:
        """The nodes, in order, that compute a value from the nearest of ``ends``, and these ends."""
        others = set(ends) - {value}
        nodes = sorted(self._before([value], others), key=self._depths.__getitem__)
        return nodes, {name for node in nodes for name in self._inputs_of(node) if name in others}

    def _before(self, values: Iterable[str], ends: Collection[str]) -> set[ir.Node]:
        """The nodes that compute values from the inputs and ``ends``."""
        found: set[ir.Node] = set()
        waiting = [self._producers[name] for name in values]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += [self._producers[name] for name in self._inputs_of(node) if name not in ends]
        return found

    def _inputs_of(self, node: ir.Node) -> list[str]:
        return [str(value.name) for value in self._uses[node] if value.name in self._producers]

    def run(
        self, marked: Sequence[str], feeds: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray] | None = None
    ) -> dict[str, np.ndarray]:
        """Compute some values of the model.

        Args:
            marked: The values, by name.
            feeds: The model's inputs.
            given: Values that later nodes read instead of the engine's own results.

        Raises:
            EngineError: The engine refuses the part, or fails.
        """
        return self.run_twice(marked, feeds, given, times=1)[0]

    def run_twice(
        self,
        marked: Sequence[str],
        feeds: Mapping[str, np.ndarray],
        given: Mapping[str, np.ndarray] | None = None,
        times: int = 2,
    ) -> list[dict[str, np.ndarray]]:
        """Compute the same values in several runs of one session."""
        part, stand_ins = marked_model(self._model, marked, given)
        everything = {**feeds, **{stand_in: (given or {})[name] for name, stand_in in stand_ins.items()}}
        with self._loaded(part) as session:
            return [self._run(session, marked, everything) for _ in range(times)]

    def count_elements(self, marked: Sequence[str], feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
        """The number of elements of some values of the model, by one run that returns only these numbers.

        Raises:
            EngineError: The engine refuses the part, or fails.
        """
        part, _ = marked_model(self._model, marked)
        counts = [ir.node("Size", [value]) for value in part.graph.outputs]
        part.graph.extend(counts)
        for number, node in enumerate(counts):
            node.outputs[0].name = f"opbridge.size.{number}"
            node.outputs[0].type = ir.TensorType(ir.DataType.INT64)
            node.outputs[0].shape = ir.Shape(())
        part.graph.outputs[:] = [node.outputs[0] for node in counts]
        with self._loaded(part) as session:
            return {name: int(count) for name, count in self._run(session, marked, feeds).items()}

    @contextlib.contextmanager
    def _loaded(self, part: ir.Model) -> Iterator[Session]:
        started = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
                # Engines can map weights from a separate file; weights in the model's file would be copied.
                save_model(part, Path(folder), name="part.onnx", external_data=True)
                session = self._load(Path(folder) / "part.onnx")
                try:
                    yield session
                finally:
                    _close(session)
        finally:
            self.run_seconds += time.perf_counter() - started

    def _run(self, session: Session, marked: Sequence[str], feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.runs += 1
        results = session.run({spec.name: feeds[spec.name] for spec in session.inputs})
        return dict(zip(marked, results.values(), strict=True))


def _close(session: Any) -> None:
    close = getattr(session, "close", None)
    if close is not None:
        close()


def _is_tensor(value: ir.Value) -> bool:
    return value.type is None or isinstance(value.type, ir.TensorType)


def _read_by(node: ir.Node) -> Iterable[ir.Value]:
    """The values that a node and the nodes of its subgraphs read."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        if not attribute.is_ref() and attribute.type is ir.AttributeType.GRAPH:
            for inner in attribute.as_graph().all_nodes():
                yield from (value for value in inner.inputs if value is not None)
