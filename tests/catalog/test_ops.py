"""Every operator of the catalog, on PyTorch's own samples, against PyTorch."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from torch.nn import functional  # noqa: E402
from torch.nn.functional import interpolate  # noqa: E402

import opbridge  # noqa: E402
from opbridge.catalog.declare.catalog import Catalog  # noqa: E402
from opbridge.catalog.declare.spec import OpSpec  # noqa: E402
from opbridge.catalog.formulas.element_types import limited_to  # noqa: E402
from opbridge.proof.conformance import database  # noqa: E402
from opbridge.proof.conformance.calls import Batch, Call  # noqa: E402

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 4e-3}
DTYPES = ("float32", "float64", "float16", "int64", "int32", "uint8", "int8", "bool")

NAMES = {"_cdist_forward": "cdist", "_euclidean_dist": "cdist"}
"""Where the database lists an operator under the name of the one that calls it."""


def _name(target: str) -> str:
    name = target.partition("::")[2].partition(".")[0]
    return NAMES.get(name, name.removeprefix("special_"))


def entries_of(name: str) -> list[str]:
    """The entries of an operator, its variants too."""
    return [entry for entry, info in database.entries().items() if info.name.split(".")[-1] == name]


SPECS = [spec for spec in Catalog.load().builtin if spec.rung in ("decompose", "translate")]


@functools.cache
def dtypes_of(name: str) -> list[str]:
    """The element types that PyTorch's CPU kernels take and the catalog serves, float32 first."""
    supported = {dtype for entry in entries_of(name) for dtype in database.dtypes_of(entry)}
    served = [limited_to(spec.function) for spec in SPECS if _name(spec.target) == name]
    return [d for d in DTYPES if d in supported and any(not only or getattr(torch, d) in only for only in served)]


@functools.cache
def calls_of(name: str, dtype: str) -> tuple[Call, ...]:
    """Every sample of an operator ("cummax") in one element type."""
    entries = [entry for entry in entries_of(name) if dtype in database.dtypes_of(entry)]
    return tuple(call for entry in entries for call in database.calls_of(entry, dtype))


RANDOM = {
    *("bernoulli", "fractional_max_pool2d", "fractional_max_pool3d", "geometric", "multinomial", "native_dropout"),
    *("rrelu_with_noise_functional", "scaled_dot_product_attention", "uniform"),
}
"""What draws numbers is compared by distribution: below, in test_random.py and in test_op_db.py."""


FAMILIES = {"elementwise", "indexing", "reduction", "special"}


def _family(spec: OpSpec) -> str:
    return spec.function.__module__.removeprefix("opbridge.catalog.ops.").partition(".")[0]


assert {*map(_family, SPECS)} >= FAMILIES, "the folders of the catalog have other names"


def _is_judged_here(spec: OpSpec) -> bool:
    """Where a result is unique and exact to a few units, and its sizes may be anything."""
    of_family = _family(spec) in FAMILIES or _name(spec.target) in ("cdist", "softmax", "log_softmax")
    return spec.samples is None and of_family


NAMES_IN_DATABASE = sorted(
    name
    for name in {_name(spec.target) for spec in SPECS if _is_judged_here(spec)} - RANDOM - {"scalar_tensor"}
    if dtypes_of(name)
)
"""All others are in the entries of test_op_db.py."""

LONG = {_name(spec.target) for spec in SPECS if _family(spec) == "special"}
"""Formulas of hundreds of nodes. `opbridge conformance` takes every sample of each."""

WITH_OWN_SAMPLES = [spec for spec in SPECS if spec.samples is not None]

LIBRARIES = {"torchvision": "torchvision", "transformers": "transformers.integrations.moe"}
"""What defines the operators that are not torch's own."""

FLOAT32_SINCE = {"aten::_grouped_mm": "2.15"}
"""Operators whose own samples, in float32, an older torch refuses."""

PYTORCH_IS_OFF = {
    *((name, "float64") for name in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai")),
    ("polygamma", "float64"),
}
"""PyTorch's own results are off by 4e-7 and more there: its tables for float64 lack their leading coefficients.

Its trigamma series ends before the term 1 / (30 z^9), which is 8e-10 where the series begins, at z = 7.
"""

NO_FLOAT64 = {"_grouped_mm"}
"""PyTorch has it in narrower types only."""

TIES_ARE_FREE = {"sort", "kthvalue", "median", "nanmedian", "topk"}
"""Among equal elements PyTorch names any; the catalog names the first. Unequal ones leave no choice."""


def _own_calls(spec: OpSpec) -> list[Call]:
    namespace, _, name = spec.target.partition("::")
    if namespace in LIBRARIES:
        pytest.importorskip(LIBRARIES[namespace])
    if spec.target in FLOAT32_SINCE and torch.__version__ < FLOAT32_SINCE[spec.target]:
        pytest.skip(f"before torch {FLOAT32_SINCE[spec.target]}, {spec.target} takes bfloat16 alone")
    function = getattr(getattr(torch.ops, namespace), name.partition(".")[0])
    assert spec.samples is not None
    return [Call(function, sample.args, dict(sample.kwargs)) for sample in spec.samples()]


def _run(calls: list[Call], folder: Path, inputs: Sequence[Any] | None = None, **options: Any) -> list[np.ndarray]:
    """Export the calls as one model and run it on ONNX Runtime; on ``inputs`` where given, else on the calls' own."""
    tensors = tuple(tensor for call in calls for tensor in call.tensors)
    bundle = opbridge.export(Batch(calls), tensors, path=folder, verify=False, nan="exact", **options)
    session = opbridge.load(bundle.path)
    fed = tensors if inputs is None else inputs
    return list(session(*(tensor.numpy() for tensor in fed)))


def _may_choose(name: str, call: Call) -> bool:
    values = call.tensors[0].flatten()
    return name in TIES_ARE_FREE and not call.kwargs.get("stable") and len(values.unique()) < len(values)


def _compare(found: Iterable[np.ndarray], calls: list[Call], name: str = "") -> None:
    """Against float64; of an iterator, as many outputs are taken as the calls have."""
    outputs = iter(found)
    for call in calls:
        expected = call()
        reference = expected if name in NO_FLOAT64 else call.widened()()
        for position, (wide, narrow) in enumerate(zip(reference, expected, strict=True)):
            actual = next(outputs)
            label = f"output {position} of {call}"
            assert tuple(actual.shape) == tuple(narrow.shape), label
            assert actual.dtype == narrow.numpy().dtype, label
            if narrow.is_floating_point():
                tolerance = TOLERANCE[narrow.dtype]
                # What overflows in float32 is right as infinity.
                exact = torch.where(narrow.isinf(), narrow.double(), wide.double()).numpy()
                np.testing.assert_allclose(actual.astype(np.float64), exact, tolerance, tolerance / 10, err_msg=label)
            elif position == 0 or not _may_choose(name, call):
                np.testing.assert_array_equal(actual, narrow.numpy(), err_msg=label)


def _spread(values: Sequence[Any], count: int) -> list[Any]:
    """So many of the samples, from the first to the last. `opbridge conformance` runs all."""
    return list(values[:: max(1, -(-len(values) // count))])


def _empty_samples(name: str) -> list[Call]:
    return _spread([call for call in calls_of(name, dtypes_of(name)[0]) if call.has_empty_tensor], 2)


def _groups(names: Sequence[str]) -> list[list[str]]:
    """Operators that share one export: alone, each would cost several times what it takes in company."""
    short, long = ([name for name in names if (name in LONG) is is_long] for is_long in (False, True))
    return [each[start : start + size] for each, size in ((short, 8), (long, 3)) for start in range(0, len(each), size)]


def _id(names: list[str]) -> str:
    return "-".join(names)


def _samples_of(name: str) -> list[Call]:
    """Some of an operator's samples, in some of its types, empty ones too; of a long formula, one in two types."""
    dtypes = dtypes_of(name)
    samples, further = (1, 1) if name in LONG else (3, 2)
    calls = _spread([call for call in calls_of(name, dtypes[0]) if not call.has_empty_tensor], samples)
    assert calls
    for dtype in _spread(dtypes[1:], further):
        if (name, dtype) not in PYTORCH_IS_OFF:
            calls += _spread([call for call in calls_of(name, dtype) if not call.has_empty_tensor], 1)
    return calls if name in LONG else calls + _empty_samples(name)


@pytest.mark.quick("zeta", every=0)
@pytest.mark.parametrize("names", _groups(NAMES_IN_DATABASE), ids=_id)
def test_samples(names: list[str], tmp_path: Path) -> None:
    calls = {name: _samples_of(name) for name in names}
    found = iter(_run([call for each in calls.values() for call in each], tmp_path / "bundle"))
    for name in names:
        _compare(found, calls[name], name)


@pytest.mark.quick("deform_conv2d", every=6)
@pytest.mark.parametrize("spec", WITH_OWN_SAMPLES, ids=lambda spec: spec.target)
def test_own_samples(spec: OpSpec, tmp_path: Path) -> None:
    calls = _own_calls(spec)
    _compare(_run(calls, tmp_path / "bundle"), calls, _name(spec.target))


def _at_other_sizes(calls: Mapping[str, Call], dimensions: Sequence[int] | None, folder: Path) -> None:
    """Export with dynamic dimensions (all where None), then run with every one of them twice as long."""
    tensors = [tensor for call in calls.values() for tensor in call.tensors]
    dynamic = [
        {axis: torch.export.Dim.AUTO for axis in range(tensor.dim()) if dimensions is None or axis in dimensions}
        for tensor in tensors
    ]
    batch = Batch(list(calls.values()))
    bundle = opbridge.export(
        batch, tuple(tensors), path=folder, verify=False, nan="exact", dynamic_shapes=(tuple(dynamic),)
    )
    session = opbridge.load(bundle.path)
    repeats = [[2 if isinstance(size, str) else 1 for size in spec.shape] for spec in session.inputs]
    larger = [tensor.repeat(each) if each else tensor for tensor, each in zip(tensors, repeats, strict=True)]
    found = iter(session(*(tensor.numpy() for tensor in larger)))
    place = 0
    for name, call in calls.items():
        end = place + len(call.tensors)
        assert any(2 in each for each in repeats[place:end]), f"no dimension of {name}'s inputs is dynamic"
        _compare(found, [call.with_tensors(tuple(larger[place:end]))], name)
        place = end


NOT_DOUBLED = {"arange", "full", "split"}
"""Without a tensor, or with as many results as a size says."""


def _doubled(name: str) -> Call:
    smallest = 1 if name == "squeeze" else 2
    samples = calls_of(name, dtypes_of(name)[0])
    return next(c for c in samples if c.tensors and all(min(t.shape, default=0) >= smallest for t in c.tensors))


@pytest.mark.quick("zeta", every=36)
@pytest.mark.newest
@pytest.mark.parametrize("names", _groups([name for name in NAMES_IN_DATABASE if name not in NOT_DOUBLED]), ids=_id)
def test_dynamic_dimensions(names: list[str], tmp_path: Path) -> None:
    _at_other_sizes({name: _doubled(name) for name in names}, None, tmp_path / "bundle")


@pytest.mark.sweep
@pytest.mark.newest
def test_sizes_stay_dynamic_that_torch_freezes_or_refuses(tmp_path: Path) -> None:
    torch.manual_seed(0)
    logits, labels = (torch.randn(4, 3), torch.rand(5, 3)), torch.tensor([0, 2, 1, 0])
    in_chunks = {"reduction": "none", "options": torch.nn.LinearCrossEntropyOptions()}
    calls = {
        "fractional_max_pool3d": Call(
            lambda x, drawn: functional.fractional_max_pool3d(
                x, 2, output_size=(2, 3, 2), _random_samples=torch.stack([drawn, drawn / 2, 1 - drawn], -1)
            ),
            (torch.randn(2, 3, 5, 6, 7), torch.rand(2, 3)),
            {},
        ),
        "cosine_similarity": Call(lambda x: functional.cosine_similarity(x, ROW_PAIR, 1), (torch.randn(1, 3),), {}),
        "combinations": Call(torch.combinations, (torch.randn(3), 3), {}),
        "bilinear": Call(
            functional.bilinear, (torch.randn(4, 2), torch.randn(4, 3), torch.randn(5, 2, 3), torch.randn(5)), {}
        ),
        "gradient": Call(torch.gradient, (torch.randn(4, 3),), {"spacing": [2.0, 0.5], "edge_order": 2}),
        "pad": Call(functional.pad, (torch.randn(1, 3, 4, 4), [-1, 1, -2, 1], "circular"), {}),
        "conv2d": Call(
            functional.conv2d,
            (torch.randn(2, 3, 7, 6), torch.randn(4, 3, 2, 3)),
            {"padding": "same", "dilation": (1, 2)},
        ),
        "cross_entropy": Call(
            functional.cross_entropy,
            (torch.randn(4, 3), torch.rand(4, 3), torch.rand(3)),
            {"reduction": "sum", "label_smoothing": 0.1},
        ),
        "linear_cross_entropy": Call(functional.linear_cross_entropy, (*logits, labels), in_chunks),
        "take_along_dim": Call(
            lambda x, *places: torch.take_along_dim(x, torch.stack(places, 1) - 4, 1),
            (torch.randn(3, 4), torch.tensor([0, 3, 1]), torch.tensor([2, 2, -1])),
            {},
        ),
        "norm": Call(torch.linalg.norm, (torch.randn(4, 3), math.inf), {}),
        "matrix_norm": Call(torch.linalg.matrix_norm, (torch.randn(2, 3, 4), -1), {"keepdim": True}),
        "multi_dot": Call(
            lambda *rows: torch.linalg.multi_dot([rows[0], rows[1], rows[1].mT, rows[0][0]]),
            (torch.randn(3, 4), torch.randn(4, 5)),
            {},
        ),
    }
    _at_other_sizes(calls, None, tmp_path / "bundle")


@pytest.mark.quick("deform", every=6)
@pytest.mark.newest
@pytest.mark.parametrize(
    # The rows of a grouped product are those that its offsets end at, and a recurrent layer has weights of fixed size.
    "spec",
    [spec for spec in WITH_OWN_SAMPLES if not re.search("grouped_mm|::rnn_|padded_layer", spec.target)],
    ids=lambda spec: spec.target,
)
def test_dynamic_batch(spec: OpSpec, tmp_path: Path) -> None:
    # The other sizes of a convolution's inputs follow from one another, so that they can't simply be doubled.
    _at_other_sizes({_name(spec.target): _own_calls(spec)[0]}, [0], tmp_path / "bundle")


INF, NAN = math.inf, math.nan
ODD = torch.tensor([0.0, -0.0, 1.5, -1.5, INF, -INF, NAN, 1e-42, 3e38, -3e38])
PAIRS = (ODD.repeat_interleave(10), ODD.repeat(10))
ROWS = torch.tensor(
    [
        [3.0, 1.0, NAN, 3.0, INF, -INF, NAN, 3.0],
        [2.0, 2.0, 1.0, 2.0, 0.0, -0.0, 5.0, 5.0],
        [INF, NAN, -INF, INF, 0, 0, 1, 1],
    ]
)
GAMMA = torch.tensor(
    [1 - 2**-24, 1.0, 1 + 2**-23, 2 - 2**-23, 2.0, 2 + 2**-22, -0.5, -1e-8, 1e-30, 3.0, 1e10, -(2**-126), 4.0]
)
POWERS = torch.cat([2.0 ** torch.arange(-149, 128), (2 - 2**-23) * 2.0 ** torch.arange(-126, 128)])
WIDE = torch.tensor([1e300, -1e300, INF, -INF, NAN, 0.0, 1.0], dtype=torch.float64)
TAILS = torch.tensor([1e-30, 1e-7, 0.02, 0.5, 1 - 2**-24, 1.0])
RAMP = torch.arange(20.0)
ROW_PAIR = torch.tensor([[1.0, -2.0, 0.5], [3.0, 0.0, -1.0]])
TIES = torch.tensor([[1, 3, 3, 2, 3], [5, 5, -(2**63), 2**63 - 1, -(2**63)]])
HUNDREDS = (torch.tensor([1.0, 6, -6, 100, -100, 89, 1e7, -0.3]), torch.tensor([0.1, 0.3, 0.3, -7, 100, 100, 3, -0.1]))
QUOTIENTS = (torch.tensor([1.0, -1, INF, -INF, NAN, 0, 5, -5]), torch.tensor([INF, INF, 2, -2, 1, 3, 0, 0]))
EXACT = {
    *("nextafter", "isinf", "frexp", "gcd", "copysign", "fmax", "fmin", "amax", "argmax", "mode", "nonzero", "histc"),
    *("repeat_interleave", "tensor_split", "isclose", "addmv"),
    *("upsample_nearest", "sign", "heaviside", "remainder", "div", "diagonal"),
}
SPECIAL = {
    "hypot": [(torch.hypot, PAIRS)],
    "copysign": [(torch.copysign, (PAIRS[0][PAIRS[0] == PAIRS[0]], PAIRS[1][PAIRS[0] == PAIRS[0]].nan_to_num(-0.0)))],
    "signbit": [(torch.signbit, (ODD,))],
    "fmax": [(torch.fmax, PAIRS)],
    "fmin": [(torch.fmin, PAIRS)],
    "cummax": [(torch.cummax, (ROWS, 1)), (torch.cummax, (ROWS, 0)), (torch.cummax, (TIES, 1))],
    "cummin": [(torch.cummin, (ROWS, 1)), (torch.cummin, (ROWS, 0)), (torch.cummin, (TIES, 1))],
    "sort": [
        (lambda x: torch.sort(x, stable=True), (ROWS,)),
        (lambda x: torch.sort(x, stable=True, dim=0, descending=True), (ROWS,)),
        (lambda x: torch.sort(x, stable=True, descending=True), (TIES,)),
    ],
    "searchsorted": [
        (torch.searchsorted, (torch.tensor([-INF, 0.0, 1.0, 1.0, 2.0, INF, NAN]), ODD)),
        (lambda row, x: torch.searchsorted(row, x, right=True), (torch.tensor([-INF, 0.0, 1.5, 1.5, INF]), ODD)),
        (lambda row: torch.searchsorted(row, 1.0), (torch.tensor([0.0, 1.0, 2.0]),)),
        (torch.searchsorted, (torch.tensor([0, 2**62, 2**62 + 1]), torch.tensor([2**62 + 1, 2**62]))),
    ],
    "lgamma": [(torch.lgamma, (torch.cat([ODD, GAMMA]),))],
    "digamma": [(torch.digamma, (ODD,))],
    "erfinv": [(torch.erfinv, (torch.cat([ODD, TAILS, -TAILS]),))],
    "ndtri": [(torch.special.ndtri, (torch.cat([ODD, TAILS, 1 - TAILS]),))],
    "erfc": [(torch.erfc, (torch.cat([ODD, torch.arange(10.0)]),))],
    "log_ndtr": [(torch.special.log_ndtr, (torch.tensor([-INF, -1e4, -30.0, -1.0, 0.0, 1.0, INF, NAN]),))],
    "i0": [(torch.i0, (ODD,)), (torch.special.i0e, (ODD,)), (torch.special.i1, (ODD,)), (torch.special.i1e, (ODD,))],
    "k0": [
        (torch.special.modified_bessel_k0, (ODD,)),
        (torch.special.scaled_modified_bessel_k1, (torch.tensor([0.0, -1.0, 1e-30, 2.0, 1e4, NAN]),)),
    ],
    "airy_ai": [(torch.special.airy_ai, (torch.tensor([INF, -INF, NAN, 0.0, 2.0, -1.0, 200.0]),))],
    "spherical_bessel_j0": [(torch.special.spherical_bessel_j0, (ODD[:8],))],
    "zeta": [
        (
            torch.special.zeta,
            (torch.tensor([1.0, 0.5, 2, 2, 3, 2.5, 200]), torch.tensor([1.0, 1, 0, -1, -1.5, -1.5, 2])),
        )
    ],
    "hermite": [
        (torch.special.hermite_polynomial_h, (torch.tensor([0.5, 2, NAN, 1]), torch.tensor([-1.0, NAN, 0, 129])))
    ],
    "frexp": [(torch.frexp, (torch.cat([ODD, GAMMA]),))],
    "nextafter": [
        (torch.nextafter, PAIRS),
        (torch.nextafter, (GAMMA, GAMMA.flip(0))),
        (torch.nextafter, (POWERS, torch.full_like(POWERS, INF))),
        (torch.nextafter, (-POWERS, torch.zeros_like(POWERS))),
    ],
    "isinf": [(torch.isinf, (WIDE,)), (torch.isposinf, (WIDE,)), (torch.isneginf, (WIDE,)), (torch.frexp, (WIDE,))],
    "gcd": [(torch.gcd, (torch.tensor([0, 0, -12, 2**62]), torch.tensor([0, -5, 18, 3 * 2**61])))],
    "amax": [
        (torch.amax, (ROWS, 1)),
        (torch.amin, (ROWS, 0)),
        (torch.amax, (ROWS,)),
        (torch.max, (ROWS,)),
        (torch.min, (ROWS,)),
    ],
    "atan": [(torch.atan2, PAIRS), (torch.atan2, (PAIRS[0].double(), PAIRS[1]))],
    "angle": [(torch.angle, (ODD,))],
    "sign": [(torch.sign, (ODD,)), (torch.sgn, (ODD,))],
    "heaviside": [(torch.heaviside, PAIRS)],
    "xlogy": [(torch.xlogy, PAIRS), (lambda x: torch.xlogy(0, x), (ODD,)), (lambda x: torch.xlogy(x, 2), (ODD,))],
    "logaddexp": [(torch.logaddexp, PAIRS), (torch.logaddexp, HUNDREDS), (torch.logaddexp2, HUNDREDS)],
    "remainder": [
        *((torch.remainder, pair) for pair in (QUOTIENTS, HUNDREDS)),
        (lambda x: torch.remainder(x, -0.1), (HUNDREDS[0],)),
        (lambda x: torch.remainder(100, x), (HUNDREDS[0],)),
        # The inverse of a remainder shows the sign of 0.
        *((lambda x, number=number: 1 / (x % number), (ODD,)) for number in (1, 4)),
        *((lambda x, number=number: 1 / (x % number), (2.0 * torch.arange(-9, 9),)) for number in (3, -3)),
        (lambda x: 1 / (x % 3), (torch.tensor([0.0, -0.0, 3, -3, 2**40, -(2**40)]),)),
    ],
    "div": [
        *((lambda a, b: torch.div(a, b, rounding_mode="floor"), pair) for pair in (QUOTIENTS, HUNDREDS)),
        *((torch.floor_divide, pair) for pair in (QUOTIENTS, HUNDREDS)),
        *((lambda x, number=number: x // number, (torch.cat([ODD, HUNDREDS[0]]),)) for number in (0.1, 2, -3)),
        *((lambda x: 2 // x, (values,)) for values in (HUNDREDS[1], torch.tensor([1, -3]))),
    ],
    "vector_norm": [
        *((lambda x, k=k: torch.linalg.vector_norm(x, k, keepdim=True), (ROWS[1],)) for k in (1, 2, 3.5, INF)),
        (lambda x: torch.linalg.vector_norm(x, keepdim=True), (ROWS[1:2],)),
    ],
    "hash_tensor": [(lambda x: torch.hash_tensor(x, dim=-1, keepdim=True), (torch.tensor(1.5),))],
    "logsumexp": [
        (
            lambda x: torch.logsumexp(x, 1),
            (torch.tensor([[-INF, -100], [-INF, -INF], [100, 200], [INF, 1], [NAN, 1]]),),
        ),
        (lambda x: torch.logsumexp(x, (0, 1), keepdim=True), (torch.linspace(-300, -200, 12).reshape(3, 4),)),
    ],
    "diagonal": [
        *((lambda x, k=k: torch.diagonal(x, k), (ROWS,)) for k in (0, 2, -2)),
        (lambda x: torch.diagonal(x, -1, 2, 0), (torch.arange(60).reshape(4, 5, 3),)),
    ],
    "argmax": [
        *((find, (ROWS, dim, True)) for find in (torch.argmax, torch.argmin, torch.max, torch.min) for dim in (0, 1)),
        *((find, (ROWS[1:2],)) for find in (torch.argmax, torch.argmin)),
        *((lambda x, find=find: find(x, keepdim=True), (ROWS,)) for find in (torch.argmax, torch.argmin)),
        (torch.argmax, (TIES, 1)),
    ],
    "repeat_interleave": [
        (lambda n: torch.repeat_interleave(n, output_size=7), (torch.tensor([0, 3, 0, 4, 0, 0]),)),
        (torch.repeat_interleave, (torch.tensor([0, 0]),)),
    ],
    "scatter_reduce": [
        (lambda x, i, s: torch.scatter_reduce(x, 0, i, s, "amax"), (ODD, torch.arange(10), ODD.flip(0))),
        (lambda x, i, s: torch.scatter_reduce(x, 0, i, s, "mean"), (TIES[0], torch.tensor([0, 0]), -TIES[0, :2])),
    ],
    "cumprod": [(lambda x: torch.cumprod(x, 0), (torch.tensor([1e30, 1e30, 1e-30, 0.0, INF]),))],
    "logcumsumexp": [
        (lambda x: torch.logcumsumexp(x, 0), (torch.tensor([-INF, 0.0, 1000.0, 3.0, -INF, 2000.0, INF, 1.0, NAN, 1]),)),
        (lambda x: torch.logcumsumexp(x, 1), (torch.linspace(-900, 900, 3000).reshape(3, 1000),)),
    ],
    "prod": [
        (lambda x: torch.prod(x, 0, keepdim=True), (torch.tensor(3, dtype=torch.int32),)),
        (lambda x: torch.prod(x, 1), (TIES.to(torch.int32),)),
        (lambda x: torch.prod(x, 1), (ROWS,)),
    ],
    "histc": [
        (lambda x: torch.histc(x, 4, 0, 2), (ODD,)),
        (lambda x: torch.histc(x, 5), (torch.full([6], 2.5),)),
        (lambda x: torch.histc(x, 37), (torch.arange(1000.0).sqrt(),)),
        (lambda x: torch.histc(x, 3, 1, 1), (torch.empty(0),)),
    ],
    "tensor_split": [
        (lambda x, i: torch.tensor_split(x, i, 1), (ROWS, torch.tensor([-20, 3, -2, 2, 9]))),
        (lambda x: x.tensor_split(sections=3, dim=1), (ROWS,)),
        (lambda x: torch.tensor_split(x, torch.tensor(3), 1), (ROWS,)),
    ],
    "isclose": [
        (torch.isclose, PAIRS),
        (lambda x, y: torch.isclose(x, y, equal_nan=True), PAIRS),
        (lambda x, y: torch.isclose(x, y, rtol=0, atol=0), PAIRS),
        (torch.isclose, (torch.tensor([100000, 0, 1, -5]), torch.tensor([100001, 1, 1, -5]))),
        (torch.isclose, (torch.tensor([True, False, True]), torch.tensor([False, False, True]))),
    ],
    "addmv": [
        (
            lambda x, a, b: torch.addmv(x, a, b, beta=0.2, alpha=1.6),
            (torch.arange(2), ROWS[:2, :2].long(), TIES[0, :2].long()),
        ),
        (
            lambda x, a: torch.baddbmm(x, a, a, beta=0.2, alpha=2.6),
            (torch.arange(3), torch.arange(18).reshape(2, 3, 3)),
        ),
    ],
    "mode": [(lambda x: torch.mode(x)[0], (TIES,))],
    "upsample_nearest": [
        (
            lambda x, mode=mode, rank=rank: interpolate(
                x.reshape(*[1] * rank, 20), scale_factor=[*[1.0] * (rank - 2), 0.6], mode=mode
            ),
            (RAMP,),
        )
        for mode in ("nearest", "nearest-exact")
        for rank in (2, 3, 4)
    ],
    "nonzero": [(torch.nonzero, (torch.tensor(2.0),)), (torch.nonzero, (torch.tensor(0.0),)), (torch.nonzero, (TIES,))],
    "median": [(lambda x: torch.median(x, 1)[0], (ROWS,)), (lambda x: torch.nanmedian(x, 1)[0], (ROWS,))],
    "cdist": [
        (lambda a, b: torch.cdist(a, b, p=INF), (torch.tensor([[1, NAN], [NAN, 1]]), torch.tensor([[0.0, 0], [2, 1]])))
    ],
}


@pytest.mark.quick("zeta", every=12)
@pytest.mark.newest
@pytest.mark.parametrize("names", _groups(list(SPECIAL)), ids=_id)
def test_special_values(names: list[str], tmp_path: Path) -> None:
    calls = [(name, Call(function, args, {})) for name in names for function, args in SPECIAL[name]]
    found = iter(_run([call for _, call in calls], tmp_path / "bundle"))
    for name, call in calls:
        for expected in call():
            rtol = 0 if name in EXACT else 3e-6
            np.testing.assert_allclose(
                next(found), expected.numpy(), rtol, 0 if name in EXACT else 1e-40, err_msg=str(call)
            )


@pytest.mark.slow
def test_cdist_keeps_the_digits_of_close_points(tmp_path: Path) -> None:
    torch.manual_seed(0)
    left, right = (1000 + torch.rand(rows, 3) * 1e-2 for rows in (40, 30))
    calls = [
        Call(torch.cdist, (left, right), {"p": p, "compute_mode": "donot_use_mm_for_euclid_dist"})
        for p in (0.0, 0.5, 1.0, 2.0, 3.0, INF)
    ]
    _compare(_run(calls, tmp_path / "bundle"), calls)
    by_default = Call(torch.cdist, (left, right), {})
    found = _run([by_default], tmp_path / "default")[0]
    np.testing.assert_allclose(found, by_default.widened()()[0].numpy(), 1e-5)


@pytest.mark.newest
def test_cdist_of_many_wide_rows_is_a_product(tmp_path: Path) -> None:
    torch.manual_seed(0)
    call = Call(torch.cdist, (torch.randn(40, 64), torch.randn(50, 64)), {})
    _compare(_run([call], tmp_path / "bundle"), [call])


@pytest.mark.sweep
@pytest.mark.newest
def test_the_graph_does_not_grow_with_the_tensor(tmp_path: Path) -> None:
    import onnx

    sizes = {}
    for length in (8, 2048):
        path = tmp_path / str(length)
        _run([Call(torch.cummax, (torch.randn(length), 0), {})], path)
        sizes[length] = len(onnx.load(path / "model.onnx").graph.node)
    assert sizes[8] == sizes[2048]


@pytest.mark.newest
def test_one_index_is_a_gather(tmp_path: Path) -> None:
    import onnx

    x, places = torch.randn(3, 5, 4), torch.tensor([4, 0, -2, 0])
    calls = [
        Call(lambda x, i: x[:, i], (x, places), {}),
        Call(lambda x, i: x[i], (x, places.int() // 2), {}),
        Call(lambda x, i: x[..., i], (x, places % 4), {}),
        Call(lambda x, i: x[:, i], (x, places.reshape(2, 2)), {}),
    ]
    _compare(_run(calls, tmp_path), calls)
    nodes = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert nodes.count("Gather") == len(calls)
    assert "GatherND" not in nodes
    assert "Transpose" not in nodes


def test_every_override_says_why() -> None:
    from opbridge.torch_graph.internals import mapped_targets

    overloads = {key for key in mapped_targets() if isinstance(key, str)}
    mapped = overloads | {key.partition(".")[0] for key in overloads}
    silent = [spec.target for spec in SPECS if spec.target in mapped and not spec.overrides]
    assert silent == []


def test_uniform_numbers_are_uniform(tmp_path: Path) -> None:
    call = Call(lambda x: torch.ops.aten.uniform(x, -100.0, 50.0), (torch.zeros(20000),), {})
    (drawn,) = _run([call], tmp_path / "bundle")
    assert drawn.min() >= -100
    assert drawn.max() <= 50
    share = (np.sort(drawn) + 100) / 150
    # The Kolmogorov-Smirnov distance of 20000 fair draws is below 1.95 / sqrt(20000) in 999 cases of 1000.
    assert np.abs(share - np.arange(20000) / 20000).max() < 3 / math.sqrt(20000)


def test_a_number_keeps_all_digits_of_float64(tmp_path: Path) -> None:
    call = Call(lambda x: x * 0.1234567890123 + 2.1234567890123, (torch.rand(3, dtype=torch.float64),), {})
    _compare(_run([call], tmp_path / "bundle"), [call])


def test_rounded_division_of_integers_keeps_all_digits(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
            pairs = ((x, y), (x, 4), (x, -3), (x[:, None].int(), y.to(torch.int8)), (x, y[0]))
            rounded = [torch.div(a, b, rounding_mode=mode) for a, b in pairs for mode in ("floor", "trunc")]
            return [*rounded, *(x % number for number in (3, 4, -4)), x.to(torch.int8) % 2]

    x, y = torch.tensor([2**53 + 1, -(2**40) - 3, 7, -7, -8]), torch.tensor([1, 3, -2, 2, -2])
    bundle = opbridge.export(Net(), (x, y), path=tmp_path / "bundle", verify=False, nan="exact")
    results = opbridge.load(bundle.path)(x.numpy(), y.numpy())
    for result, expected in zip(results, Net()(x, y), strict=True):
        np.testing.assert_array_equal(result, expected.numpy())
