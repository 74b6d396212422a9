"""Collects the declarations of mappings, and selects the mapping of a torch operator.

Declarations have two levels: the user's (in their code, or in a file or folder passed with ``--ops``) and the catalog's
(``opbridge.catalog.ops``). The user's mappings take precedence over the catalog's, and the catalog's over torch's own.
Two declarations of one operator and rung on one level are an error.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from opbridge.catalog.declare.kernel_choice import AUTO, Kernels
from opbridge.catalog.declare.nan import EXACT, Nan
from opbridge.catalog.declare.spec import OPS_FILE_PREFIX, OpSpec, declared_specs, specs_of
from opbridge.errors import InputError

if TYPE_CHECKING:
    import torch

__all__ = ["RUNGS", "RUNGS_WITH_KERNELS", "SOURCES", "Catalog", "Ops"]

Ops = Sequence[str | Path | ModuleType | Callable[..., Any]]
"""Operator declarations passed by a user: files, folders, modules and decorated functions."""

RUNGS = ("decompose", "translate", "function")
"""The rungs of mappings, the cheapest first."""

RUNGS_WITH_KERNELS = ("kernel", *RUNGS)
"""The same if the user always wants kernels."""


@dataclasses.dataclass(frozen=True)
class Catalog:
    """The available mappings of operators.

    Attributes:
        user: The user's declarations.
        builtin: The declarations of ``opbridge.catalog.ops``.
        nan: What the mappings do with NaN.
        kernels: Whether to use the kernels of ``opbridge.catalog.ops``.
    """

    user: tuple[OpSpec, ...]
    builtin: tuple[OpSpec, ...]
    nan: Nan = EXACT
    kernels: Kernels = AUTO

    @classmethod
    def load(cls, ops: Ops = (), nan: Nan = EXACT) -> Catalog:
        """Collect the catalog's declarations, those of the user's code so far, and those in ``ops``.

        Args:
            ops: The user's operator files: folders (searched for ``*.py``), files, modules, or decorated functions.
            nan: What the mappings do with NaN.

        Raises:
            InputError: A path does not exist, importing a file fails, or an operator is declared twice.
        """
        builtin = _package_specs()
        extra = [spec for item in ops for spec in _specs_in(item)]
        user = {(spec.target, spec.rung, spec.source): spec for spec in (*declared_specs(), *extra)}
        _refuse_duplicates(user.values())
        return cls((*user.values(), *_registered_specs(user.values())), builtin, nan)

    def extended(self, specs: Sequence[OpSpec]) -> Catalog:
        """The catalog with additional declarations at the user's level."""
        return dataclasses.replace(self, user=(*self.user, *specs)) if specs else self

    @property
    def specs(self) -> tuple[OpSpec, ...]:
        """All declarations sorted by target, the user's first."""
        return (*sorted(self.user, key=_order), *sorted(self.builtin, key=_order))

    def rewrites(self) -> tuple[OpSpec, ...]:
        """The rewrites to apply: one per function, the user's in preference to the catalog's."""
        chosen: dict[str, OpSpec] = {}
        for spec in (*self.user, *self.builtin):
            if spec.rung == "rewrite":
                chosen.setdefault(spec.target, spec)
        return tuple(chosen.values())

    def find(
        self,
        overload: torch._ops.OpOverload,
        *,
        rungs: Sequence[str] = RUNGS,
        refused: Collection[str] = (),
    ) -> OpSpec | None:
        """The mapping of a torch operator: the user's, otherwise the catalog's, on the cheapest rung.

        Args:
            overload: The operator.
            rungs: The rungs to consider.
            refused: Rungs to exclude, on both levels, because an engine refused the result.
        """
        wanted = [rung for rung in rungs if rung not in refused]
        name = overload.name().partition(".")[0]
        for level in self._by_name:
            found = [spec for spec in level.get(name, ()) if spec.rung in wanted and _matches(spec.target, overload)]
            if found:
                return min(found, key=lambda spec: ("." not in spec.target, RUNGS_WITH_KERNELS.index(spec.rung)))
        return None

    @functools.cached_property
    def _by_name(self) -> tuple[Mapping[str, Sequence[OpSpec]], ...]:
        """The user's declarations and the catalog's, by target without overload."""
        levels: list[dict[str, list[OpSpec]]] = []
        for specs in (self.user, self.builtin):
            level: dict[str, list[OpSpec]] = {}
            for spec in specs:
                level.setdefault(spec.target.partition(".")[0], []).append(spec)
            levels.append(level)
        return tuple(levels)

    def provider(self, spec: OpSpec) -> str:
        """``"user"`` or ``"catalog"``."""
        return "user" if id(spec) in self._users else "catalog"

    @functools.cached_property
    def _users(self) -> frozenset[int]:
        return frozenset(map(id, self.user))


def _order(spec: OpSpec) -> tuple[str, bool, str]:
    # A mapping with a kernel is used only if the user asks for it.
    return spec.target, spec.rung == "kernel", spec.rung


@functools.cache
def _matches(target: str, overload: torch._ops.OpOverload) -> bool:
    """Whether a target applies to this overload of the operator that it names."""
    wanted = target.partition(".")[2]
    if wanted:
        return wanted == overload._overloadname
    # A bare name means the functional overloads; torch converts in-place and out= calls to these.
    return not overload._schema.is_mutable and "Dimname" not in str(overload._schema)


def _refuse_duplicates(specs: Iterable[OpSpec]) -> None:
    seen: dict[tuple[str, str], OpSpec] = {}
    for spec in specs:
        other = seen.setdefault((spec.target, spec.rung), spec)
        if other is not spec:
            raise InputError(
                f"The operator {spec.target!r} is declared twice: at {other.source} and at {spec.source}.",
                fix="remove one of the two declarations.",
            )


SOURCES: list[Callable[[], Iterable[OpSpec]]] = []
"""Additional sources of user declarations, such as symbolic functions registered with the old exporter."""


def _registered_specs(declared: Iterable[OpSpec]) -> Iterator[OpSpec]:
    """The declarations of :data:`SOURCES` for operators that the user has not declared with a decorator."""
    taken = {spec.target.partition(".")[0] for spec in declared if spec.rung in RUNGS}
    for source in SOURCES:
        yield from (spec for spec in source() if spec.target.partition(".")[0] not in taken)


@functools.cache
def _package_specs() -> tuple[OpSpec, ...]:
    import opbridge.catalog.ops

    modules = pkgutil.walk_packages(opbridge.catalog.ops.__path__, "opbridge.catalog.ops.")
    imported = [importlib.import_module(module.name) for module in modules if not module.ispkg]
    specs = tuple(spec for module in imported for spec in _module_specs(module))
    _refuse_duplicates(specs)
    return specs


def _module_specs(module: ModuleType) -> Iterator[OpSpec]:
    for value in vars(module).values():
        if callable(value) and getattr(value, "__module__", None) == module.__name__:
            yield from specs_of(value)


def _specs_in(item: str | Path | ModuleType | Callable[..., Any]) -> Iterator[OpSpec]:
    if isinstance(item, ModuleType):
        yield from _module_specs(item)
    elif callable(item):
        found = specs_of(item)
        if not found:
            raise InputError(
                f"ops: {getattr(item, '__name__', item)!r} is not declared with an opbridge decorator.",
                fix="decorate it with opbridge.translation, opbridge.decomposition, opbridge.rewrite or "
                "opbridge.operator.",
            )
        yield from found
    else:
        for file in _files(Path(item)):
            yield from _module_specs(_import_file(file))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*.py") if file.name != "__init__.py")
    if path.is_file():
        return [path]
    raise InputError(f"ops: there is no file or folder {str(path)!r}.", fix="check the path.")


def _import_file(file: Path) -> ModuleType:
    resolved = file.resolve()
    name = f"{OPS_FILE_PREFIX}{hashlib.sha256(str(resolved).encode()).hexdigest()[:12]}_{resolved.stem}"
    if name in sys.modules:
        return sys.modules[name]
    specification = importlib.util.spec_from_file_location(name, resolved)
    if specification is None or specification.loader is None:
        raise InputError(f"ops: {str(file)!r} is not a Python file.", fix="pass a .py file or a folder of .py files.")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, (InputError, KeyboardInterrupt)):
            raise
        raise InputError(
            f"ops: {str(file)!r} fails when it is imported: {type(error).__name__}: {error}",
            fix="correct the file; run it with python to see the error.",
        ) from error
    return module
