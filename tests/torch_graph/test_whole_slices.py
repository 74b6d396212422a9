"""Reductions into elements whose index is the same for all of a slice become reductions of slices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

import opbridge  # noqa: E402

pytestmark = pytest.mark.newest

INDEX = torch.tensor([2, 0, 2, 3, 0])
X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
ROWS = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))


def node_types(call: Callable[..., Any], args: tuple[Any, ...], folder: Path) -> set[str]:
    """The operators of the exported model, which is verified with a dynamic number of rows."""

    class Net(torch.nn.Module):
        def forward(self, x: Any, index: Any, source: Any) -> Any:
            return call(x, index, source)

    rows = torch.export.Dim("rows")
    axis = next(axis for axis, size in enumerate(args[2].shape) if size == len(args[1]))
    bundle = opbridge.export(
        Net(), args, path=folder / "bundle", dynamic_shapes={"x": None, "index": {0: rows}, "source": {axis: rows}}
    )
    assert bundle.verified, bundle.verification
    return {node.op_type for node in onnx.load(bundle.path / "model.onnx").graph.node}


def column(index: Any) -> Any:
    return index.unsqueeze(1).expand(-1, 3)


WHOLE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "add": (lambda x, i, s: x.scatter_add(0, column(i), s), (X, INDEX, ROWS)),
    "add as in PyG": (lambda x, i, s: x.scatter_add(-2, i.view(-1, 1).expand_as(s), s), (X, INDEX, ROWS)),
    "add repeated": (lambda x, i, s: x.scatter_add(0, i[:, None].repeat(1, 3), s), (X, INDEX, ROWS)),
    "add integers": (lambda x, i, s: x.scatter_add(0, column(i), s), (X.long(), INDEX, ROWS.long())),
    "add columns": (lambda x, i, s: x.scatter_add(1, i.expand(3, -1), s), (X.mT, INDEX, ROWS.mT)),
    "add into the middle": (
        lambda x, i, s: x.scatter_add(1, i[None, :, None].expand(2, -1, 3), s),
        (torch.stack([X, -X]), INDEX, torch.stack([ROWS, ROWS + 1])),
    ),
    **{
        f"{reduce}{'' if include_self else ' alone'}": (
            lambda x, i, s, reduce=reduce, include_self=include_self: x.scatter_reduce(
                0, column(i), s, reduce, include_self=include_self
            ),
            (X, INDEX, ROWS),
        )
        for reduce in ("sum", "mean", "prod", "amax", "amin")
        for include_self in (True, False)
        if include_self or reduce != "sum"
    },
}


@pytest.mark.quick("add as in PyG", "mean alone", every=4)
@pytest.mark.parametrize("name", WHOLE)
def test_slices_are_reduced_as_a_whole(name: str, tmp_path: Path) -> None:
    types = node_types(*WHOLE[name], tmp_path)
    assert "ScatterND" in types
    assert "ScatterElements" not in types


ELEMENTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "an index of its own for each element": (
        lambda x, i, s: x.scatter_add(0, torch.stack([i, i, 3 - i], 1), s),
        (X, INDEX, ROWS),
    ),
    "part of each row": (lambda x, i, s: x.scatter_add(0, i[:, None].expand(-1, 2), s), (X, INDEX, ROWS)),
    "an index that is repeated along its axis": (
        lambda x, i, s: x.scatter_add(0, i[:, None].repeat(2, 3), torch.cat([s, s])),
        (X, INDEX, ROWS),
    ),
    "rows of a wider tensor": (
        lambda x, i, s: torch.cat([x, x], 1).scatter_add(0, column(i), s),
        (X, INDEX, ROWS),
    ),
    "a sum without the given values": (
        lambda x, i, s: x.scatter_reduce(0, column(i), s, "sum", include_self=False),
        (X, INDEX, ROWS),
    ),
}


@pytest.mark.quick("an index of its own for each element", every=3)
@pytest.mark.parametrize("name", ELEMENTS)
def test_others_stay(name: str, tmp_path: Path) -> None:
    assert "ScatterElements" in node_types(*ELEMENTS[name], tmp_path)


USERS = """
from onnxscript import opset18 as op

import opbridge


@opbridge.translation("aten::scatter_add", overrides="a test")
def scatter_add(self, dim, index, src):
    return op.ScatterElements(self, index, op.Neg(src), axis=dim, reduction="add")
"""


def test_a_mapping_of_the_user_stays(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any, index: Any, source: Any) -> Any:
            return x.scatter_add(0, column(index), source)

    ops = tmp_path / "negative.py"
    ops.write_text(USERS)
    bundle = opbridge.export(Net(), (X, INDEX, ROWS), path=tmp_path / "bundle", ops=[ops], verify=False)
    (found,) = opbridge.load(bundle.path)(X.numpy(), INDEX.numpy(), ROWS.numpy())
    torch.testing.assert_close(torch.from_numpy(found), X.scatter_add(0, column(INDEX), -ROWS))
