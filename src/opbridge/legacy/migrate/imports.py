"""The imports of a converted script: those that it needs now, without those that it needs no more."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from opbridge.legacy.migrate.script import Script

__all__ = ["finish"]

_NEEDED = {
    "torch": "import torch",
    "ir": "import onnx_ir as ir",
    "op": "from onnxscript import opset18 as op",
    "opbridge": "import opbridge",
}
_OLD = ("torch.onnx.symbolic", "torch.onnx.register_custom", "torch.onnx.utils", "torch.onnx.unregister", "typing.")


def finish(script: Script, module: cst.Module) -> cst.Module:
    """The converted tree with its imports put right.

    Args:
        script: The script as it was.
        module: Its converted tree.
    """
    used = {name.value for name in script.walk(cst.Name, _without_imports(module))}
    module = module.visit(_Unused(used))  # type: ignore[assignment]
    present = {script.code(statement).strip() for statement in module.body if _is_import(statement)}
    missing = [line for name, line in _NEEDED.items() if name in script.needs and line not in present]
    body = list(module.body)
    position = max((index + 1 for index, item in enumerate(body) if _is_import(item)), default=_after_docstring(body))
    return module.with_changes(body=[*body[:position], *map(cst.parse_statement, missing), *body[position:]])


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Import | cst.ImportFrom)


def _after_docstring(body: Sequence[cst.CSTNode]) -> int:
    first = body[0] if body else None
    is_text = isinstance(first, cst.SimpleStatementLine) and isinstance(first.body[0], cst.Expr)
    return 1 if is_text and isinstance(first.body[0].value, cst.SimpleString) else 0  # type: ignore[union-attr]


def _without_imports(module: cst.Module) -> cst.Module:
    return module.with_changes(body=[item for item in module.body if not _is_import(item)])


class _Unused(cst.CSTTransformer):
    """Drops names of the old exporter that the script does not use any more."""

    def __init__(self, used: set[str]) -> None:
        super().__init__()
        self.used = used
        self.code = cst.Module([]).code_for_node

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.BaseSmallStatement | cst.RemovalSentinel:
        if updated_node.module is None or isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        source = self.code(updated_node.module)
        kept = [
            alias
            for alias in updated_node.names
            if self.code(alias.asname.name if alias.asname else alias.name) in self.used
            or not f"{source}.{self.code(alias.name)}".startswith(_OLD)
        ]
        if not kept:
            return cst.RemoveFromParent()
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(names=kept)

    def leave_Import(
        self, original_node: cst.Import, updated_node: cst.Import
    ) -> cst.BaseSmallStatement | cst.RemovalSentinel:
        kept = [
            alias
            for alias in updated_node.names
            if alias.asname is None
            or self.code(alias.asname.name) in self.used
            or not self.code(alias.name).startswith(_OLD)
        ]
        if not kept:
            return cst.RemoveFromParent()
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(names=kept)
