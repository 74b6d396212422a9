"""Every kernel for detection models under AddressSanitizer and UndefinedBehaviorSanitizer, on strange inputs too."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kernel_cases import SANITIZE, sanitizer_runtimes
from kernel_inputs import Variant, variants

from opbridge.bundle.kernel_libraries import vision_kernels
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.operator import find_operator
from opbridge.catalog.declare.spec import Sample
from opbridge.errors import OpbridgeError
from opbridge.kernels.compiler import build
from opbridge.kernels.library import KernelOperator

RUNTIMES = [] if SANITIZE else sanitizer_runtimes()
PROGRAM = Path(__file__).parents[1] / "support" / "run_kernels.py"
ENVIRONMENT = {
    **os.environ,
    "LD_PRELOAD": ":".join(RUNTIMES),
    # Python itself leaks on purpose, and a request for too much memory is to fail, not to end the process.
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
FLOAT_CASTS = ["-fsanitize=float-cast-overflow", "-fno-sanitize-recover=float-cast-overflow"]
"""Not a part of UndefinedBehaviorSanitizer by default: a number becomes an integer that can't hold it."""

pytestmark = [
    pytest.mark.newest,
    pytest.mark.sweep,
    pytest.mark.skipif(
        not RUNTIMES or not all(Path(runtime).is_absolute() for runtime in RUNTIMES),
        reason="this compiler has no libraries of the sanitizers to preload, or they are already",
    ),
]


def _regions() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    # Some boxes go beyond the image.
    first = 14 * torch.rand(5, 2, generator=generator) - 3
    boxes = torch.cat([first, first + 1 + 9 * torch.rand(5, 2, generator=generator)], 1)
    image = torch.randint(2, (5, 1), generator=generator).float()
    return torch.randn(2, 12, 7, 8, generator=generator), torch.cat([image, boxes], 1)


POOLINGS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "torchvision::roi_pool": ((0.5, 3, 2),),
    "torchvision::ps_roi_pool": ((0.5, 3, 2),),
    "torchvision::ps_roi_align": ((0.5, 3, 2, 2), (0.5, 3, 2, 0)),
}
"""The options of the operators for which neither PyTorch nor the catalog has samples."""

IN_ANY_ORDER = {"opbridge_vision::knn": 1}
"""The outputs that are compared, where the definition may choose any of several equal points."""


def _samples(target: str, catalog: Catalog) -> list[Sample]:
    declared = find_operator(target)
    found = [declared.samples] if declared is not None else [s.samples for s in catalog.specs if s.target == target]
    made = [sample for samples in found if samples is not None for sample in samples()]
    return made or [Sample((*_regions(), *options), name=str(options)) for options in POOLINGS[target]]


def _definition(target: str, catalog: Catalog) -> Callable[..., Any]:
    """The operator in torch code, which reads nothing beyond a tensor."""
    declared = find_operator(target)
    if declared is not None:
        return declared.function
    return next(s.function for s in catalog.specs if s.target == target and s.rung == "function")


class Calls:
    """What is run: each kernel on each variant of each sample, in each type that it has."""

    def __init__(self, operator: KernelOperator, catalog: Catalog) -> None:
        self._operator = operator
        self._function = _definition(operator.target, catalog)
        self._samples = _samples(operator.target, catalog)

    def __iter__(self) -> Iterator[tuple[str, str, tuple[np.ndarray, ...], dict[str, Any]]]:
        for label, variant, attributes, _ in self._made():
            yield label, self._operator.target, variant.arrays, attributes

    def wrong(self, results: Iterator[Any]) -> Iterator[str]:
        """The calls whose results are not those of the definition, if the definition has some."""
        for label, variant, attributes, is_widest in self._made():
            found = next(results)
            if isinstance(found, str):
                if not variant.may_be_refused:
                    yield f"{label}: {found}"
                continue
            # In float32 a decision may be another one than in float64.
            expected = self._expected(variant.arrays, attributes) if is_widest and variant.is_defined else None
            compared = slice(IN_ANY_ORDER.get(self._operator.target))
            if expected is not None and not _are_equal(found[compared], expected[compared]):
                yield f"{label}: {found}, not {expected}"

    def _made(self) -> Iterator[tuple[str, Variant, dict[str, Any], bool]]:
        for sample in self._samples:
            bound = inspect.signature(self._function).bind(*sample.args, **sample.kwargs)
            bound.apply_defaults()
            given = bound.arguments
            attributes = {key: value for key, value in given.items() if not isinstance(value, torch.Tensor)}
            attributes = {key: int(value) if isinstance(value, bool) else value for key, value in attributes.items()}
            tensors = [value.numpy() for value in given.values() if isinstance(value, torch.Tensor)]
            for dtype in (variant[0] for variant in self._operator.variants):
                arrays = [array.astype(dtype) if array.dtype.kind == "f" else array for array in tensors]
                for variant in variants(arrays):
                    label = f"{self._operator.target} {sample.name}, {dtype}, {variant.name}"
                    yield label, variant, attributes, dtype == self._operator.variants[-1][0]

    def _expected(self, arrays: Sequence[np.ndarray], attributes: dict[str, Any]) -> tuple[np.ndarray, ...] | None:
        tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
        names = [name for name in inspect.signature(self._function).parameters if name not in attributes]
        try:
            results = self._function(**dict(zip(names, tensors, strict=True)), **attributes)
        except (RuntimeError, IndexError, ValueError, OpbridgeError):
            return None
        return tuple(result.numpy() for result in (results if isinstance(results, tuple) else (results,)))


def _are_equal(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> bool:
    for one, right in zip(found, expected, strict=True):
        tolerance = 1e-4 if right.dtype == np.float32 else 1e-9
        if one.shape != right.shape or not np.allclose(one, right, rtol=tolerance, atol=tolerance, equal_nan=True):
            return False
    return True


def _run(*arguments: Path) -> None:
    """Run the program under the sanitizers, which end it at the first fault."""
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    at = max(done.stderr.find("ERROR: AddressSanitizer"), done.stderr.find("runtime error"), 0)
    # The line before a report is the label of the call.
    assert done.returncode == 0, done.stderr[max(at - 300, 0) : at + 3000]


def test_the_kernels_are_clean(tmp_path: Path) -> None:
    catalog, kernels = Catalog.load(), vision_kernels()
    library, described, made, found = (tmp_path / name for name in ("library", "operators", "calls", "results"))
    library = build([kernel.header for kernel in kernels], sanitize=True, extra_compile_flags=FLOAT_CASTS)
    _run(library, described)
    operators = pickle.loads(described.read_bytes())
    assert {operator.target for operator in operators} == {kernel.target for kernel in kernels}
    calls = [Calls(operator, catalog) for operator in operators]
    made.write_bytes(pickle.dumps([one for several in calls for one in several]))
    _run(library, found, made)
    results = iter(pickle.loads(found.read_bytes()))
    assert [text for several in calls for text in several.wrong(results)] == []
