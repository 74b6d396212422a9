"""Link 3: whether the installed TVM computes a node.

The frontend's table of converters says which operators it knows, and nothing of versions, types and attributes: it
takes the nearest version there is. So each distinct node is compiled alone and run, and its results must be those of
the standard.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from opbridge.engines.base import IR_VERSION, Refusal
from opbridge.engines.refusals import describe_node, describe_operator, unknown_operator
from opbridge.engines.trial import difference, feeds_of, has_subgraph, lone_model, standard_results, unavailable
from opbridge.engines.tvm import native
from opbridge.errors import EngineError, EngineNotInstalledError, InputError

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from opbridge.engines.base import Engine

__all__ = ["NodeSupport"]


class NodeSupport:
    """Answers, remembered per distinct question.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._answers: dict[bytes, str | None] = {}

    def ask(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """See :meth:`Engine.supports <opbridge.engines.base.Engine.supports>`."""
        if node.domain:
            return unknown_operator(node)
        reason = self._known_reason(node, opset_imports)
        if reason is None:
            # What can't be tried alone shows when the whole model is compiled.
            model = None if has_subgraph(node) else lone_model(node, opset_imports, IR_VERSION)
            if model is None:
                return None
            key = model.SerializeToString(deterministic=True)
            if key not in self._answers:
                self._answers[key] = self._try(model)
            reason = self._answers[key]
        operator = describe_operator(node.domain, node.op_type)
        return None if reason is None else Refusal(describe_node(node), operator, reason)

    def _known_reason(self, node: ir.Node, opset_imports: Mapping[str, int]) -> str | None:
        """What needs no trial."""
        opset = node.version or opset_imports.get("", 1)
        if opset > self._engine.newest_opset:
            return f"TVM {self._engine.version} takes opsets up to {self._engine.newest_opset}, not {opset}"
        absent = unavailable(node.op_type, opset)
        if absent is None and node.op_type not in native.converted_operators():
            return f"no kernel for {describe_operator('', node.op_type)}"
        return absent

    def _try(self, model: onnx.ModelProto) -> str | None:
        """Run the node in TVM, and hold its results against the standard's."""
        feeds = feeds_of(model)
        expected = standard_results(model, feeds)
        if expected is None:
            # Made-up sizes fit no standard operator of these attributes; the whole model's will.
            return None
        try:
            with tempfile.TemporaryDirectory(prefix="opbridge-tvm-") as name:
                path = Path(name) / "node.onnx"
                path.write_bytes(model.SerializeToString())
                results = self._engine.load(path, threads=1).run(feeds)
        except EngineNotInstalledError:
            raise
        except (EngineError, InputError) as error:
            return error.message
        for name, array in expected.items():
            found = difference(results[name], array)
            if found is not None:
                return f"TVM {self._engine.version} computes another result: {found}"
        return None
