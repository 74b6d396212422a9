"""Old names and ways that no transformation converts: they are listed, so that nothing is overlooked."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from opbridge.legacy.migrate.script import Edit, Left, Script

__all__ = ["find"]

_OLD_CALLS = {
    "torch.onnx.unregister_custom_op_symbolic": "a translation of opbridge is not taken back; leave it undeclared.",
    "torch.onnx.utils.unregister_custom_op_symbolic": "a translation of opbridge is not taken back; "
    "leave it undeclared.",
    "torch.onnx.symbolic_registry.get_registered_op": "call the operator in onnxscript.",
    "torch.onnx.symbolic_registry.is_registered_op": "`opbridge ops TARGET` says what is mapped.",
    "torch.onnx.utils._model_to_graph": "torch.onnx.export without a file returns a program; its .model is the graph.",
    "torch.onnx.symbolic_helper._set_opset_version": "pass opset_version to torch.onnx.export.",
}


def find(script: Script) -> Iterator[Edit | Left]:
    """Every call of an old name that has no successor."""
    for call in script.walk(cst.Call):
        path = script.path(call.func)
        if path in _OLD_CALLS:
            yield Left(script.line(call), path.rpartition(".")[2], _OLD_CALLS[path])
