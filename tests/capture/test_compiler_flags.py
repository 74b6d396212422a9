"""Models that ask whether they are compiled: they are told the truth, unless only the path of eager PyTorch works."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.compiler import is_compiling
from torch.export import Dim

import opbridge
from opbridge.capture.capture import capture

X = torch.linspace(-1, 2, 12).reshape(4, 3)


def without_mask(x, mask=None):
    """Leaves out the mask that it needs, as some of transformers' models do."""
    if mask is None and not torch.compiler.is_compiling():
        mask = torch.ones(x.shape[0], 1)
    return x * mask.cumsum(0)


def asked_by_name(x):
    scale = None if is_compiling() or torch.compiler.is_exporting() else 2.0
    return x * scale


def asked_in_a_branch(x):
    scale = None if torch.compiler.is_compiling() else 2.0
    if x.sum() > 0:
        x = x * (3.0 if is_compiling() else 4.0)
    return x * scale


@pytest.mark.parametrize("function", [without_mask, asked_by_name, asked_in_a_branch])
def test_the_path_of_eager_pytorch_where_the_other_fails(function, tmp_path: Path) -> None:
    bundle = opbridge.export(function, (X,), dynamic_shapes=({0: Dim("n")},), path=tmp_path / "bundle")
    assert bundle.verified


def test_a_path_for_compilers_that_works_is_kept() -> None:
    captured = capture(lambda x: x.exp() if torch.compiler.is_compiling() else x.sin(), (X,))
    assert [node.target for node in captured.program.graph.nodes if node.op == "call_function"] == [
        torch.ops.aten.exp.default
    ]
    assert torch.compiler.is_compiling is is_compiling
