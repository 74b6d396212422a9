"""``kernels="always"``: the catalog's kernels in place of ONNX nodes, and ``kernels="never"``."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from linalg_kernels import needs_compiler  # noqa: E402

import opbridge  # noqa: E402
from opbridge.errors import BuildError, InputError  # noqa: E402

pytestmark = pytest.mark.newest

NAN, INF = math.nan, math.inf
TIES = torch.tensor([[1.0, 3, 3, 2, 3, -1], [0, -INF, 5, INF, INF, 5], [2, NAN, 7, 1, NAN, 9]])
ROWS = torch.tensor([[1.0, 2, 2, 3], [4, 4, 4, 8], [-INF, 0, INF, NAN]])
VALUES = torch.tensor([[2.0, 0, 9], [4, 5, 3], [NAN, INF, -1]])
TABLE = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
INDICES, OFFSETS = torch.tensor([1, 2, 2, 6, 0, 2]), torch.tensor([0, 0, 3, 5])
WEIGHTS = torch.tensor([0.5, -1, 2, 3, 1, 0])


def bags(**options: Any) -> Callable[..., Any]:
    return lambda table, indices, offsets: torch.nn.functional.embedding_bag(indices, table, offsets, **options)


Case = tuple[Callable[..., Any], tuple[Any, ...]]

CASES: dict[str, tuple[str, list[Case]]] = {
    "cummax": (
        "opbridge::CumMax",
        [
            (lambda x: torch.cummax(x, 1), (TIES,)),
            (lambda x: torch.cummax(x, 0), (TIES.double(),)),
            (lambda x: torch.cummax(x, -2), (TIES.nan_to_num().long().reshape(3, 2, 3),)),
            (lambda x: torch.cummax(x, 1), (TIES[:, :0],)),
            (lambda x: torch.cummax(x, 1), (TIES.half(),)),
        ],
    ),
    "cummin": (
        "opbridge::CumMin",
        [
            (lambda x: torch.cummin(x, 1), (TIES,)),
            (lambda x: torch.cummin(x, 0), (TIES.nan_to_num().int(),)),
        ],
    ),
    "searchsorted": (
        "opbridge::SearchSorted",
        [
            (torch.searchsorted, (ROWS, VALUES)),
            (lambda x, y: torch.searchsorted(x, y, right=True, out_int32=True), (ROWS, VALUES)),
            (torch.searchsorted, (ROWS[0], VALUES.double())),
            (torch.bucketize, (VALUES, ROWS[1])),
            (lambda x: torch.searchsorted(x, 2.0), (ROWS[0],)),
            (torch.searchsorted, (ROWS[0, :0], VALUES)),
            (torch.searchsorted, (ROWS.nan_to_num().long(), VALUES.nan_to_num().long())),
        ],
    ),
    "embedding_bag": (
        "opbridge::EmbeddingBag",
        [
            *((bags(mode=mode), (TABLE, INDICES, OFFSETS)) for mode in ("sum", "mean", "max")),
            *((bags(mode=mode, padding_idx=-5), (TABLE, INDICES, OFFSETS)) for mode in ("sum", "mean", "max")),
            (bags(mode="sum", include_last_offset=True), (TABLE.double(), INDICES, torch.tensor([0, 2, 2, 6]))),
            (bags(mode="sum", per_sample_weights=WEIGHTS), (TABLE, INDICES.int(), OFFSETS.int())),
            *(
                (lambda t, i, o, mode=mode: torch.embedding_bag(t, i, o, mode=mode), (TABLE, INDICES, OFFSETS))
                for mode in (1, 2)
            ),
        ],
    ),
}


class Several(torch.nn.Module):
    """Calls several functions, each with its own inputs."""

    def __init__(self, calls: list[Case]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, *groups: Any) -> Any:
        return [function(*group) for (function, _), group in zip(self.calls, groups, strict=True)]


def flat(results: Any) -> list[Any]:
    return [tensor for tensor in torch.utils._pytree.tree_leaves(results) if isinstance(tensor, torch.Tensor)]


@needs_compiler
@pytest.mark.quick("cummin")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("with_kernel", [True, False], ids=["kernel", "body"])
def test_kernels_and_their_bodies_give_what_pytorch_gives(name: str, with_kernel: bool, tmp_path: Path) -> None:
    target, calls = CASES[name]
    model, groups = Several(calls), tuple(inputs for _, inputs in calls)
    bundle = opbridge.export(model, groups, path=tmp_path / "bundle", kernels="always", nan="exact", verify=False)
    assert target in bundle.manifest["kernels"][0]["operators"]
    run = opbridge.load(bundle.path, kernels=with_kernel)
    found = run(*(tensor.numpy() for tensor in flat(groups)))
    for mine, theirs in zip(found, flat(model(*groups)), strict=True):
        torch.testing.assert_close(torch.from_numpy(mine), theirs, rtol=1e-6, atol=1e-6, equal_nan=True)


class Net(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cummax(x @ x.mT, 1).values, torch.linalg.cholesky(x @ x.mT)


X = (torch.eye(4) + 0.1,)


@needs_compiler
def test_the_choice(tmp_path: Path) -> None:
    chosen = {}
    for kernels in ("auto", "always", "never"):
        bundle = opbridge.export(Net(), X, path=tmp_path / kernels, kernels=kernels)
        assert bundle.verified
        rungs = {step["target"]: step["rung"] for step in bundle.manifest["operators"]}
        with_kernels = sorted(name for kernel in bundle.manifest["kernels"] for name in kernel["operators"])
        chosen[kernels] = rungs["aten::cummax"], with_kernels
    assert chosen == {
        "auto": ("translate", ["opbridge::Cholesky"]),
        "always": ("kernel", ["opbridge::Cholesky", "opbridge::CumMax", "opbridge::CumMin"]),
        "never": ("translate", []),
    }


def test_always_without_a_compiler_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match="'no-such-compiler', which does not exist"):
        opbridge.export(Net(), X, path=tmp_path / "bundle", kernels="always")
    assert not (tmp_path / "bundle").exists()


def test_another_choice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="kernels='sometimes' is not valid: it can be 'auto', 'never', 'always'"):
        opbridge.export(Net(), X, path=tmp_path / "bundle", kernels="sometimes")
