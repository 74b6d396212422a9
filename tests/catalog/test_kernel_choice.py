"""``kernels="always"``: the catalog's kernels in place of ONNX nodes, and ``kernels="never"``."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import torch.nn.functional as F  # noqa: E402
from linalg_kernels import needs_compiler  # noqa: E402

import opbridge  # noqa: E402
from opbridge.capture.capture import capture  # noqa: E402
from opbridge.catalog.declare.catalog import Catalog  # noqa: E402
from opbridge.catalog.ops.random.randperm import order_of_uniform  # noqa: E402
from opbridge.engines import get  # noqa: E402
from opbridge.errors import BuildError, EngineError, InputError  # noqa: E402
from opbridge.ladder.climb import climb  # noqa: E402

pytestmark = pytest.mark.newest

NAN, INF = math.nan, math.inf
TIES = torch.tensor([[1.0, 3, 3, 2, 3, -1], [0, -INF, 5, INF, INF, 5], [2, NAN, 7, 1, NAN, 9]])
ROWS = torch.tensor([[1.0, 2, 2, 3], [4, 4, 4, 8], [-INF, 0, INF, NAN]])
VALUES = torch.tensor([[2.0, 0, 9], [4, 5, 3], [NAN, INF, -1]])
BYTES = torch.randint(0, 256, (2, 3, 17, 23), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
TABLE = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
INDICES, OFFSETS = torch.tensor([1, 2, 2, 6, 0, 2]), torch.tensor([0, 0, 3, 5])
WEIGHTS = torch.tensor([0.5, -1, 2, 3, 1, 0])
CUBE = torch.randn(3, 41, 70, generator=torch.Generator().manual_seed(0))
WHOLE = (4 * CUBE).round()
LONG = torch.randn(9000, generator=torch.Generator().manual_seed(1))
RUNS = torch.tensor([1.0, 1, 3, 3, 3, 1, NAN, NAN, INF, INF])
POINTS = torch.cat([CUBE[0], CUBE[0, :2], CUBE[1]])


def values(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *inputs: function(*inputs).values


NUMBERS = torch.tensor([0.0, -0.0, 1, -1, 0.5, -0.3, 2.5, -7, 1e-30, INF, -INF, NAN, 1e10, 300, 0.1, 1e-42, 9e3, -6.5])
DIVISORS = torch.tensor([[1.0, 0.1, -2.5, 0, INF, -INF, NAN, 1e-20, 3]]).mT
INTEGERS = torch.tensor([0, 1, 2, 3, 4, 6, 12, 60, 105, 120])
DEGREES = torch.tensor([0, 1, 2, 3, 7, -1, 4, 5, 6, 3])
UNIT = torch.linspace(0.05, 0.95, 10)
FLOAT64_FUNCTIONS = [
    *(torch.acos, torch.acosh, torch.asin, torch.asinh, torch.atan, torch.atanh, torch.cosh, torch.erf),
    *(torch.log10, torch.log2, torch.sinh, torch.tan),
]


def bags(**options: Any) -> Callable[..., Any]:
    return lambda table, indices, offsets: torch.nn.functional.embedding_bag(indices, table, offsets, **options)


Case = tuple[Callable[..., Any], tuple[Any, ...]]


def divisions(function: Callable[..., Any]) -> list[Case]:
    return [
        (function, (NUMBERS, DIVISORS)),
        (function, (NUMBERS.double(), DIVISORS.double())),
        (function, (NUMBERS[:8].half(), DIVISORS[:3].half())),
        (function, (NUMBERS[6:8], NUMBERS[14])),
        (function, (NUMBERS[6], NUMBERS[14])),
        (function, (NUMBERS[:0], NUMBERS[:0])),
        (function, (torch.arange(1000) / 7, torch.full((1000,), 0.1))),
        (function, (INTEGERS, INTEGERS[1:2] + 6)),
    ]


def multiples(function: Callable[..., Any]) -> list[Case]:
    return [
        *((function, (INTEGERS.to(dtype), INTEGERS[:, None].to(dtype))) for dtype in (torch.int64, torch.int32)),
        *((function, (INTEGERS[:5].to(dtype), INTEGERS[1].to(dtype))) for dtype in (torch.int8, torch.uint8)),
        (function, (-INTEGERS, INTEGERS.flip(0))),
        (function, (INTEGERS[3], INTEGERS[6])),
        (function, (INTEGERS[:0], INTEGERS[:0])),
    ]


CASES: dict[str, tuple[str, list[Case]]] = {
    "remainder": ("opbridge::Remainder", divisions(torch.remainder)),
    "fmod": ("opbridge::Fmod", divisions(torch.fmod)),
    "gcd": ("opbridge::Gcd", multiples(torch.gcd)),
    "lcm": ("opbridge::Lcm", multiples(torch.lcm)),
    "erfc": (
        "opbridge::Erfc",
        [
            *((torch.erfc, (NUMBERS.to(dtype),)) for dtype in (torch.float32, torch.float64, torch.float16)),
            (torch.erfc, (torch.linspace(-6, 11, 1000),)),
            (torch.erfc, (INTEGERS,)),
            (torch.erfc, (NUMBERS[4],)),
            (torch.erfc, (NUMBERS[:0],)),
        ],
    ),
    "frexp": (
        "opbridge::Frexp",
        [
            *((torch.frexp, (NUMBERS.to(dtype),)) for dtype in (torch.float32, torch.float64, torch.float16)),
            (torch.frexp, (NUMBERS[6],)),
            (torch.frexp, (NUMBERS[:0],)),
        ],
    ),
    **{
        name: (
            "opbridge::OrthogonalPolynomial",
            [
                (function, (UNIT, DEGREES)),
                (function, (UNIT.double()[:, None], DEGREES.double() + 0.6)),
                (function, (UNIT[:0], DEGREES[:0])),
                (function, (UNIT[3], DEGREES[2])),
                (function, (UNIT[:3], torch.tensor([200.0 if name == "hermite" else 2.0, 1, 3]))),
                (lambda n, function=function: function(0.3, n), (DEGREES,)),
                *((lambda x, n=n, function=function: function(x, n), (UNIT,)) for n in (-1, 0, 1, 5, 2.5)),
            ],
        )
        for name, function in (
            ("chebyshev", torch.special.shifted_chebyshev_polynomial_w),
            ("hermite", torch.special.hermite_polynomial_h),
            ("legendre", torch.special.legendre_polynomial_p),
        )
    },
    "float64": (
        "opbridge::Erf",
        [
            *((function, (NUMBERS.double(),)) for function in FLOAT64_FUNCTIONS),
            *((function, (UNIT.reshape(2, 5),)) for function in FLOAT64_FUNCTIONS),
            *((function, (INTEGERS[1],)) for function in FLOAT64_FUNCTIONS),
            *((function, (UNIT.double()[:0],)) for function in FLOAT64_FUNCTIONS),
        ],
    ),
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
    "bit_cast": (
        "opbridge::BitCast",
        [
            (lambda x: x.view(torch.int32), (TIES,)),
            (lambda x: x.view(torch.uint8), (TIES.half(),)),
            (lambda x: x.view(torch.float64), (INTEGERS[:4],)),
            (lambda x: x.view(torch.bfloat16).float(), (TIES.double(),)),
            (lambda x: x[0, 0].view(torch.int32), (TIES,)),
            (lambda x: x[:0].view(torch.int32), (TIES,)),
        ],
    ),
    "order_of_uniform": (
        "opbridge::OrderOfUniform",
        [
            (order_of_uniform, (torch.rand(3000, generator=torch.Generator().manual_seed(0)),)),
            (order_of_uniform, (torch.tensor([0.5, 0, 0.25, 0.5, 0, 1 - 2**-24]),)),
            (order_of_uniform, (torch.zeros(0),)),
        ],
    ),
    "resize_bytes": (
        "opbridge::ResizeBytes",
        [
            *(
                (lambda x, options=options: F.interpolate(x, (5, 40), **options), (BYTES,))
                for options in (
                    {"mode": "bilinear"},
                    {"mode": "bicubic", "align_corners": True},
                    {"mode": "bilinear", "antialias": True},
                    {"mode": "bicubic", "antialias": True},
                )
            ),
            (lambda x: F.interpolate(x, scale_factor=2.5, mode="bicubic"), (BYTES[:, :, :1],)),
            (lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True), (BYTES[:0],)),
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
    "cumprod": (
        "opbridge::CumProd",
        [
            (lambda x: torch.cumprod(x, 1), (TIES,)),
            (lambda x: torch.cumprod(x, -1), (1 + CUBE / 10,)),
            (lambda x: torch.cumprod(x, -2), (1 + CUBE.double() / 10,)),
            (lambda x: torch.cumprod(x, 0), (CUBE.half(),)),
            (lambda x: torch.cumprod(x, 0), (WHOLE.int(),)),
            (lambda x: torch.cumprod(x, 2, dtype=torch.int32), (WHOLE,)),
            (lambda x: torch.cumprod(x, 1), (TIES[:, :0],)),
            (lambda x: torch.cumprod(x, 0), (TIES[1, 2],)),
        ],
    ),
    "logcumsumexp": (
        "opbridge::LogCumSumExp",
        [
            *((lambda x, axis=axis: torch.logcumsumexp(x, axis), (TIES,)) for axis in (0, 1)),
            (lambda x: torch.logcumsumexp(x, -1), (100 * CUBE,)),
            (lambda x: torch.logcumsumexp(x, -2), (CUBE.double(),)),
            (lambda x: torch.logcumsumexp(x, 0), (torch.tensor([-INF, -INF, 0, 200, 0, INF, 0, NAN, 1]),)),
            (lambda x: torch.logcumsumexp(x, 0), (TIES[:0],)),
        ],
    ),
    "hash_tensor": (
        "opbridge::HashTensor",
        [
            (torch.hash_tensor, (CUBE,)),
            (lambda x: torch.hash_tensor(x, -1), (TIES,)),
            (lambda x: torch.hash_tensor(x, 1), (CUBE.double(),)),
            (lambda x: torch.hash_tensor(x, (0, 2), keepdim=True), (CUBE,)),
            (lambda x: torch.hash_tensor(x, (0, 1)), (WHOLE.long(),)),
            (lambda x: torch.hash_tensor(x, keepdim=True), (WHOLE.int(),)),
            (torch.hash_tensor, (TIES[0, 0],)),
            (torch.hash_tensor, (CUBE > 0,)),
        ],
    ),
    "bincount": (
        "opbridge::BinCount",
        [
            (torch.bincount, (INDICES,)),
            (lambda x: torch.bincount(x, minlength=20), (WHOLE.abs().flatten().int(),)),
            (lambda x: torch.bincount(x, minlength=3), (INDICES[:0],)),
        ],
    ),
    "bincount of weights": (
        "opbridge::WeightedBinCount",
        [
            (torch.bincount, (INDICES, WEIGHTS)),
            (lambda x, y: torch.bincount(x, y, 9), (INDICES.byte(), WEIGHTS.double())),
            (torch.bincount, (INDICES, INDICES)),
        ],
    ),
    "unique_consecutive": (
        "opbridge::UniqueConsecutive",
        [
            (torch.unique_consecutive, (RUNS,)),
            (lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), (RUNS.double(),)),
            (lambda x: torch.unique_consecutive(x, return_counts=True), (WHOLE.int(),)),
            (lambda x: torch.unique_consecutive(x, return_inverse=True, dim=0), (RUNS.nan_to_num().long(),)),
            (lambda x: torch.unique_consecutive(x, return_inverse=True, dim=1), (WHOLE[:, :, 0],)),
            (lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), (RUNS[:0],)),
        ],
    ),
    "median": (
        "opbridge::Median",
        [
            (lambda x: torch.median(x, 1), (CUBE,)),
            (lambda x: torch.median(x, -1), (TIES[2],)),
            (lambda x: torch.nanmedian(x, 0), (TIES[2],)),
            (lambda x: torch.nanmedian(x, 1, keepdim=True), (CUBE.masked_fill(CUBE > 0.5, NAN),)),
            (lambda x: torch.nanmedian(x, 0), (TIES[:, :0],)),
            *((function, (x,)) for function in (torch.median, torch.nanmedian) for x in (LONG, TIES, TIES[0, 0])),
            (torch.median, (WHOLE.long(),)),
            (torch.nanmedian, (LONG.double().masked_fill(LONG < 0, NAN),)),
            (torch.nanmedian, (TIES[2:, 1:2],)),
        ],
    ),
    "mode": (
        "opbridge::Mode",
        [
            (torch.mode, (TIES[:2],)),
            (values(lambda x: torch.mode(x)), (WHOLE,)),
            (values(lambda x: torch.mode(x, 1, keepdim=True)), (WHOLE.long(),)),
            (values(lambda x: torch.mode(x, 0)), (1000 * WHOLE.int(),)),
            (torch.mode, (CUBE.double()[:, 0, 0],)),
            (torch.mode, (TIES[0, 0],)),
        ],
    ),
    "pdist": (
        "opbridge::PDist",
        [
            *((lambda x, p=p: torch.pdist(x, p), (POINTS,)) for p in (0, 1, 2, INF, 2.5)),
            *((lambda x, p=p: torch.pdist(x, p), (TIES.T.double(),)) for p in (0, 1, 2, INF)),
            *((lambda x, p=p: torch.pdist(x, p), (POINTS[:, :0],)) for p in (0, 2)),
            (torch.pdist, (POINTS[:1],)),
            (torch.pdist, (POINTS[:0],)),
        ],
    ),
    "histogram": (
        "opbridge::Histogram",
        [
            (lambda x: torch.histogram(x, 9), (CUBE,)),
            (lambda x: torch.histogram(x, 7, range=(-1.0, 2.0)), (WHOLE.double(),)),
            (
                lambda x, y: torch.histogram(x, 8, range=(-1, 3), weight=y, density=True),
                (TIES, TIES.nan_to_num(1, 1)),
            ),
            (lambda x: torch.histogram(x, 4, density=True), (LONG,)),
            (lambda x: torch.histogram(x, 4), (TIES[2, :1],)),
            (lambda x: torch.histogram(x, 3), (TIES[:0],)),
        ],
    ),
    "histc": (
        "opbridge::HistC",
        [
            (lambda x: torch.histc(x, 9), (LONG,)),
            (lambda x: torch.histc(x, 5, -1, 2), (WHOLE.double(),)),
            (lambda x: torch.histc(x, 6, -1, 5), (TIES,)),
            (lambda x: torch.histc(x, 4), (TIES[2, :1],)),
            (lambda x: torch.histc(x, 4), (TIES[:0],)),
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
@pytest.mark.quick("cummin", every=30)
@pytest.mark.parametrize("name", CASES)
def test_kernels_and_their_bodies_give_what_pytorch_gives(name: str, tmp_path: Path) -> None:
    target, calls = CASES[name]
    model, groups = Several(calls), tuple(inputs for _, inputs in calls)
    bundle = opbridge.export(model, groups, path=tmp_path / "bundle", kernels="always", nan="exact", verify=False)
    assert target in bundle.manifest["kernels"][0]["operators"]
    for with_kernel in (True, False):
        run = opbridge.load(bundle.path, kernels=with_kernel)
        found = run(*(tensor.numpy() for tensor in flat(groups)))
        for mine, theirs in zip(found, flat(model(*groups)), strict=True):
            mine = mine.astype(mine.dtype.name)  # NumPy has two dtypes of this name, of which torch takes one.
            torch.testing.assert_close(torch.from_numpy(mine), theirs, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.slow
@needs_compiler
def test_a_histogram_of_infinite_elements_is_an_error_as_in_pytorch(tmp_path: Path) -> None:
    model = Several([(lambda x: torch.histc(x, 5), (LONG,))])
    bundle = opbridge.export(model, ((LONG,),), path=tmp_path / "bundle", kernels="always", verify=False)
    x = LONG.clone()
    x[7] = INF
    with pytest.raises(RuntimeError, match="is not finite"):
        model((x,))
    with pytest.raises(EngineError, match="the range of the elements is not finite"):
        opbridge.load(bundle.path)(x.numpy())


class Net(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cummax(x @ x.mT, 1).values, torch.linalg.cholesky(x @ x.mT)


SMALL, LARGE = (torch.eye(4) + 0.1,), (torch.eye(64) + 0.1,)
CHOLESKY, CUMMAX = "opbridge::Cholesky", ["opbridge::CumMax", "opbridge::CumMin"]


@needs_compiler
@pytest.mark.quick(every=4)
@pytest.mark.parametrize(
    ("kernels", "inputs", "expected"),
    [
        pytest.param("auto", SMALL, [CHOLESKY], id="auto small"),
        pytest.param("auto", LARGE, [CHOLESKY, *CUMMAX], id="auto large"),
        pytest.param("always", SMALL, [CHOLESKY, *CUMMAX], id="always"),
        pytest.param("never", LARGE, [], id="never large"),
    ],
)
def test_the_choice(kernels: str, inputs: tuple[Any, ...], expected: list[str], tmp_path: Path) -> None:
    bundle = opbridge.export(Net(), inputs, path=tmp_path, kernels=kernels, verify=False)
    rungs = {step["target"]: step["rung"] for step in bundle.manifest["operators"]}
    assert rungs["aten::cummax"] == ("kernel" if CUMMAX[0] in expected else "translate")
    assert sorted(name for kernel in bundle.manifest["kernels"] for name in kernel["operators"]) == expected


@pytest.mark.slow
def test_without_a_compiler_the_model_has_the_nodes_of_small_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(UserWarning, match="opbridge::Cholesky: the slower function body runs"):
        bundle = opbridge.export(Net(), LARGE, path=tmp_path / "bundle", verify=False)
    assert {step["target"]: step["rung"] for step in bundle.manifest["operators"]}["aten::cummax"] == "translate"


@pytest.mark.sweep
def test_engines_that_join_elementwise_nodes_get_no_kernels_by_default() -> None:
    pytest.importorskip("openvino")
    captured = capture(Net(), LARGE)
    rungs = {
        names: {step.target: step.rung for step in climb(captured, Catalog.load(), [*map(get, names)], dry=True).steps}
        for names in (("onnxruntime",), ("openvino",), ("onnxruntime", "openvino"))
    }
    assert [found["aten::cummax"] for found in rungs.values()] == ["kernel", "translate", "translate"]


def test_always_without_a_compiler_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match="'no-such-compiler', which does not exist"):
        opbridge.export(Net(), SMALL, path=tmp_path / "bundle", kernels="always")
    assert not (tmp_path / "bundle").exists()


def test_another_choice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="kernels='sometimes' is not valid: it can be 'auto', 'never', 'always'"):
        opbridge.export(Net(), SMALL, path=tmp_path / "bundle", kernels="sometimes")
