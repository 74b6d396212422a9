"""Adds the imports that a converted script needs, and removes unused imports of the old exporter."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from opbridge.legacy.migrate.script import Script

__all__ = ["finish"]

_OLD_NAMES = {
    "FLOAT": "Float", "DOUBLE": "Double", "FLOAT16": "Half", "BFLOAT16": "BFloat16", "INT8": "Char", "INT16": "Short",
    "INT32": "Int", "INT64": "Long", "UINT8": "Byte", "BOOL": "Bool",
}  # fmt: skip
_SCALAR_TYPES = "\n".join(f'    ir.DataType.{new}: "{old}",' for new, old in _OLD_NAMES.items())
_NEEDED = {
    "torch": "import torch",
    "ir": "import onnx_ir as ir",
    "op": "from onnxscript import opset18 as op",
    "opbridge": "import opbridge",
    "scalar_types": f"""
# The names of the element types in the old exporter.
SCALAR_TYPES = {{
{_SCALAR_TYPES}
}}
""",
}
_OLD = (
    "torch.onnx._internal.registration",
    "torch.onnx.symbolic",
    "torch.onnx.register_custom",
    "torch.onnx.utils",
    "torch.onnx.unregister",
    "typing.",
)


def finish(script: Script, module: cst.Module) -> cst.Module:
    """Return the converted tree with updated imports.

    Args:
        script: The original script.
        module: The converted tree.
    """
    module = module.visit(_Unused(script, _names_used(script, module)))  # type: ignore[assignment]
    present = {script.code(statement).strip() for statement in module.body if _is_import(statement)}
    missing = [line for name, line in _NEEDED.items() if name in script.needs and line not in present]
    body = list(module.body)
    position = _after_first_imports(body)
    return module.with_changes(body=[*body[:position], *map(cst.parse_statement, missing), *body[position:]])


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Import | cst.ImportFrom)


def _after_first_imports(body: Sequence[cst.CSTNode]) -> int:
    """The end of the imports at the top of the file: what is imported there is known to the whole script."""
    position = _after_docstring(body)
    while position < len(body) and _is_import(body[position]):
        position += 1
    return position


def _after_docstring(body: Sequence[cst.CSTNode]) -> int:
    first = body[0] if body else None
    is_text = isinstance(first, cst.SimpleStatementLine) and isinstance(first.body[0], cst.Expr)
    return 1 if is_text and isinstance(first.body[0].value, cst.SimpleString) else 0  # type: ignore[union-attr]


def _names_used(script: Script, node: cst.CSTNode) -> set[str]:
    return {name.value for name in script.walk(cst.Name, node.visit(_WithoutImports()))}  # type: ignore[arg-type]


class _WithoutImports(cst.CSTTransformer):
    """Removes all imports."""

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.RemovalSentinel:
        return cst.RemoveFromParent()

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.RemovalSentinel:
        return cst.RemoveFromParent()


class _Unused(cst.CSTTransformer):
    """Removes imported names of the old exporter that the script, or the importing function, does not use any more."""

    def __init__(self, script: Script, used: set[str]) -> None:
        super().__init__()
        self.script = script
        self.used_in = [used]
        self.code = cst.Module([]).code_for_node

    @property
    def used(self) -> set[str]:
        """The names used in the scope of the current import."""
        return self.used_in[-1]

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        imports = next(self.script.walk(cst.ImportFrom, node), None) or next(self.script.walk(cst.Import, node), None)
        self.used_in.append(_names_used(self.script, node) if imports is not None else set())

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self.used_in.pop()
        return updated_node

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
