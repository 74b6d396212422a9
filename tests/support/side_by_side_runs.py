"""What ``side_by_side_child.py`` runs beside each other: the eager module, and the exported model or program."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from side_by_side import Situation
from side_by_side_sizes import Dimension, Inputs, fresh_inputs, named_tensors
from torch.utils import _pytree as pytree

__all__ = ["SEED", "Eager", "Engine", "Exported", "Program"]

SEED = 20_260_101
HALF_PRECISION = {torch.bfloat16: 16, torch.float8_e4m3fn: 17, torch.float8_e5m2: 19}
"""ONNX's numbers of the types that NumPy does not have."""


@dataclasses.dataclass(frozen=True)
class Exported:
    """A written model, or a captured program.

    Attributes:
        path: The ONNX file.
        libraries: Its kernels.
        says: opbridge's verdict.
        why: opbridge's reason for a verdict other than "passed".
        findings: The codes of opbridge's findings.
        program: The captured program, which is run in place of a file.
    """

    path: Path = Path()
    libraries: tuple[Path, ...] = ()
    says: str = ""
    why: str = ""
    findings: tuple[str, ...] = ()
    program: torch.export.ExportedProgram | None = None

    def opened(self, eager: Eager) -> Engine | Program:
        """The model ready to run."""
        return Engine(self, eager) if self.program is None else Program(self.program, eager)


class Eager:
    """The eager module of a situation."""

    def __init__(self, factory: Callable[[], Situation]) -> None:
        self._factory = factory
        self.situation = self._made()
        self.example: Inputs = (tuple(self.situation.args), dict(self.situation.kwargs))

    def _made(self) -> Situation:
        situation = self._factory()
        if isinstance(situation.model, torch.nn.Module) and situation.evaluation:
            situation.model.eval()
        return situation

    def fresh(self, dimensions: Sequence[Dimension], sizes: Mapping[str, int], reorder: bool) -> list[Inputs] | None:
        """The inputs of each call in a row; None if they would be too large."""
        made = []
        for call in range(self.situation.calls):
            if self.situation.fresh is not None:
                made.append(self.situation.fresh(sizes, SEED + call))
            else:
                made.append(fresh_inputs(self.example, dimensions, sizes, SEED + call, reorder=reorder))
        return None if any(one is None for one in made) else [one for one in made if one is not None]

    def run(self, calls: Sequence[Inputs], *, wide: bool = False, seed: int = SEED) -> list[torch.Tensor] | Exception:
        """The outputs of the last call, from a new module, or why eager PyTorch does not take the inputs."""
        model = self._made().model
        before = torch.get_default_dtype()
        try:
            with torch.no_grad():
                if wide:
                    model = model.double() if isinstance(model, torch.nn.Module) else model
                    torch.set_default_dtype(torch.float64)
                for args, kwargs in copy.deepcopy(list(calls)):
                    if wide:
                        args, kwargs = pytree.tree_map(_widened, (args, dict(kwargs)))
                    torch.manual_seed(seed)
                    outputs = model(*args, **kwargs)
            return [_tensor(leaf, wide) for leaf in _leaves(outputs)]
        except Exception as error:
            return error
        finally:
            torch.set_default_dtype(before)


def _widened(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.is_complex():
        return leaf.to(torch.complex128)
    return leaf.double() if leaf.is_floating_point() else leaf


def _leaves(outputs: Any) -> Iterator[Any]:
    """The tensors and numbers of what a module returns, through dataclasses too; None is left out."""
    for leaf in pytree.tree_leaves(outputs):
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            for field in dataclasses.fields(leaf):
                yield from _leaves(getattr(leaf, field.name))
        elif isinstance(leaf, torch.Tensor | bool | int | float):
            yield leaf


def _tensor(leaf: Any, wide: bool) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        dense = leaf.to_dense() if leaf.layout not in (torch.strided, torch.jagged) else leaf
        return dense.dequantize() if dense.is_quantized else dense
    real = torch.float64 if wide else torch.float32
    return torch.tensor(leaf, dtype=real if isinstance(leaf, float) else None)


class Engine:
    """The model in ONNX Runtime, with its default optimizations on the CPU."""

    label = "ONNX Runtime"

    def __init__(self, exported: Exported, eager: Eager) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        for library in exported.libraries:
            options.register_custom_ops_library(str(library))
        providers = ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(str(exported.path), options, providers=providers)
        self._inputs = {one.name: one for one in self._session.get_inputs()}
        self._eager = eager

    def fixes(self, dimension: Dimension) -> bool:
        """Whether the model declares a constant size where the dimension occurs."""
        for name, tensor in self._named(self._eager.example).items():
            axes = dimension.uses.get(id(tensor), {})
            if any(isinstance(self._inputs[name].shape[axis], int) for axis in axes):
                return True
        return False

    def run(self, calls: Sequence[Inputs]) -> list[torch.Tensor]:
        """The outputs of the last call."""
        state: dict[str, torch.Tensor] = {}
        for inputs in calls:
            feeds = self._named(inputs)
            for name, one in self._inputs.items():
                if name not in feeds and len(calls) == 1:
                    raise ValueError(f"the model has an input {name!r} that the module has not")
                if name not in feeds:
                    feeds[name] = state.setdefault(name, torch.zeros(one.shape, dtype=_torch_dtype(one.type)))
            values = {name: _ort_value(_as_real(tensor, self._inputs[name])) for name, tensor in feeds.items()}
            results = [_from_ort(value) for value in self._session.run_with_ort_values(None, values)]
            results, kept = results[: len(results) - len(state)], results[len(results) - len(state) :]
            state = dict(zip(state, kept, strict=True))
        return results

    def _named(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """The tensors by the names of the model's inputs: those whose paths are names, then the others in order."""
        tensors = dict(named_tensors(self._eager.situation.model, *inputs))
        found = {name: tensors.pop(name) for name in self._inputs if name in tensors}
        others = [name for name in self._inputs if name not in found]
        return {**found, **dict(zip(others, tensors.values(), strict=False))}


class Program:
    """A captured program in PyTorch."""

    label = "the captured program"

    def __init__(self, program: torch.export.ExportedProgram, eager: Eager) -> None:
        self._program = program
        self._eager = eager

    def fixes(self, dimension: Dimension) -> bool:
        """Whether the program has a constant size where the dimension occurs."""
        values = {node.name: node.meta.get("val") for node in self._program.graph.find_nodes(op="placeholder")}
        leaves = pytree.tree_leaves(self._eager.example)
        for name, leaf in zip(self._program.graph_signature.user_inputs, leaves, strict=True):
            axes = dimension.uses.get(id(leaf), {})
            if any(isinstance(values[str(name)].shape[axis], int) for axis in axes):
                return True
        return False

    def run(self, calls: Sequence[Inputs]) -> list[torch.Tensor]:
        """The outputs of the last call."""
        module = self._program.module()
        with torch.no_grad():
            for args, kwargs in copy.deepcopy(list(calls)):
                torch.manual_seed(SEED)
                outputs = module(*args, **kwargs)
        return [_tensor(leaf, False) for leaf in _leaves(outputs)]


def _as_real(tensor: torch.Tensor, one: Any) -> torch.Tensor:
    """A complex tensor as pairs of real numbers, where the model has a real input."""
    if tensor.is_complex() and "complex" not in one.type:
        return torch.view_as_real(tensor.resolve_conj())
    return tensor


def _torch_dtype(text: str) -> torch.dtype:
    name = text.removeprefix("tensor(").removesuffix(")")
    names = {"float": "float32", "double": "float64"}
    dtype: torch.dtype = getattr(torch, names.get(name, name))
    return dtype


def _ort_value(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach().contiguous()
    number = HALF_PRECISION.get(tensor.dtype)
    if number is None:
        return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy())
    width = torch.int16 if tensor.element_size() == 2 else torch.uint8
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(tensor.view(width).numpy(), number)


def _from_ort(value: Any) -> torch.Tensor:
    if "bfloat16" in value.data_type() or "float8" in value.data_type():
        return torch.from_dlpack(value).clone()
    return torch.from_numpy(np.array(value.numpy()))
