"""Link 3: whether the installed ncnn computes a node.

Nothing lists what pnnx reads, and what it misreads it converts without a word: a reduction over one axis loses the
axis, integers are added as if their bits were floats. So each distinct node is converted alone, its layers are looked
up in ncnn, and it is run; its results must be those of the standard.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from opbridge.engines.base import IR_VERSION, Refusal
from opbridge.engines.ncnn.carried import CARRIED
from opbridge.engines.ncnn.conversion import convert_model, write_files
from opbridge.engines.ncnn.session import load_session
from opbridge.engines.refusals import describe_node, describe_operator, unknown_operator
from opbridge.engines.trial import difference, feeds_of, has_subgraph, lone_model, standard_results, unavailable
from opbridge.errors import EngineError, EngineNotInstalledError, InputError

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["NodeSupport"]

_LARGEST_RANK = 5
"""ncnn's own four dimensions, and the batch."""


class NodeSupport:
    """Answers, remembered per distinct question.

    Args:
        version: ncnn's.
        newest_opset: The newest version of the standard domain that pnnx reads.
    """

    def __init__(self, version: str, newest_opset: int) -> None:
        self._version = version
        self._newest_opset = newest_opset
        self._answers: dict[bytes, str | None] = {}

    def ask(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """See :meth:`Engine.supports <opbridge.engines.base.Engine.supports>`."""
        if node.domain:
            return unknown_operator(node)
        reason = self._known_reason(node, opset_imports)
        if reason is None:
            model = lone_model(node, opset_imports, IR_VERSION)
            # What has no known type, and what pnnx folds or leaves out, shows when the whole model is converted.
            if model is None or not model.graph.input or node.op_type == "Identity":
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
        if opset > self._newest_opset:
            return f"ncnn {self._version} takes opsets up to {self._newest_opset}, not {opset}"
        absent = unavailable(node.op_type, opset)
        if absent is not None:
            return absent
        if has_subgraph(node):
            return f"ncnn {self._version} has no control flow"
        for value in (*node.inputs, *node.outputs):
            if value is None or value.dtype is None or value.name == "":
                continue
            dtype = "str" if value.dtype.is_string() else str(value.dtype.numpy().name)
            if dtype not in CARRIED:
                return f"ncnn {self._version} computes in float32, not in {dtype}"
            if value.shape is not None and len(value.shape) > _LARGEST_RANK:
                return f"ncnn {self._version} takes 4 dimensions and a batch, not rank {len(value.shape)}"
        return None

    def _try(self, model: onnx.ModelProto) -> str | None:
        """Run the node in ncnn, and hold its results against the standard's."""
        feeds = feeds_of(model)
        expected = standard_results(model, feeds)
        if expected is None:
            # Made-up sizes fit no standard operator of these attributes; the whole model's will.
            return None
        try:
            with tempfile.TemporaryDirectory(prefix="opbridge-ncnn-") as name:
                main = write_files(convert_model(model), Path(name) / "model")[0]
                results = load_session(main, threads=1).run(feeds)
        except EngineNotInstalledError:
            raise
        except (EngineError, InputError) as error:
            return error.message
        for name, array in expected.items():
            found = difference(results[name], array)
            if found is not None:
                return f"ncnn {self._version} computes another result: {found}"
        return None
