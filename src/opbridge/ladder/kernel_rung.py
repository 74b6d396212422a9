"""The rung ``kernel``: finds the nodes of a model that have a declared kernel, and builds one library per engine."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch
from torch.utils import _pytree as pytree

from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.kernel_choice import ALWAYS, AUTO, NEVER
from opbridge.engines.base import Engine
from opbridge.errors import BuildError
from opbridge.kernels import numba_compiler
from opbridge.kernels.declared import KernelSpec, declared_kernels
from opbridge.kernels.sources import include_folders
from opbridge.kernels.toolchain import find_compiler
from opbridge.ladder.build import Built, build
from opbridge.ladder.climbed import NoCompiler
from opbridge.ladder.plan import Plan
from opbridge.onnx_model.scopes import all_nodes
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.targets import calls_in, target_key

__all__ = ["build_kernels", "buildable", "kernels_in", "kernels_on_few_elements", "uses_kernels_of_catalog"]

_FEW = 4096
"""Elements of a tensor on which a kernel is not worth a library."""


def uses_kernels_of_catalog(catalog: Catalog, engines: Sequence[Engine]) -> bool:
    """Whether to plan with the catalog's mappings to nodes with kernels, in place of others.

    Raises:
        BuildError: There is no compiler, and the user always wants kernels.
    """
    if catalog.kernels == NEVER or not any(engine.takes_kernels for engine in engines):
        return False
    # Measured in ONNX Runtime, which computes each node of the other mappings for itself; another engine may need the
    # library for the same nodes.
    if catalog.kernels == AUTO and any(engine.joins_elementwise for engine in engines):
        return False
    try:
        find_compiler()
    except BuildError:
        if catalog.kernels == ALWAYS:
            raise
        return False
    return True


def kernels_on_few_elements(planned: Plan) -> set[str]:
    """The catalog's mappings to kernels whose inputs and outputs have few elements in the example.

    They are identified as in :meth:`Plan.mapping_of`. A size that depends on data counts as 2.
    """
    most: dict[str, int] = {}
    for node in calls_in(planned.program):
        key = target_key(node.target)
        if key in planned.chosen and planned.chosen[key].rung == "kernel":
            tensors = pytree.tree_leaves([item.meta.get("val") for item in (node, *node.all_input_nodes)])
            most[key] = max(most.get(key, 0), *(_count(value) for value in tensors if isinstance(value, torch.Tensor)))
    return {planned.mapping_of(key) for key, count in most.items() if count < _FEW}


def _count(tensor: torch.Tensor) -> int:
    return math.prod(torch_internals.example_of(size) for size in tensor.shape)


def kernels_in(model: ir.Model, catalog: Catalog) -> list[KernelSpec]:
    """The declared kernels of the model's nodes, including those in subgraphs and function bodies.

    opbridge's own are left out if the user never wants them.
    """
    present = {f"{node.domain}::{node.op_type}" for node in all_nodes(model)}
    kernels = [kernel for kernel in declared_kernels() if kernel.target in present]
    return [kernel for kernel in kernels if catalog.kernels != NEVER or not kernel.is_own]


def buildable(
    kernels: Sequence[KernelSpec], model: ir.Model, engines: Sequence[Engine], *, dry: bool = False
) -> tuple[list[KernelSpec], NoCompiler | None]:
    """The kernels that can be built, and what is missing for the others, whose nodes run their function bodies.

    Args:
        kernels: The kernels of the model's nodes.
        model: The model with its function bodies.
        engines: The engines; if none of them loads kernels, no compiler is searched for.
        dry: Whether this is a dry run, in which no kernel is built and no error is raised.

    Raises:
        BuildError: A kernel can't be built, and its node has no function body (not in a dry run).
    """
    if not kernels or not any(engine.takes_kernels for engine in engines):
        return list(kernels), None
    obstacles = {kernel: error for kernel in kernels if (error := _obstacle(kernel)) is not None}
    if not obstacles:
        return list(kernels), None
    built = [kernel for kernel in kernels if kernel not in obstacles]
    bodiless = {
        f"{node.domain}::{node.op_type}" for node in all_nodes(model) if node.op_identifier() not in model.functions
    }
    lost = [kernel for kernel in obstacles if kernel.target in bodiless]
    served = tuple(kernel.target for kernel in obstacles if kernel not in lost)
    error = obstacles[lost[0]] if lost else next(iter(obstacles.values()))
    missing = NoCompiler(error.message, error.fix, served, tuple(kernel.target for kernel in lost))
    if dry:
        return [*built, *lost], missing
    if lost:
        raise BuildError(
            f"{error.message} So {', '.join(missing.lost)} can't run: there is no function body for it.",
            fix=f"{error.fix} Or give it a body: opbridge.body_for({missing.lost[0]!r}).",
            details=error.details,
        ) from error
    warnings.warn(
        f"{', '.join(served)}: the slower function body runs instead of the kernel. {error.message} {error.fix}",
        stacklevel=4,
    )
    return built, missing


def _obstacle(kernel: KernelSpec) -> BuildError | None:
    """Why a kernel can't be built: a compiler or a requirement is missing. None if it can be built."""
    try:
        find_compiler()
        if kernel.python is not None:
            numba_compiler.versions()
        else:
            include_folders([kernel.file])
    except BuildError as error:
        return error
    return None


def build_kernels(
    kernels: Sequence[KernelSpec], engines: Sequence[Engine], report: Callable[[str], None]
) -> dict[str, Built]:
    """One library per engine that loads kernels; a model without kernels does not require a compiler."""
    takers = [engine for engine in engines if engine.takes_kernels]
    if kernels and takers:
        report("building kernels")
    return {engine.name: build(kernels, engine) for engine in takers} if kernels else {}
