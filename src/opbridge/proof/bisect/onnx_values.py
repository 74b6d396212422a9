"""The intermediate values of an original ONNX model, with which those of an engine's model are compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping

import numpy as np

from opbridge.errors import OpbridgeError
from opbridge.onnx_model.names import describe_operator
from opbridge.proof.bisect.intermediates import Described, Intermediate, Size, portions
from opbridge.proof.bisect.intermediates_engine import EngineModel
from opbridge.proof.verify.compare import is_floating
from opbridge.proof.verify.original_runs import OriginalModel, believed, widened
from opbridge.proof.verify.perturbed import perturbed_feeds
from opbridge.proof.verify.widened_model import longest_sum, random_values, widened_model
from opbridge.torch_graph.sources import source_of_stack_trace

__all__ = ["OriginalValues"]

Feeds = Mapping[str, np.ndarray]


class OriginalValues:
    """The values of an original model on one case. A context manager.

    A value of the engine's model corresponds to the original's value of the same name, because passes keep names.

    Args:
        original: The model, and the engines that run it.
        feeds: The case's inputs.
        seed: The seed of perturbed inputs.
        most_bytes: The number of bytes of values to hold at a time; :meth:`sizes` determines the sizes.
    """

    def __init__(self, original: OriginalModel, feeds: Feeds, *, seed: int, most_bytes: int) -> None:
        self._stack = contextlib.ExitStack()
        self._own = self._stack.enter_context(EngineModel(original.model, original.own.load))
        self._float64: EngineModel | None = None
        if original.float64 is not None:
            float64 = EngineModel(widened_model(original.model), original.float64.load)
            self._float64 = self._stack.enter_context(float64)
        self._feeds = feeds
        self._seed = seed
        self._most_bytes = most_bytes
        self._nbytes: dict[str, int] = {}
        self._random = random_values(original.model)
        self.longest_sum = longest_sum(original.model)

    def __enter__(self) -> OriginalValues:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def run_seconds(self) -> float:
        """The time spent in runs of the original."""
        return self._own.run_seconds + (0.0 if self._float64 is None else self._float64.run_seconds)

    @property
    def names(self) -> Collection[str]:
        """The names of the original's values."""
        return self._own.values

    def visit(self, names: Collection[str], see: Callable[[str, Intermediate], None]) -> None:
        """Run the original in both types, and pass the values of these names to ``see``."""
        in_order = [name for name in self._own.values if name in names]
        sizes = {name: self._nbytes.get(name, 0) for name in in_order}
        for portion in portions(in_order, sizes, self._most_bytes):
            own = self.own(portion)
            float64 = self._run_float64([name for name in portion if is_floating(own[name].dtype)])
            for name in portion:
                see(name, Intermediate(own[name], _float64(own[name], float64.get(name)), name in self._random))

    def _run_float64(self, names: list[str]) -> Feeds:
        if self._float64 is None or not names:
            return {}
        try:
            return self._float64.run(names, {name: widened(array) for name, array in self._feeds.items()})
        except OpbridgeError:
            # The whole model ran, but not this part, which is therefore compared only in the original's own types.
            return {}

    def own(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """Run the original in its own types."""
        return self._own.run(list(names), self._feeds) if names else {}

    def sizes(self, names: Collection[str]) -> dict[str, Size]:
        """The sizes of the values of these names; a run of the original counts their elements."""
        counts = self._own.count_elements(list(names), self._feeds)
        types = {name: self._own.element_type(name) for name in counts}
        found = {
            name: Size(dtype, count * dtype.itemsize)
            for name, count in counts.items()
            if (dtype := types[name]) is not None
        }
        self._nbytes.update({name: size.nbytes for name, size in found.items()})
        return found

    def nearby(self, name: str) -> list[np.ndarray]:
        """The original's value on perturbed inputs."""
        found = []
        for feeds in perturbed_feeds(self._feeds, self._seed):
            with contextlib.suppress(OpbridgeError):
                found.append(self._own.run([name], feeds)[name])
        return found

    def is_near_tie(self, name: str, result: np.ndarray) -> bool:
        """False: the margins of decisions inside an ONNX model are not known."""
        return False

    def describe(self, name: str) -> Described:
        """The node of the original, and the user's line if the exporter recorded it."""
        if name not in self._own.values:
            return Described()
        node = self._own.node(name)
        source = source_of_stack_trace(node.metadata_props.get("pkg.torch.onnx.stack_trace"))
        target = describe_operator(node.domain, node.op_type)
        return Described(target, str(node.name or ""), str(source) if source else "")


def _float64(own: np.ndarray, float64: np.ndarray | None) -> np.ndarray | None:
    if float64 is None or float64.shape != own.shape:
        return None
    own64, other64 = own.astype(np.float64), np.asarray(float64, np.float64)
    found: np.ndarray = np.where(believed(own64, other64, own.dtype), other64, own64)
    return found
