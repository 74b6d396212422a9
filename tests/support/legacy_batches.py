"""Several cases in one model, because an export costs the same for one node as for fifty."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from legacy_cases.table import Case, all_cases
from legacy_graphs import output_trees, registered


@dataclasses.dataclass(frozen=True)
class Batch:
    """Cases that one model holds: of one opset, all dynamic or none, and without registrations that could meet."""

    cases: tuple[Case, ...]
    dynamic: bool

    @property
    def name(self) -> str:
        """Unique, and fit for a file."""
        kind = "dynamic" if self.dynamic else "static"
        return f"{self.cases[0].name}-{len(self.cases)}-{kind}"

    @property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        """The inputs of all cases in a row."""
        return tuple(tensor for case in self.cases for tensor in case.inputs)

    @property
    def opset(self) -> int:
        """The opset of all of them."""
        return self.cases[0].opset

    @property
    def domains(self) -> list[str]:
        """The custom domains in what they emit."""
        return sorted({domain for case in self.cases for domain in case.domains})

    @property
    def dynamic_shapes(self) -> Any:
        """Each case has a batch size of its own."""
        if not self.dynamic:
            return None
        return {"inputs": tuple({0: f"batch_{i}"} for i, case in enumerate(self.cases) for _ in case.inputs)}

    def model(self) -> torch.nn.Module:
        """One module that calls them all."""
        return _Together(self.cases).eval()


class _Together(torch.nn.Module):
    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        self.cases = cases
        self.forwards = [case.forward for case in cases]

    def forward(self, *inputs):
        outputs = []
        for case, forward in zip(self.cases, self.forwards, strict=True):
            taken, inputs = inputs[: len(case.inputs)], inputs[len(case.inputs) :]
            result = forward(*taken)
            outputs += result if isinstance(result, tuple | list) else [result]
        return tuple(outputs)


def batches(*, dynamic: bool, only: Callable[[Case], bool] = lambda case: True, to_run: bool = True) -> list[Batch]:
    """The whole table in as few models as possible: fewer, if none of them is ``to_run``."""
    together: dict[Any, list[Case]] = {}
    for case in all_cases().values():
        if (case.dynamic or not dynamic) and only(case):
            own = (case.group, case.runs) if to_run else ()
            key = case.name if case.alone else (case.opset, case.setup is not None, *own)
            together.setdefault(key, []).append(case)
    return [Batch(tuple(cases), dynamic) for cases in together.values()]


def migrated_batches(*, bridge: bool) -> list[Batch]:
    """The migrated table: what is converted, and, for the bridge, what is left together with some of the converted."""
    if not bridge:
        return batches(dynamic=False, only=lambda case: case.migrates, to_run=False)
    return batches(dynamic=False, only=lambda case: not case.migrates or case.group == "functions", to_run=False)


Way = Callable[[Batch, Path], onnx.ModelProto]


def with_torch(batch: Batch, folder: Path, **options: Any) -> onnx.ModelProto:
    """By torch.onnx.export, as an old script calls it."""
    file = folder / f"{batch.name}.onnx"
    with _silent():
        torch.onnx.export(
            batch.model(),
            batch.inputs,
            str(file),
            opset_version=batch.opset,
            dynamic_shapes=batch.dynamic_shapes,
            optimize=False,
            **options,
        )
    return onnx.load(file)


def with_opbridge(batch: Batch, folder: Path) -> onnx.ModelProto:
    """By opbridge.export, for an engine that takes the nodes of every custom domain."""
    import opbridge

    with _silent(), any_domain_supported():
        bundle = opbridge.export(
            batch.model(),
            batch.inputs,
            path=folder / batch.name,
            dynamic_shapes=batch.dynamic_shapes,
            opset=batch.opset,
            verify=False,
        )
    return onnx.load(bundle.path / "model.onnx")


def trees_of(batch: Batch, model: onnx.ModelProto) -> dict[str, Any]:
    """What each case became: its outputs, with its inputs counted from 0 again."""
    trees = output_trees(model)
    found, first_input, first_output = {}, 0, 0
    for case in batch.cases:
        count = len(case.expected(*(tensor.clone() for tensor in case.inputs)))
        own = {f"input {first_input + i}": f"input {i}" for i in range(len(case.inputs))}
        found[case.name] = [(dtype, _renamed(tree, own)) for dtype, tree in trees[first_output : first_output + count]]
        first_input += len(case.inputs)
        first_output += count
    return found


def _renamed(tree: Any, names: dict[str, str]) -> Any:
    if isinstance(tree, str):
        return names.get(tree, tree)
    if isinstance(tree, tuple):
        return tuple(_renamed(item, names) for item in tree)
    if dataclasses.is_dataclass(tree):
        inputs, attributes = _renamed(tree.inputs, names), _renamed(tree.attributes, names)
        return dataclasses.replace(tree, inputs=inputs, attributes=attributes)
    return tree


def export_all(way: Way, batch: Batch, folder: Path) -> dict[str, Any]:
    """The trees of each case; an exception where it can't be exported. What fails together is tried one by one."""
    try:
        with registered(*batch.cases):
            return trees_of(batch, way(batch, folder))
    except Exception as error:
        if len(batch.cases) == 1:
            return {batch.cases[0].name: error}
    found = {}
    for case in batch.cases:
        found.update(export_all(way, Batch((case,), batch.dynamic), folder))
    return found


@contextlib.contextmanager
def any_domain_supported() -> Iterator[None]:
    """An engine that takes the nodes of every custom domain."""
    from opbridge.engines.onnxruntime.engine import OnnxRuntimeEngine

    def supports(self, node, *args, **kwargs):
        return None if node.domain else own(self, node, *args, **kwargs)

    own = OnnxRuntimeEngine.supports
    OnnxRuntimeEngine.supports = supports
    try:
        yield
    finally:
        OnnxRuntimeEngine.supports = own


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@functools.cache
def batch_of(name: str, dynamic: bool) -> Batch:
    """The batch that a case is in."""
    return next(batch for batch in batches(dynamic=dynamic) if name in [case.name for case in batch.cases])
