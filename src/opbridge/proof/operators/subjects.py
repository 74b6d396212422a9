"""Finds the declarations of a file that can be checked, and their samples."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from opbridge.capture.capture import Captured, capture
from opbridge.capture.entry import load_file
from opbridge.catalog.declare.operator import Operator
from opbridge.catalog.declare.spec import OpSpec, Sample, declared_specs
from opbridge.errors import InputError, OpbridgeError, described_error
from opbridge.kernels.declared import KernelSpec, declared_kernels
from opbridge.proof.verify.inputs import to_numpy
from opbridge.torch_graph.sources import source_of_error

__all__ = ["Case", "Subject", "describe_tensor", "describe_tensors", "error_and_place", "find_subjects", "sample_cases"]

_pytree = torch.utils._pytree


@dataclasses.dataclass(frozen=True)
class Subject:
    """An operator, a mapping, or a kernel alone.

    Attributes:
        target: The torch operator.
        spec: The declaration; None for a kernel alone.
        kernel: The kernel; None if there is none.
    """

    target: str
    spec: OpSpec | None
    kernel: KernelSpec | None

    @property
    def operator(self) -> Operator | None:
        """The operator, if one is declared here."""
        function = self.spec.function if self.spec is not None else None
        return function if isinstance(function, Operator) else None

    @property
    def callable(self) -> Callable[..., Any]:
        """The function that a model calls."""
        if self.operator is not None:
            return self.operator
        namespace, _, name = self.target.partition("::")
        found: Any = getattr(torch.ops, namespace)
        for part in name.split("."):
            found = getattr(found, part)
        return found  # type: ignore[no-any-return]


@dataclasses.dataclass(frozen=True)
class Case:
    """A subject and one of its samples.

    Attributes:
        subject: The subject that is checked.
        name: The name of the sample.
        leaves: The sample's arguments, flattened.
        structure: The structure that rebuilds the arguments from the tensors.
    """

    subject: Subject
    name: str
    leaves: tuple[Any, ...]
    structure: Any

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Copies of the sample's tensors, strides included."""
        return tuple(_copied(leaf) for leaf in self.leaves if isinstance(leaf, torch.Tensor))

    def arguments(self, tensors: tuple[torch.Tensor, ...] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with ``tensors`` in place of the sample's."""
        given = iter(self.tensors if tensors is None else tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = _pytree.tree_unflatten(leaves, self.structure)
        return tuple(args), dict(kwargs)

    def call(
        self, function: Callable[..., Any], tensors: tuple[torch.Tensor, ...] | None = None
    ) -> tuple[torch.Tensor, ...]:
        """The tensors that ``function`` returns for the arguments."""
        args, kwargs = self.arguments(tensors)
        returned = _pytree.tree_leaves(function(*args, **kwargs))
        return tuple(value for value in returned if isinstance(value, torch.Tensor))

    @property
    def module(self) -> torch.nn.Module:
        """A model that makes this one call; its inputs are the tensors."""
        return _Call(self)

    @functools.cached_property
    def captured(self) -> Captured:
        """The captured graph of the model."""
        return capture(self.module, self.tensors)

    @property
    def feeds(self) -> dict[str, Any]:
        """The tensors as the inputs of the exported model."""
        return {name: to_numpy(tensor) for name, tensor in zip(self.captured.input_names, self.tensors, strict=True)}


class _Call(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case

    def forward(self, *x: torch.Tensor) -> Any:
        args, kwargs = self.case.arguments(x)
        return self.case.subject.callable(*args, **kwargs)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor.detach()) if 0 not in tensor.stride() else tensor.detach().clone()


def find_subjects(file: Path) -> list[Subject]:
    """Import a file and list its declarations, in the order of the file.

    Raises:
        InputError: Importing the file raises an exception, or it declares nothing.
    """
    load_file(str(file))
    kernels = {kernel.target: kernel for kernel in declared_kernels()}
    specs = [spec for spec in declared_specs() if _is_in(spec.source, file)]
    subjects = [
        Subject(spec.target, spec, kernels.get(spec.target) if spec.rung == "function" else None) for spec in specs
    ]
    known = {subject.target for subject in subjects if subject.kernel is not None}
    alone = [kernel for kernel in kernels.values() if kernel.target not in known and _is_in(kernel.source, file)]
    subjects += [Subject(kernel.target, None, kernel) for kernel in alone]
    if not subjects:
        raise InputError(
            f"{file.name} declares no operator and no mapping.",
            fix="name a file with @opbridge.operator, @opbridge.decomposition or @opbridge.translation in it; "
            "opbridge new-op writes one.",
        )
    return sorted(subjects, key=_position)


def _position(subject: Subject) -> int:
    source = subject.spec.source if subject.spec is not None else subject.kernel.source if subject.kernel else ""
    return int(source.rpartition(":")[2] or 0)


def _is_in(source: str, file: Path) -> bool:
    return Path(source.rpartition(":")[0]).resolve() == file.resolve()


def sample_cases(subject: Subject) -> Iterator[Case]:
    """The subject's samples.

    Raises:
        InputError: There are no samples, the function that makes them fails, or they have an invalid form.
    """
    assert subject.spec is not None
    if subject.spec.samples is None:
        raise InputError(
            "it declares no samples, so nothing could be checked.",
            fix="pass samples= to its decorator: a function that returns a list of opbridge.Sample.",
        )
    try:
        samples = list(subject.spec.samples())
    except Exception as error:
        raise InputError(f"its samples function raises {error_and_place(error)}.", fix="correct it.") from error
    if not samples:
        raise InputError("its samples function returns none.", fix="return at least one opbridge.Sample.")
    names: set[str] = set()
    for number, sample in enumerate(samples, 1):
        if not isinstance(sample, Sample) or not isinstance(sample.args, tuple | list):
            raise InputError(
                f"number {number} of its samples is a {type(sample).__name__}, not an opbridge.Sample of a tuple.",
                fix="write opbridge.Sample((x, y), {'alpha': 2.0}, name='what it is for').",
            )
        leaves, structure = _pytree.tree_flatten((tuple(sample.args), dict(sample.kwargs)))
        name = sample.name or describe_tensors([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
        name = f"{name} ({number})" if name in names else name
        names.add(name)
        yield Case(subject, name, tuple(leaves), structure)


def error_and_place(error: BaseException) -> str:
    """An error on one line, with the line of the user's code that raised it."""
    if isinstance(error, OpbridgeError):
        return error.message
    source = source_of_error(error)
    place = f" ({source})" if source is not None else ""
    return f"{described_error(error)}{place}"


def describe_tensor(tensor: Any) -> str:
    """``float32 of shape (3, 4)``; a data-dependent size is written as its symbol."""
    sizes = ", ".join(str(size) for size in tensor.shape)
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape ({sizes}{',' if len(tensor.shape) == 1 else ''})"


def describe_tensors(tensors: list[torch.Tensor]) -> str:
    """The element types and shapes in a short form."""
    return ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in tensors) or "no tensor"
