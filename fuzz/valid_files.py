"""The valid files that the kinds of words in a command line stand for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["VALID", "make_valid", "model"]

VALID = {
    "bundle": "b",
    "onnx": "m.onnx",
    "npz": "x.npz",
    "npy": "x.npy",
    "entry": "entry.py",
    "ops": "ops.py",
    "script": "script.py",
    "pt2": "program.pt2",
    "key": "private.pem",
    "public": "public.pem",
    "results": "results.jsonl",
    "swept": "swept",
}
"""The name of the valid file of each kind."""

_ENTRY = """
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.cummax(x, 1).values


def model():
    return Net(), (torch.ones(2, 4),)


entries = {"net": model}
"""
_OPS = """
import torch
import opbridge


@opbridge.operator("fuzz::twice", samples=lambda: [opbridge.Sample((torch.ones(3),))])
def twice(x: torch.Tensor) -> torch.Tensor:
    return x + x
"""
_SCRIPT = """
import sys
import torch

torch.onnx.export(torch.nn.ReLU(), (torch.ones(2),), sys.argv[1] if len(sys.argv) > 1 else "script.onnx", dynamo=False)
"""
_RESULT = {"entry": "hypot", "dtype": "float32", "status": "passed", "samples": 1, "reason": "", "seconds": 1.0}
_ROW = {"zoo": "entry.py", "model": "net", "exporter": "opbridge", "engine": "reference", "status": "pass"}
_PROGRAM = "import torch; torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), 'program.pt2')"


def make_valid(folder: Path) -> None:
    """Write the valid files. Child processes do what starts threads, because this process is forked later."""
    folder.mkdir()
    (folder / "entry.py").write_text(_ENTRY)
    (folder / "ops.py").write_text(_OPS)
    (folder / "script.py").write_text(_SCRIPT)
    (folder / "results.jsonl").write_text(json.dumps(_RESULT) + "\n")
    (folder / "swept").mkdir()
    (folder / "swept" / "rows.jsonl").write_text(json.dumps(_ROW) + "\n")
    (folder / "m.onnx").write_bytes(model().SerializeToString())
    x = np.ones((2, 4), np.float32)
    np.savez(folder / "x.npz", x=x)
    np.save(folder / "x.npy", x)
    _keys(folder)
    export = [sys.executable, "-m", "opbridge", "export", "m.onnx", "-o", "b", "--engine", "reference", "-q"]
    sign = [sys.executable, "-m", "opbridge", "sign", "b", "--key", "private.pem"]
    for command in ([sys.executable, "-c", _PROGRAM], [*export, "--with-reference"], sign):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)


def model(*, dims: tuple[int, ...] = (4,), content: bytes | None = None, **options: Any) -> onnx.ModelProto:
    """The valid model, or one whose weight has other dimensions or another content."""
    weight = numpy_helper.from_array(np.linspace(0, 1, 4, dtype=np.float32), "w")
    weight.dims[:] = dims
    if content is not None:
        weight.raw_data = content
    nodes = [
        helper.make_node("LeakyRelu", ["x"], ["a"], name="leaky", alpha=0.5),
        helper.make_node("Add", ["a", "w"], ["b"], name="add"),
        helper.make_node("Twice", ["b"], ["y"], name="twice", domain="fuzz"),
    ]
    opsets = [helper.make_opsetid("", options.pop("opset", 18)), helper.make_opsetid("fuzz", 1)]
    body = [helper.make_node("Add", ["p", "p"], ["q"])]
    function = helper.make_function("fuzz", "Twice", ["p"], ["q"], body, opsets[:1])
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, options.pop("shape", ["n", 4]))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph(nodes, "g", [value], [result], [weight])
    return helper.make_model(graph, opset_imports=opsets, functions=[function], **{"ir_version": 8, **options})


def _keys(folder: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "private.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "public.pem").write_bytes(key.public_key().public_bytes(pem, form))
