"""The steps between adjacent opsets, which are declared in the files of ``down/`` and ``up/``.

A file declares functions with :func:`down` or :func:`up`. It may also have a table of operators for which an opset
changed only the element types (``TYPES_ONLY``) or only added features (``ADDITIONS``, in ``up/``); each table maps an
opset to operator names. A node is refused if an opset changed its operator and there is no declaration for the change.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from opbridge.onnx_model.opsets.site import Site

__all__ = ["Step", "down", "find_step", "is_declared_alike", "up"]

Direction = Literal["down", "up"]
Convert = Callable[["Site"], None]
_Function = TypeVar("_Function", bound=Callable[..., Any])
_MARK = "__opset_steps__"


@dataclasses.dataclass(frozen=True)
class Step:
    """The conversion of an operator across the opset that changed it.

    Attributes:
        operator: The operator's name in the standard domain.
        version: The opset that changed the operator; a step down leads to the previous opset, a step up to this one.
        convert: The function that changes or replaces the node.
        file: The file that declares the step.
    """

    operator: str
    version: int
    convert: Convert
    file: str

    @property
    def summary(self) -> str:
        """A one-line description of the step."""
        return (self.convert.__doc__ or "").strip().splitlines()[0].rstrip(".")


def down(*operators: str, version: int) -> Callable[[_Function], _Function]:
    """Declare a function as the step of these operators from ``version`` to the previous opset."""
    return _declare(operators, version)


def up(*operators: str, version: int) -> Callable[[_Function], _Function]:
    """Declare a function as the step of these operators from the previous opset to ``version``."""
    return _declare(operators, version)


def _declare(operators: tuple[str, ...], version: int) -> Callable[[_Function], _Function]:
    def mark(function: _Function) -> _Function:
        setattr(function, _MARK, (*getattr(function, _MARK, ()), *((name, version) for name in operators)))
        return function

    return mark


def find_step(direction: Direction, operator: str, version: int) -> Step | None:
    """The step declared for the operator's change in ``version``, or None."""
    return _steps(direction).get((operator, version))


def is_declared_alike(direction: Direction, operator: str, version: int) -> bool:
    """Whether a table declares that ``version`` changed only types, or, for steps up, only added features."""
    return (operator, version) in _alike("down") or (direction == "up" and (operator, version) in _alike("up"))


@functools.cache
def _steps(direction: Direction) -> dict[tuple[str, int], Step]:
    found: dict[tuple[str, int], Step] = {}
    for module in _modules(direction):
        for function in vars(module).values():
            if getattr(function, "__module__", None) != module.__name__:
                continue
            for operator, version in getattr(function, _MARK, ()):
                step = Step(operator, version, function, module.__name__.rpartition(".")[2] + ".py")
                other = found.setdefault((operator, version), step)
                if other is not step:
                    raise AssertionError(f"{other.file} and {step.file} both declare {operator} at opset {version}")
    return found


@functools.cache
def _alike(direction: Direction) -> frozenset[tuple[str, int]]:
    return frozenset(
        (name, version)
        for module in _modules(direction)
        for table in (getattr(module, "TYPES_ONLY", {}), getattr(module, "ADDITIONS", {}))
        for version, names in table.items()
        for name in names.split()
    )


def _modules(direction: Direction) -> Iterator[ModuleType]:
    package = importlib.import_module(f"{__package__}.{direction}")
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        yield importlib.import_module(f"{package.__name__}.{info.name}")
