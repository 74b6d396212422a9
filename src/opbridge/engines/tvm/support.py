"""Link 3: whether the installed TVM computes a node.

The frontend's table of converters lists the operators, but not which versions, types and attributes it supports: it
takes the nearest version. So each distinct node is compiled alone and run, and its results must be those of the
standard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opbridge.engines.refusals import UNKNOWN, Reason, version_problem
from opbridge.engines.trial import TrialSupport, has_subgraph
from opbridge.engines.tvm import native

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from opbridge.engines.base import Engine

__all__ = ["NodeSupport"]


class NodeSupport(TrialSupport):
    """Asks TVM.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(f"TVM {engine.version}", engine.name)
        self._engine = engine

    def known_reason(self, node: ir.Node, opset: int) -> Reason | None:
        """See the base class."""
        problem = version_problem(self.engine, self._engine.newest_opset, node.op_type, opset)
        if problem is None and node.op_type not in native.converted_operators():
            return UNKNOWN
        return problem or (_NO_SAMPLES if _may_have_no_samples(node) else None)

    def question(self, node: ir.Node, opset_imports: Mapping[str, int]) -> onnx.ModelProto | None:
        """See the base class. Nodes with subgraphs are left to the whole model."""
        return None if has_subgraph(node) else super().question(node, opset_imports)


_NO_SAMPLES = Reason("RoiAlign divides by the number of samples, which is zero for boxes without an area")


def _may_have_no_samples(node: ir.Node) -> bool:
    """Whether boxes may have no samples, which boxes that are made up for a question seldom show."""
    attributes = node.attributes
    mode = attributes.get_string("coordinate_transformation_mode", "half_pixel" if (node.version or 16) >= 16 else "")
    return node.op_type == "RoiAlign" and mode == "half_pixel" and attributes.get_int("sampling_ratio", 0) == 0
