"""Bundles of strangers, and what they try to run: a payload writes a file."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from one_node import FLOAT, one_node, save

from opbridge.bundle import trust
from opbridge.bundle.bundle import read_bundle
from opbridge.bundle.checks import manifest_hash, to_json
from opbridge.bundle.write import write_bundle
from opbridge.kernels.binary import own_platform

__all__ = [
    *("MANIFEST", "PASSED", "PROGRAM", "RELU"),
    *("hostile_program", "kernels", "make", "of_a_stranger", "rewritten"),
    *("with_entry", "with_kernels"),
]

RELU = one_node("Relu", [(FLOAT, ["n"])], [(FLOAT, ["n"])])
SPEC = {"dtype": "float32", "shape": ["n"]}
MANIFEST: dict[str, Any] = {
    "entry": None,
    "models": [{"file": "model.onnx", "engines": ["onnxruntime"], "opset": 20, "ir_version": 10}],
    "inputs": [{"name": "x0", **SPEC}],
    "outputs": [{"name": "y0", **SPEC}],
}
PASSED = {"verdict": "passed", "engine": "onnxruntime", "cases": [], "comparisons": [], "seconds": {}}

PROGRAM = """
import os
open(os.environ["OPBRIDGE_TEST_PAYLOAD"], "w").close()
raise RuntimeError("the payload ran")
"""


def make(
    path: Path, change: dict[str, Any] | None = None, files: dict[str, bytes] | None = None, **options: Any
) -> Path:
    def write(folder: Path) -> None:
        save(RELU, folder / "model.onnx")
        for name, content in (files or {}).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)

    return write_bundle(path, {**MANIFEST, **(change or {})}, write, **options).path


def of_a_stranger(bundle: Path) -> Path:
    """The same bundle with the marks of another user."""
    mine = os.environ["XDG_DATA_HOME"]
    os.environ["XDG_DATA_HOME"] = str(bundle.parent / "stranger")
    try:
        read = read_bundle(bundle, trust=True)
        sides = [name for name in os.listdir(bundle) if name in ("verification.json", "sources.json")]
        marks = trust.marks_with(bundle, read.manifest["sha256"], sides, own=["bundle.json"])
        (bundle / "marks.json").write_text(marks)
    finally:
        os.environ["XDG_DATA_HOME"] = mine
    return bundle


def rewritten(bundle: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The bundle with another manifest, whose hash is right."""
    manifest = json.loads((bundle / "bundle.json").read_text())
    change(manifest)
    manifest["sha256"] = manifest_hash(manifest)
    (bundle / "bundle.json").write_text(to_json(manifest))
    return bundle


def kernels(optional: bool, file: str = "kernels/evil.so") -> dict[str, Any]:
    return {
        "kernels": [{"engine": "onnxruntime", "file": file, "platform": own_platform(), "optional": optional}],
    }


def with_kernels(path: Path, library: Path, *, optional: bool = True) -> Path:
    return make(path, kernels(optional), files={"kernels/evil.so": library.read_bytes()})


def with_entry(path: Path) -> Path:
    (path.parent / "evil.py").write_text(PROGRAM)
    where = {"entry_path": str(path.parent / "evil.py")}
    return make(path, {"entry": "evil.py:model"}, sources=where)


def hostile_program(file: Path, payload: Path) -> bytes:
    """A saved program with a size that is an expression which torch evaluates."""
    import torch

    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(3),), dynamic_shapes=({0: batch},))
    torch.export.save(program, str(file))
    changed = file.with_suffix(".changed")
    code = f"open({str(payload)!r}, 'w').close() or Symbol('s0', integer=True)"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(changed, "w") as new:
        for item in old.infolist():
            content = old.read(item)
            if item.filename.endswith(".json"):
                data = json.loads(content)
                content = json.dumps(_with_expressions(data, code)).encode()
            new.writestr(item, content)
    return changed.read_bytes()


def _with_expressions(data: Any, code: str) -> Any:
    if isinstance(data, dict):
        return {key: code if key == "expr_str" else _with_expressions(item, code) for key, item in data.items()}
    return [_with_expressions(item, code) for item in data] if isinstance(data, list) else data
