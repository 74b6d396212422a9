"""What an export prints: the reason for a newer opset, and a kernel that was not built."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from opbridge.report.bundle import bundle_view

pytestmark = pytest.mark.newest


def printed(opset: int, *findings: dict[str, Any]) -> str:
    model = {"file": "model.onnx", "engines": ["onnxruntime"], "opset": opset}
    manifest = {"models": [model], "files": {"model.onnx": {"bytes": 12}}, "opset_reason": "aten::gelu needs opset 20"}
    data = {"manifest": manifest, "sources": {"findings": findings}, "verification": None, "claim": False, "path": "b"}
    console = Console(file=io.StringIO(), width=200)
    for renderable in bundle_view(data):
        console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_newer_opset_has_its_reason() -> None:
    assert "model.onnx: opset 20 (aten::gelu needs opset 20), 12 bytes" in printed(20)
    assert "model.onnx: opset 18, 12 bytes" in printed(18)


def test_a_kernel_that_was_not_built_is_said() -> None:
    finding = {"code": "no-compiler", "severity": "warning", "mended": True, "message": "The kernel is not built."}
    assert "The kernel is not built." in printed(18, finding)
    assert "Something" not in printed(18, finding | {"code": "other", "message": "Something was mended."})
