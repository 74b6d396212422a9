"""Models through capture, plan, translate, adapt and probe in memory, and through ONNX Runtime, for tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import torch

from opbridge.capture.capture import Captured, capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.nan import EXACT, Nan
from opbridge.catalog.declare.spec import OpSpec
from opbridge.engines import get
from opbridge.engines.base import Engine, Refusal
from opbridge.engines.versions import Versions
from opbridge.ladder.climb import Climbed, climb


@dataclasses.dataclass(frozen=True)
class Trip:
    """A model on its way: as captured, as translated."""

    captured: Captured
    climbed: Climbed

    @property
    def proto(self) -> onnx.ModelProto:
        (model,) = self.climbed.models.values()
        return ir.to_proto(model)

    @property
    def op_types(self) -> list[str]:
        """The operators of the graph in order, "domain::Op" outside the standard domain."""
        return [f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in self.proto.graph.node]

    def rung(self, target: str) -> str:
        return next(step.rung for step in self.climbed.steps if step.target == target)

    def run(self, *arrays: Any) -> list[np.ndarray]:
        """The outputs of ONNX Runtime for these inputs."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            self.proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [value.name for value in session.get_inputs()]
        feeds = {
            n: a.detach().numpy() if isinstance(a, torch.Tensor) else np.asarray(a)
            for n, a in zip(names, arrays, strict=True)
        }
        return session.run(None, feeds)

    def check(self, *inputs: Any, **tolerances: float) -> None:
        """Compare with PyTorch on these inputs: dtypes, shapes and values."""
        with torch.no_grad():
            expected = self.captured.module(*inputs)
        leaves = [v for v in torch.utils._pytree.tree_leaves(expected) if isinstance(v, torch.Tensor)]
        tensors = [v for v in torch.utils._pytree.tree_leaves(inputs) if v is not None]
        results = self.run(*tensors)
        assert len(results) == len(leaves)
        for result, leaf in zip(results, leaves, strict=True):
            assert result.dtype == leaf.numpy().dtype
            assert result.shape == tuple(leaf.shape)
            np.testing.assert_allclose(result, leaf.numpy(), **{"rtol": 1e-5, "atol": 1e-5, **tolerances})


def catalog(*specs: OpSpec, builtin: bool = True, nan: Nan = EXACT) -> Catalog:
    """The mappings of opbridge, and of ``specs`` at the user's level besides what is declared."""
    loaded = Catalog.load()
    return Catalog((*specs, *loaded.user), loaded.builtin if builtin else (), nan)


def travel(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    specs: Sequence[OpSpec] = (),
    engines: Sequence[Engine] | None = None,
    opset: int | str | None = None,
    ir_version: int | None = None,
    nan: Nan = EXACT,
    **options: Any,
) -> Trip:
    """Bring a model (or a function) to ONNX; ``options`` are those of ``capture``."""
    known = catalog(*specs, nan=nan)
    captured = capture(model, args, kwargs, rewrites=known.rewrites(), **options)
    climbed = climb(captured, known, engines or [get("onnxruntime")], Versions.of(opset, ir_version))
    return Trip(captured, climbed)


class PickyEngine(Engine):
    """ONNX Runtime, but for some operators that it refuses, up to some opset."""

    name = "picky"
    package = "onnxruntime"

    def __init__(self, *refused: str, below: int = 10_000) -> None:
        self._refused = refused
        self._below = below
        self._engine = get("onnxruntime")

    @property
    def version(self) -> str:
        return self._engine.version

    @property
    def newest_opset(self) -> int:
        return self._engine.newest_opset

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        if node.op_type in self._refused and not node.domain and opset_imports[""] < self._below:
            return Refusal(node.name or "", f"ai.onnx::{node.op_type}", "it is on the list of this test")
        return self._engine.supports(node, opset_imports)

    def load(self, path: Any, *, threads: Any = None, providers: Any = None, libraries: Any = ()) -> Any:
        return self._engine.load(path, threads=threads, providers=providers, libraries=libraries)
