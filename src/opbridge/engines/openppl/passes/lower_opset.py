"""For a model whose opset is newer than the kernels of some of its operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from opbridge.engines.openppl.listed import LISTED
from opbridge.engines.openppl.support import OLDEST_OPSET
from opbridge.engines.probe import probe
from opbridge.engines.versions import lowest_ir_version
from opbridge.onnx_model.adaptation import Adaptation, AdaptationResult
from opbridge.onnx_model.opsets import convert_opset
from opbridge.onnx_model.scopes import all_nodes

if TYPE_CHECKING:
    from opbridge.engines.base import Engine
    from opbridge.kernels.library import KernelOperator

__all__ = ["LowerOpsetPass"]

ORDER = 50


def for_engine(model: ir.Model, engine: Engine, kernels: Sequence[KernelOperator]) -> LowerOpsetPass | None:
    """For a model with an operator that OpenPPL takes only in older opsets."""
    opset = model.opset_imports.get("", 0)
    last = {LISTED[key][1] for node in all_nodes(model) if (key := ("", node.op_type)) in LISTED and not node.domain}
    older = sorted((n for n in last if OLDEST_OPSET <= n < opset), reverse=True)
    return LowerOpsetPass(engine, older) if older else None


class LowerOpsetPass(ir.passes.FunctionalPass):
    """Convert the model to the older opset at which the engine refuses the fewest nodes, if fewer than now.

    Args:
        engine: The engine that is asked about the converted models.
        opsets: The opsets to try, the newest first.
    """

    def __init__(self, engine: Engine, opsets: Sequence[int]) -> None:
        super().__init__()
        self._engine = engine
        self._opsets = opsets

    def call(self, model: ir.Model) -> AdaptationResult:
        """The converted model, or ``model`` itself."""
        fewest = len(probe(model, self._engine))
        result = AdaptationResult(model, False)
        for opset in self._opsets if fewest else ():
            converted = convert_opset(model, opset, ir_version=lowest_ir_version(opset))
            if converted.unexpressed:
                continue
            refused = len(probe(converted.model, self._engine))
            if refused < fewest:
                fewest = refused
                what = f"opset {model.opset_imports['']} becomes {opset}: OpenPPL takes more of its operators there"
                result = AdaptationResult(
                    converted.model, True, (Adaptation(what, (), opset=opset), *converted.changes)
                )
        return result
