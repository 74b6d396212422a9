"""Lists calls of old functions that no transformation converts."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from opbridge.legacy.migrate.script import Edit, Left, Script

__all__ = ["find"]

_OLD_CALLS = {
    "torch.onnx.unregister_custom_op_symbolic": "a translation can't be unregistered; remove its declaration.",
    "torch.onnx.utils.unregister_custom_op_symbolic": "a translation can't be unregistered; remove its declaration.",
    "torch.onnx.symbolic_registry.get_registered_op": "call the operator in onnxscript.",
    "torch.onnx.symbolic_registry.is_registered_op": "`opbridge ops TARGET` shows the mappings of an operator.",
    "torch.onnx.utils._model_to_graph": "call torch.onnx.export without a file; its result has the graph as .model.",
    "torch.onnx.symbolic_helper._set_opset_version": "pass opset_version to torch.onnx.export.",
}


def find(script: Script) -> Iterator[Edit | Left]:
    """Find the calls of old functions that have no successor."""
    for call in script.walk(cst.Call):
        path = script.path(call.func)
        if path in _OLD_CALLS:
            yield Left(script.line(call), path.rpartition(".")[2], _OLD_CALLS[path])
