"""NumPy's functions of dynamic sizes, and arrays of a dynamic size, are captured as parts of the program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import opbridge
from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.torch_graph.numpy_functions import dynamic_numpy

Model = Callable[[torch.Tensor], torch.Tensor]


def reflected(x: torch.Tensor) -> torch.Tensor:
    """Padding by indices that NumPy computes."""
    n = x.shape[0]
    places = np.arange(-2, n + 3, dtype="int32")
    rest = np.fmod(np.asanyarray(places) + 0.5, 2 * n)
    rest = np.where(rest < 0, rest + 2 * n, rest)
    index = np.array(np.where(rest >= n, 2 * n - rest, rest) - 0.5, dtype=places.dtype)
    return x[index]


def windowed(x: torch.Tensor) -> torch.Tensor:
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(x.shape[0]) / x.shape[0])
    return x * torch.tensor(window, dtype=x.dtype)[:, None]


def shifted_anchors(x: torch.Tensor) -> torch.Tensor:
    anchors = np.zeros((0, 2))
    for level in (1, 2):
        shape = (np.array(x.shape) + 2**level - 1) // (2**level)
        columns, rows = np.meshgrid(
            (np.arange(0, shape[1]) + 0.5) * 2**level, (np.arange(0, shape[0]) + 0.5) * 2**level
        )
        anchors = np.append(anchors, np.vstack((columns.ravel(), rows.ravel())).transpose(), axis=0)
    return torch.from_numpy(anchors.astype(np.float32)) + x.mean()


def with_size_arrays(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    sizes = np.array(x.shape)
    half, padded = sizes // 2, sizes + (4 - sizes % 4) % 4
    ends = x[: half[0], : half.max()], x.new_ones(tuple(padded)), x.reshape(np.prod(sizes)), x.reshape(sizes.prod())
    return (
        *ends,
        torch.from_numpy(sizes),
        torch.tensor(sizes / 2),
        torch.as_tensor(np.sqrt(sizes)),
        torch.from_numpy(sizes > 5),
    )


def proposals(x: torch.Tensor) -> torch.Tensor:
    """The layer of a two-stage detector in NumPy."""
    scores, boxes = x[:, 0].detach().cpu().numpy(), np.asarray(x)
    widths, heights = np.exp(boxes[:, 1::3]) * 8.0, np.exp(boxes[:, 2::3])
    found = np.zeros((boxes.shape[0], 2), dtype=boxes.dtype)
    found[:, 0::2], found[:, 1::2] = widths, heights
    found = np.clip(found, 0.5, 30)
    keep = np.where((found[:, 0] > 1) & (found[:, 1] > 0.2))[0]
    order = scores[keep].ravel().argsort()[::-1]
    rows = found[keep, :][order, :].astype(np.float32, copy=False)
    return torch.from_numpy(np.hstack((np.zeros((rows.shape[0], 1), dtype=np.float32), rows)))


def normalized(x: torch.Tensor) -> torch.Tensor:
    array = (x * 2).detach().numpy()
    statistics = np.stack([array.mean(axis=0), array.std(axis=0)])
    return x * torch.tensor(statistics).sum(0) + float(np.pi)


MODELS: dict[str, Model] = {
    "fmod": lambda x: x[: int(np.fmod(x.shape[0], 4)) + 1],
    "fmod of a negative number": lambda x: x[int(np.fmod(-x.shape[0], 4)) - 1 :],
    "fmod of a float": lambda x: x * np.fmod(x.shape[0] / 2, 1.5),
    "mod": lambda x: x[: np.mod(x.shape[0], 4) + 1],
    "trunc": lambda x: x[: int(np.trunc(x.shape[0] / 3)) + 1],
    "round": lambda x: x[: int(np.round(x.shape[0] / 2))],
    "rint": lambda x: x[: int(np.rint(x.shape[0] / 2))],
    "prod": lambda x: x.reshape(int(np.prod(x.shape))),
    "maximum": lambda x: x[: int(np.fmod(np.maximum(x.shape[0], 3), 4)) + 1],
    "arange": lambda x: x * torch.from_numpy(np.arange(x.shape[0]))[:, None],
    "arange in float32": lambda x: x * torch.as_tensor(np.arange(0, x.shape[0], dtype=np.float32))[:, None],
    "linspace": lambda x: x * torch.tensor(np.linspace(0, 1, x.shape[0]), dtype=x.dtype)[:, None],
    "zeros": lambda x: x + torch.from_numpy(np.zeros(x.shape, dtype=np.float32)),
    "beside an array": lambda x: x * torch.from_numpy(np.array([1, 2, 3]) + np.arange(x.shape[0])[:, None]),
    "tril": lambda x: x @ x.T * torch.from_numpy(np.tril(np.ones((x.shape[0],) * 2))),
    "inverse": lambda x: x * torch.from_numpy(np.linalg.inv(np.array([[x.shape[0], 1.0], [0.0, 2.0]]))).sum(),
    "window": windowed,
    "reflected": reflected,
    "proposals": proposals,
    "statistics": normalized,
    "arrays of sizes": with_size_arrays,
    "anchors": shifted_anchors,
}


@pytest.mark.quick("fmod of a negative", "reflected", "inverse", "proposals", every=9)
@pytest.mark.parametrize("name", MODELS)
def test_a_size_stays_dynamic(name: str) -> None:
    model = MODELS[name]
    captured = capture(model, (torch.randn(7, 3),), dynamic_shapes=({0: "n"},), rewrites=Catalog.load().rewrites())
    program = captured.program.module()
    for size in (7, 2, 12, 33):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program(x), model(x))


@pytest.mark.sweep
def test_in_the_engine(tmp_path: Path) -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return reflected(x), windowed(x), MODELS["fmod"](x), MODELS["linspace"](x)

    bundle = opbridge.export(model, (torch.randn(7, 3),), path=tmp_path / "b", dynamic_shapes=({0: "n"},))
    assert bundle.verified


def test_functions_are_replaced_only_in_the_block_and_only_for_dynamic_sizes() -> None:
    before = {name: getattr(np, name) for name in ("fmod", "arange", "asanyarray")}
    with dynamic_numpy(True):
        assert np.fmod is not before["fmod"]
        assert type(np.arange(3)) is np.ndarray
        assert np.fmod(-7, 4) == -3
        assert torch.from_numpy(np.ones(2)).tolist() == [1.0, 1.0]
    assert {name: getattr(np, name) for name in before} == before
    # A class in which __getitem__ was replaced once remains a sequence, which torch.tensor asks for its length.
    assert torch.tensor([torch.ones(()), torch.zeros(())]).tolist() == [1.0, 0.0]


def test_the_internals_of_torch_are_where_they_were() -> None:
    arrays = torch._numpy.arange(3)  # type: ignore[attr-defined]
    assert isinstance(arrays.tensor, torch.Tensor)
    assert str(torch._numpy._dtypes.dtype("float32").torch_dtype) == "torch.float32"  # type: ignore[attr-defined]
