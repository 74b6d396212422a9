"""Link 3: whether the installed ncnn computes a node.

There is no list of what pnnx reads, and it silently converts some nodes wrongly: a reduction over one axis loses the
axis, and integers are added as if their bits were floats. So each distinct node is converted alone, its layers are
looked up in ncnn, and it is run; its results must be those of the standard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opbridge.engines.base import RefusalKind
from opbridge.engines.ncnn.carried import CARRIED
from opbridge.engines.refusals import Reason, version_problem
from opbridge.engines.trial import TrialSupport, has_subgraph

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["NodeSupport"]

_LARGEST_RANK = 5
"""ncnn's four dimensions and the batch."""


class NodeSupport(TrialSupport):
    """Asks ncnn.

    Args:
        version: The version of ncnn.
        newest_opset: The newest version of the standard domain that pnnx reads.
    """

    def __init__(self, version: str, newest_opset: int) -> None:
        super().__init__(f"ncnn {version}", "ncnn")
        self._newest_opset = newest_opset

    def known_reason(self, node: ir.Node, opset: int) -> Reason | None:
        """See the base class."""
        problem = version_problem(self.engine, self._newest_opset, node.op_type, opset)
        if problem is not None:
            return problem
        if has_subgraph(node):
            return Reason(f"{self.engine} has no control flow")
        for value in (*node.inputs, *node.outputs):
            if value is None or value.dtype is None or value.name == "":
                continue
            dtype = "str" if value.dtype.is_string() else str(value.dtype.numpy().name)
            if dtype not in CARRIED:
                return Reason(f"{self.engine} computes in float32, not in {dtype}", RefusalKind.DTYPE)
            if value.shape is not None and len(value.shape) > _LARGEST_RANK:
                text = f"{self.engine} takes 4 dimensions and a batch, not rank {len(value.shape)}"
                return Reason(text, RefusalKind.RANK)
        return None

    def question(self, node: ir.Node, opset_imports: Mapping[str, int]) -> onnx.ModelProto | None:
        """See the base class. pnnx folds nodes without inputs and removes Identity, so these have no question."""
        model = super().question(node, opset_imports)
        return None if model is None or not model.graph.input or node.op_type == "Identity" else model
