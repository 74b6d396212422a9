"""Numbers after branches on sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

import opbridge
from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.errors import CaptureError


class Extremes(nn.Module):
    """A minimum, a maximum, and a size that is what it is."""

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        window = n if n <= 4 else 4
        least = 3
        if not n < 3:
            least = n
        same = 5 if n == 5 else n
        return pad(x, (0, -n % window)).reshape(-1, window).sum(1) * least - same


@pytest.mark.slow
def test_branches_become_minimum_and_maximum(tmp_path: Path) -> None:
    bundle = opbridge.export(
        Extremes(), (torch.arange(6.0),), path=tmp_path / "out", dynamic_shapes={"x": {0: torch.export.Dim("n")}}
    )
    assert bundle.verified
    count = Counter(node.op_type for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node)
    assert count["Min"] == count["Max"] == 1
    assert not count.keys() & {"If", "Where", "Less", "Equal"}


def test_a_size_that_a_branch_pads_to_a_multiple_stays_short() -> None:
    def model(x: Tensor) -> Tensor:
        for multiple in (4, 4, 3):
            if x.shape[0] % multiple:
                x = pad(x, (0, multiple - x.shape[0] % multiple))
            x = x.reshape(-1, multiple).amax(1)
        if x.shape[0] > 200:
            x = x[::2]
        return x

    captured = capture(model, (torch.randn(200),), dynamic_shapes=({0: "n"},), rewrites=Catalog.load().rewrites())
    sizes = [
        node.meta["val"].shape[0]
        for node in captured.program.graph.find_nodes(op="call_function", target=torch.ops.aten.amax.default)
    ]
    assert [sum(part.is_Symbol for part in sympy.preorder_traversal(size.node.expr)) for size in sizes] == [1, 1, 1]
    for length in (192, 193, 208, 239):
        x = torch.randn(length)
        torch.testing.assert_close(captured.program.module(check_guards=False)(x), model(x))


@pytest.mark.parametrize("pads", [lambda n: n <= 4, lambda n: n < 5, lambda n: n < 6])
def test_padding_to_the_next_number_is_a_maximum(pads: Callable[[int], bool]) -> None:
    def model(x: Tensor) -> Tensor:
        if pads(x.shape[0]):
            x = pad(x, (0, 5 - x.shape[0]))
        return x if x.shape[0] % 2 else -x

    captured = capture(model, (torch.randn(7),), dynamic_shapes=({0: "n"},), rewrites=Catalog.load().rewrites())
    for length in (2, 4, 5, 6, 8):
        x = torch.randn(length)
        torch.testing.assert_close(captured.program.module(check_guards=False)(x), model(x))
    size = captured.program.graph.output_node().args[0][0].meta["val"].shape[0].node.expr
    assert type(size).__name__ == "Max"
    assert sorted(map(type, size.args), key=str) == sorted([sympy.Integer, sympy.Symbol], key=str)


class Global(nn.Module):
    """Longformer's attention: a score more for each row with a mark, and local attention where none has one."""

    def forward(self, x: Tensor, marks: Tensor) -> Tensor:
        scores = x * 2
        is_global = (marks > 0).any().item()
        if is_global:
            count = (marks > 0).long().sum(1).max().item()
            scores = torch.cat([x.new_zeros(x.shape[0], count), scores], -1)
        shares = scores.softmax(-1)
        if is_global:
            return (shares[:, count:] + shares[:, :1]) @ x.T
        return shares.view(x.shape[0], 9) @ x.T


@pytest.mark.xfail(
    torch.__version__ < "2.14",
    reason="torch 2.13 refuses branches whose results have other sizes in the last dimension",
    raises=CaptureError,
    strict=True,
)
def test_a_branch_does_not_fix_a_size_for_the_other(tmp_path: Path) -> None:
    rows = {0: torch.export.Dim("rows")}
    example = torch.randn(2, 9), torch.eye(2, 5)
    bundle = opbridge.export(Global(), example, path=tmp_path / "out", dynamic_shapes=(rows, rows))
    assert bundle.verified
    graph = onnx.load(tmp_path / "out" / "model.onnx").graph
    (softmax,) = [node for node in graph.node if node.op_type == "Softmax"]
    shapes = {value.name: [size.dim_value for size in value.type.tensor_type.shape.dim] for value in graph.value_info}
    assert shapes[softmax.output[0]] == [0, 0], "no size is constant"
    model, run = Global(), opbridge.load(bundle.path)
    for marks in (torch.zeros(2, 5), torch.ones(2, 5)):
        (found,) = run(example[0].numpy(), marks.numpy())
        torch.testing.assert_close(torch.from_numpy(found), model(example[0], marks))
