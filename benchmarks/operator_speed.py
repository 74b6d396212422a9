"""Single operators in ONNX Runtime: opbridge's model beside the one that torch.onnx writes, as a Markdown table.

    python benchmarks/operator_speed.py [--op remainder,max] [--nan exact] [--runs 30] [--json FILE]

Each operator gets 64 x 8192 float32 numbers, or what ``catalog_cases.py`` says for as many elements. Both models run
in one process on one thread, in turns, and the best of the runs of each counts. A ratio below 1 means that opbridge's
model is faster. An operator that torch.onnx can't export, or whose result differs from PyTorch's where opbridge's does
not, has no ratio: the table says "no model" or "wrong". The second is decided on the numbers of the table, and where
opbridge's model is slower or longer, also on others (``_OTHER_NUMBERS``, ``_OTHER_INTEGERS``). A row holds if its
ratio is at most 1.05, or if there is none.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from _beside import geometric_mean, in_turns, nodes_in, runner
from catalog_cases import NOT_TIMED, cases
from catalog_cases_linalg import LINALG
from torch import Tensor

from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.engines import get
from opbridge.proof.conformance.calls import Batch, Call
from opbridge.proof.conformance.exporters import Failure, by_opbridge, by_torch
from opbridge.torch_graph.silence import silenced

ROWS, COLUMNS = 64, 8192
LIMIT = 1.05

Make = Callable[[], tuple[Any, ...]]


def _one() -> tuple[Any, ...]:
    return (torch.randn(ROWS, COLUMNS),)


def _positive() -> tuple[Any, ...]:
    return (torch.rand(ROWS, COLUMNS) + 0.1,)


def _two() -> tuple[Any, ...]:
    return torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)


_OF_ONE = (
    *("abs", "atan", "ceil", "cos", "cosh", "deg2rad", "erf", "erfc", "exp", "exp2", "expm1", "floor", "frac"),
    *("isfinite", "isinf", "isnan", "logical_not", "nan_to_num", "neg", "positive", "rad2deg", "relu", "round"),
    *("sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "square", "tan", "tanh", "trunc", "argsort", "sort"),
    *("argmax", "argmin", "max", "min", "amax", "amin", "aminmax", "mean", "sum", "std", "var", "std_mean"),
    *("var_mean", "norm", "median", "nanmedian", "nansum", "nanmean", "count_nonzero", "flatten", "tril"),
)
_OF_POSITIVE = ("log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt", "lgamma", "digamma")
_OF_TWO = (
    *("add", "atan2", "div", "eq", "fmax", "fmin", "fmod", "ge", "hypot", "logaddexp", "lt", "maximum", "minimum"),
    *("mul", "ne", "pow", "remainder", "floor_divide", "rsub", "sub", "true_divide", "copysign", "xlogy"),
)
_ACTIVATIONS = (
    *("celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish", "relu6"),
    *("selu", "silu", "softplus", "softsign", "tanhshrink", "softshrink", "hardshrink"),
)


def _calls() -> Iterator[tuple[str, Callable[..., Any], Make]]:
    for names, make in ((_OF_ONE, _one), (_OF_POSITIVE, _positive), (_OF_TWO, _two)):
        yield from ((name, getattr(torch, name), make) for name in names)
    yield from ((name, getattr(F, name), _one) for name in _ACTIVATIONS)
    yield from ((name, function, _one) for name, function in _WITH_ARGUMENTS.items())


_WITH_ARGUMENTS: dict[str, Callable[[Tensor], Any]] = {
    "amax over an axis": lambda x: x.amax(1),
    "amin over an axis": lambda x: x.amin(1),
    "argmax over an axis": lambda x: x.argmax(1),
    "argmin over an axis": lambda x: x.argmin(1),
    "aminmax over an axis": lambda x: torch.aminmax(x, dim=1),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp_min": lambda x: x.clamp_min(0.5),
    "cummax": lambda x: x.cummax(1),
    "cumsum": lambda x: x.cumsum(1),
    "div, floor, by a constant": lambda x: torch.div(x, 3.0, rounding_mode="floor"),
    "div, trunc, by a constant": lambda x: torch.div(x, 3.0, rounding_mode="trunc"),
    "floor_divide by a constant": lambda x: x // 3.0,
    "flip": lambda x: x.flip(1),
    "fmod by a constant": lambda x: torch.fmod(x, 3.0),
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "glu": lambda x: F.glu(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, (COLUMNS,)),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "logsumexp": lambda x: x.logsumexp(1),
    "max over an axis": lambda x: x.max(1),
    "min over an axis": lambda x: x.min(1),
    "norm, inf": lambda x: torch.linalg.vector_norm(x, float("inf"), 1),
    "pow, 3": lambda x: x**3,
    "remainder by 1": lambda x: x % 1.0,
    "remainder by 360": lambda x: x % 360.0,
    "remainder by a constant": lambda x: x % 0.1,
    "rms_norm": lambda x: F.rms_norm(x, (COLUMNS,)),
    "softmax": lambda x: F.softmax(x, 1),
    "sort, descending": lambda x: x.sort(1, descending=True),
    "topk": lambda x: x.topk(50, 1),
    "var over an axis": lambda x: x.var(1),
    "where": lambda x: torch.where(x > 0, x, -x),
    "softmax of channels": lambda x: _image(x).softmax(1),
    "log_softmax of channels": lambda x: _image(x).log_softmax(1),
    "prelu": lambda x: F.prelu(_image(x), torch.full((1,), 0.25)),
    "prelu of channels": lambda x: F.prelu(_image(x), torch.linspace(0, 1, 32)),
    "bicubic interpolation": lambda x: F.interpolate(_image(x), scale_factor=2, mode="bicubic"),
    "nearest interpolation of a volume": lambda x: F.interpolate(x.reshape(1, 16, 32, 32, 32), scale_factor=2),
    "rfft of 64": lambda x: torch.view_as_real(torch.fft.rfft(x.reshape(-1, 64))),
    "rfft2 of 64 x 64": lambda x: torch.view_as_real(torch.fft.rfft2(x.reshape(-1, 64, 64))),
    "stft of 256": lambda x: torch.view_as_real(torch.stft(x[:8], 256, window=torch.ones(256), return_complex=True)),
    "scatter_add of rows": lambda x: _nodes(x).scatter_add(0, _rows(x), x.reshape(-1, 64)),
    "scatter_reduce of rows": lambda x: _nodes(x).scatter_reduce(0, _rows(x), x.reshape(-1, 64), "amax"),
}


def _image(x: Tensor) -> Tensor:
    return x.reshape(1, 32, 128, 128)


def _nodes(x: Tensor) -> Tensor:
    return torch.zeros(1000, 64)


def _rows(x: Tensor) -> Tensor:
    """The node of each of the 8192 rows, for all of their 64 elements."""
    return (torch.arange(8192) * 7 % 1000).unsqueeze(1).expand(-1, 64)


def _of_catalog() -> Iterator[tuple[str, Callable[..., Any], Make]]:
    """The operators of the catalog that are not above; matrices have 64 rows."""
    for case in cases():
        name = case.targets[0]
        if name not in NOT_TIMED:
            size = ROWS if " ".join(case.targets) in LINALG else ROWS * COLUMNS
            yield name.removeprefix("aten::"), case.function, lambda make=case.make, size=size: make(size)


@dataclasses.dataclass(frozen=True)
class Row:
    """One operator: the nodes of both models, and the milliseconds of their best runs."""

    operator: str
    nodes: int = 0
    their_nodes: int = 0
    time: float = math.nan
    their_time: float = math.nan
    failure: str = ""

    @property
    def ratio(self) -> float:
        return self.time / self.their_time

    @property
    def holds(self) -> bool:
        return not self.ratio > LIMIT

    def cells(self) -> tuple[str, ...]:
        theirs = f"{self.their_time:.3f}" if self.their_nodes else ""
        ratio = self.failure if math.isnan(self.ratio) else f"{self.ratio:.2f}"
        return self.operator, str(self.nodes), str(self.their_nodes or ""), f"{self.time:.3f}", theirs, ratio


def measure(name: str, function: Callable[..., Any], make: Make, nan: str, runs: int) -> Row:
    """Export one operator both ways, and run the models in turns."""
    torch.manual_seed(0)
    call = Call(function, make(), {})
    engine, catalog = get("onnxruntime"), Catalog.load(nan="exact" if nan == "exact" else "absent")
    feeds = [tensor.clone() for tensor in call.tensors]
    arrays = [np.ascontiguousarray(tensor.numpy()) for tensor in feeds]
    with torch.no_grad(), silenced(), tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / side for side in ("opbridge", "torch")]
        for path in paths:
            path.mkdir()
        captured = capture(Batch([call]), tuple(feeds), rewrites=catalog.rewrites())
        ours = by_opbridge(captured, engine, paths[0], catalog).path
        own = runner(ours, arrays)
        try:
            theirs = by_torch(captured, engine, paths[1], catalog).path
            other = runner(theirs, arrays)
            # Indices of equal numbers may differ from PyTorch's in both.
            is_wrong = _is_right(own(), captured.module, feeds) and not _is_right(other(), captured.module, feeds)
        except Exception:  # Whatever torch.onnx or the engine raises, there is nothing to compare with.
            (best,) = in_turns({"opbridge": own}, runs, 0.1).values()
            return Row(name, nodes_in(ours), time=1e3 * min(best), failure="no model")
        times = in_turns({"opbridge": own, "torch": other}, runs, 0.2)
        best, their_best = (1e3 * min(times[side]) for side in ("opbridge", "torch"))
        row = Row(name, nodes_in(ours), nodes_in(theirs), best, their_best)
        if not is_wrong and (not row.holds or row.nodes > row.their_nodes):
            is_wrong = _is_wrong_elsewhere(ours, theirs, captured.module, feeds)
        return dataclasses.replace(row, their_time=math.nan, failure="wrong") if is_wrong else row


_OTHER_NUMBERS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "small": lambda x: x * 1e-6,
    "subnormal": lambda x: x * 1e-42,
    "large": lambda x: x * 100,
    "multiples of 0.1": lambda x: (x * 100).round() / 10,
    "huge": lambda x: x * 1e7,
    "zeros": lambda x: torch.where(x < 0, -0.0, x),
}
_OTHER_INTEGERS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "small": lambda x: 1 + x % 7,
    "large": lambda x: x * 1_000_003,
}


_MOST_ELEMENTS = 2**26
"""A larger result is not compared: ``bincount`` of large numbers has a billion elements."""


def _is_wrong_elsewhere(ours: Path, theirs: Path, module: Any, feeds: Sequence[Tensor]) -> bool:
    """Whether torch.onnx's model is wrong for other numbers, for which opbridge's is right."""
    of_integers = not any(x.is_floating_point() for x in feeds)
    for change in (_OTHER_INTEGERS if of_integers else _OTHER_NUMBERS).values():
        changed = [change(x) if of_integers or x.is_floating_point() else x for x in feeds]
        arrays = [np.ascontiguousarray(x.numpy()) for x in changed]
        try:
            results = torch.utils._pytree.tree_leaves(module(*changed))
        except (RuntimeError, IndexError):  # Such numbers are no input of the operator.
            continue
        if sum(x.numel() for x in results if isinstance(x, Tensor)) > _MOST_ELEMENTS:
            continue
        right = [_is_right(runner(path, arrays)(), module, changed, strict=True) for path in (ours, theirs)]
        if right == [True, False]:
            return True
    return False


def _is_right(results: Any, module: Any, feeds: Sequence[Tensor], *, strict: bool = False) -> bool:
    """Whether results agree with PyTorch's; ``strict``: also results near 0, to two digits, and the signs of zeros.

    Of random results the distributions are compared.
    """
    tolerances = {"rtol": 1e-2, "atol": 1e-12} if strict else {"rtol": 1e-3, "atol": 1e-4}
    expected, again = (
        [x.numpy() for x in torch.utils._pytree.tree_leaves(module(*feeds)) if isinstance(x, Tensor)] for _ in range(2)
    )
    arrays = [result.numpy() for result in results]
    if len(arrays) != len(expected) or any(a.shape != x.shape for a, x in zip(arrays, expected, strict=True)):
        return False
    if not all(np.array_equal(x, y, equal_nan=True) for x, y in zip(expected, again, strict=True)):
        return all(np.allclose(*map(_quantiles, pair), atol=0.05) for pair in zip(arrays, expected, strict=True))
    return all(
        np.allclose(array, x, **tolerances, equal_nan=True) and not (strict and _has_other_zeros(array, x))
        for array, x in zip(arrays, expected, strict=True)
    )


def _quantiles(array: np.ndarray) -> np.ndarray:
    return np.quantile(array.astype(np.float64), np.linspace(0.05, 0.95, 10), method="inverted_cdf")


def _has_other_zeros(array: np.ndarray, expected: np.ndarray) -> bool:
    return array.dtype.kind == "f" and bool(np.any((array == 0) & (np.signbit(array) != np.signbit(expected))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", default="", help="the operators whose names contain one of these, with commas between")
    parser.add_argument("--nan", default="absent", choices=("absent", "exact"), help="opbridge's contract about NaN")
    parser.add_argument("--runs", type=int, default=20, help="least number of runs of each model (default 20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as JSON too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    wanted = [text for text in options.op.split(",") if text]
    table = {name: (function, make) for name, function, make in (*_of_catalog(), *_calls())}
    rows = []
    heading = ("operator", "nodes", "torch.onnx", "ms", "torch.onnx", "ratio")
    print(_line(heading), _line(["---"] * len(heading)), sep="\n")
    for name, (function, make) in table.items():
        if wanted and not any(text in name for text in wanted):
            continue
        try:
            rows.append(measure(name, function, make, options.nan, options.runs))
        except (Failure, Exception) as error:  # The next operator has its turn.
            text = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"{name}: {text[:200]}", file=sys.stderr, flush=True)
            continue
        print(_line(rows[-1].cells()), flush=True)
    ratios = [row.ratio for row in rows if not math.isnan(row.ratio)]
    if ratios:
        above = [row.operator for row in rows if not row.holds]
        print(f"\n{len(ratios)} operators, geometric mean {geometric_mean(ratios):.3f}; above {LIMIT}: {len(above)}")
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    return 0 if all(row.holds for row in rows) else 1


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
