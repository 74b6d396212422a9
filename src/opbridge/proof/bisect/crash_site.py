"""Finds the node at which an engine crashes, hangs or runs out of memory, by running prefixes of the model.

This works for any engine. A prefix is the model up to one of its nodes; its outputs are the values that none of its
nodes reads. Each prefix is run in a new child process. The last node of the shortest prefix that ends like the whole
model is the one at fault.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from opbridge.atomic import TemporaryFolder
from opbridge.engines.process.crash import Crash
from opbridge.engines.process.isolation import IsolatedSession, SessionSettings
from opbridge.errors import EngineCrashError, OpbridgeError, first_line
from opbridge.onnx_model.infer import fill_types
from opbridge.onnx_model.names import describe_node, describe_operator
from opbridge.onnx_model.read import read_model
from opbridge.onnx_model.write import save_model

__all__ = ["CrashSites"]

_LEAST_SECONDS, _MOST_SECONDS = 5.0, 60.0
"""If a run did not end in time, the time limit of each prefix is a tenth of that time, within these bounds."""


@dataclasses.dataclass(frozen=True)
class _Cut:
    """A position at which the model can be cut: after its first ``count`` nodes.

    Attributes:
        count: The number of nodes in the prefix.
        ends: The values that nothing in the prefix reads.
    """

    count: int
    ends: tuple[ir.Value, ...]


class CrashSites:
    """Finds the nodes at which a session crashes. Later searches begin there: the next case often crashes there too.

    Args:
        line_of: Returns the user's line of a value of the model, by its name; empty if unknown.
    """

    def __init__(self, line_of: Callable[[str], str] = lambda value: "") -> None:
        self._line_of = line_of
        self._runs = 0
        self._last: int | None = None

    def locate(
        self, case: str, error: OpbridgeError, feeds: Mapping[str, np.ndarray] | None = None
    ) -> tuple[Crash, ...]:
        """The crash as data, with its node if that can be found; empty for an error that is not a crash.

        Args:
            case: The case on which the engine crashed; empty while loading.
            error: The exception that the session raised.
            feeds: The inputs of the run; None if the model was being loaded.
        """
        if not isinstance(error, EngineCrashError):
            return ()
        crash = Crash(case, error.cause, error.message, error.signal, error.details or "")
        settings = error.settings
        if not isinstance(settings, SessionSettings) or error.cause == "not started":
            return (crash,)
        if settings.path.suffix != ".onnx":
            return (dataclasses.replace(crash, detail="the engine's model is not an ONNX graph, so it can't be cut"),)
        self._runs = 0
        try:
            with TemporaryFolder() as folder:
                found = self._search(_quicker(settings, crash), crash, feeds, Path(folder))
        except (OpbridgeError, OSError, ValueError) as problem:
            found = dataclasses.replace(crash, detail=f"the search for the node failed: {first_line(problem)}")
        return (dataclasses.replace(found, runs=self._runs),)

    def _search(
        self, settings: SessionSettings, crash: Crash, feeds: Mapping[str, np.ndarray] | None, folder: Path
    ) -> Crash:
        if not self._ends_alike(settings, crash, feeds):
            return dataclasses.replace(crash, detail="a second run in a new process did not end in this way")
        model = read_model(settings.path)
        nodes = list(model.graph)
        fill_types(model)
        cuts = _cuts(model.graph, nodes)

        def ends_alike(position: int) -> bool:
            file = _write_prefix(model, cuts[position], folder)
            return self._ends_alike(dataclasses.replace(settings, path=file), crash, feeds)

        good, bad = self._bounds(len(cuts), ends_alike)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if ends_alike(middle) else (middle, bad)
        first = cuts[good].count if good >= 0 else 0
        if first == len(nodes):
            return dataclasses.replace(crash, detail="only the whole model ends in this way, and none of its parts")
        self._last = bad
        return self._named(crash, nodes[first : cuts[bad].count if bad < len(cuts) else len(nodes)])

    def _bounds(self, count: int, ends_alike: Callable[[int], bool]) -> tuple[int, int]:
        """A cut whose prefix runs (-1: the beginning), and a later one whose prefix ends like the model (or end)."""
        last = self._last
        if last is None or not 0 <= last < count:
            return -1, count
        if not ends_alike(last):
            return last, count
        return (last - 1, last) if last == 0 or not ends_alike(last - 1) else (-1, last - 1)

    def _named(self, crash: Crash, nodes: Sequence[ir.Node]) -> Crash:
        names = tuple(describe_node(node) for node in nodes)
        lines = (self._line_of(str(value.name)) for node in nodes for value in node.outputs)
        return dataclasses.replace(
            crash,
            node=names[0],
            operator=describe_operator(nodes[0].domain, nodes[0].op_type),
            between=names if len(names) > 1 else (),
            source=next(filter(None, lines), ""),
        )

    def _ends_alike(self, settings: SessionSettings, crash: Crash, feeds: Mapping[str, np.ndarray] | None) -> bool:
        """Whether a model's process ends as that of the whole model did."""
        self._runs += 1
        try:
            with IsolatedSession.of(settings) as session:
                if feeds is not None:
                    session.run({spec.name: feeds[spec.name] for spec in session.inputs})
        except EngineCrashError as error:
            return (error.cause, error.signal) == (crash.cause, crash.signal)
        except OpbridgeError:
            return False
        return False


def _quicker(settings: SessionSettings, crash: Crash) -> SessionSettings:
    """The settings with a shorter time limit, if the time ran out."""
    seconds = settings.limits.seconds
    if crash.cause != "out of time" or seconds is None:
        return settings
    limits = settings.limits.at_most(min(max(seconds / 10, _LEAST_SECONDS), _MOST_SECONDS))
    return dataclasses.replace(settings, limits=limits)


def _cuts(graph: ir.Graph, nodes: Sequence[ir.Node]) -> list[_Cut]:
    """All positions at which only tensors of known types cross the cut."""
    graph_outputs = set(graph.outputs)
    ends: dict[ir.Value, None] = {}
    cuts = []
    for position, node in enumerate(nodes):
        for value in _read_by(node):
            if value not in graph_outputs:
                ends.pop(value, None)
        ends |= dict.fromkeys(value for value in node.outputs if value.name)
        if ends and all(isinstance(value.type, ir.TensorType) for value in ends):
            cuts.append(_Cut(position + 1, tuple(ends)))
    return cuts


def _read_by(node: ir.Node) -> list[ir.Value]:
    """The values that a node and the nodes inside it read."""
    read = [value for value in node.inputs if value is not None]
    for attribute in node.attributes.values():
        graphs = [attribute.as_graph()] if attribute.type is ir.AttributeType.GRAPH else []
        for inner in (inner for graph in graphs for inner in graph.all_nodes()):
            read += [value for value in inner.inputs if value is not None]
    return read


def _write_prefix(model: ir.Model, cut: _Cut, folder: Path) -> Path:
    nodes = [node for _, node in zip(range(cut.count), model.graph, strict=False)]
    needed = {value for node in nodes for value in _read_by(node)}
    inputs = [value for value in model.graph.inputs if value in needed]
    graph = ir.convenience.extract(model.graph, inputs, list(cut.ends))
    graph.opset_imports.update(model.graph.opset_imports)
    prefix = ir.Model(
        graph, ir_version=model.ir_version, functions=[function.clone() for function in model.functions.values()]
    )
    save_model(prefix, folder, name="prefix.onnx")
    return folder / "prefix.onnx"
