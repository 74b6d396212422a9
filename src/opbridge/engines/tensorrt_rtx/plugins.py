"""The sources of plugins for the nodes of a model that have kernels, and the model that calls them.

Nothing is compiled here: a plugin is compiled with CUDA and with the headers of the TensorRT version that loads it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opbridge.engines.tensorrt_rtx.building import sibling_path
from opbridge.engines.tensorrt_rtx.native import Product
from opbridge.engines.tensorrt_rtx.passes.own_names import ORIGINAL
from opbridge.kernels.compiler import HEADERS
from opbridge.kernels.declared import declared_kernels
from opbridge.kernels.sources import source_files

if TYPE_CHECKING:
    import onnx

    from opbridge.kernels.declared import KernelSpec

__all__ = ["cuda_source", "write_plugins", "write_sources"]

PLUGIN = Path(__file__).with_name("plugin.cc")


def write_plugins(product: Product, name: str, model: Path) -> tuple[Path, ...]:
    """Write the sources of a model's plugins and a model that calls them, in the folder of the model.

    Args:
        product: The product.
        name: The engine's name.
        model: An ONNX model whose nodes with kernels have function bodies; its weights may be external data.

    Returns:
        The files; none for a model without kernels.
    """
    import onnx

    read = onnx.load(model, load_external_data=False)
    scopes = (read.graph, *read.functions)
    present = {_operator(node) for scope in scopes for node in scope.node if node.domain}
    kernels = [kernel for kernel in declared_kernels() if kernel.target in present]
    if not kernels:
        return ()
    _call_plugins(read, {kernel.target for kernel in kernels})
    calling = sibling_path(model, name, ".plugins.onnx")
    onnx.save(read, calling)
    folder = sibling_path(model, name, ".plugins")
    return (calling, *write_sources(product, kernels, folder))


def cuda_source(kernel: KernelSpec) -> Path | None:
    """The file with an operator's GPU kernel: next to the header, with the same stem."""
    file = kernel.file.with_suffix(".cu")
    return file if file.is_file() else None


def write_sources(product: Product, kernels: Sequence[KernelSpec], folder: Path) -> tuple[Path, ...]:
    """Write the sources of a library of plugins, its CMakeLists.txt, and ``plugins.json`` with each operator's device.

    Args:
        product: The product.
        kernels: The kernels.
        folder: The folder to create.
    """
    headers = list(dict.fromkeys(kernel.header for kernel in kernels))
    gpu = list(dict.fromkeys(file for kernel in kernels if (file := cuda_source(kernel)) is not None))
    roots = [PLUGIN.parent, HEADERS, *(header.parent for header in headers)]
    written = []
    for file in source_files([PLUGIN, *headers, *gpu], [HEADERS, PLUGIN.parent]):
        inside = next((file.relative_to(root) for root in roots if file.is_relative_to(root)), Path(file.name))
        target = folder / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        written.append(target)
    (folder / "CMakeLists.txt").write_text(_cmake(product, headers, gpu))
    (folder / "plugins.json").write_text(json.dumps([_described(kernel) for kernel in kernels], indent=1) + "\n")
    return (*written, folder / "CMakeLists.txt", folder / "plugins.json")


def _described(kernel: KernelSpec) -> dict[str, str]:
    domain, _, name = kernel.target.partition("::")
    file = cuda_source(kernel)
    runs = (
        "in a host kernel: its tensors are copied to the host and back" if file is None else f"on the GPU: {file.name}"
    )
    return {"name": name, "namespace": domain, "version": "1", "runs": runs}


def _operator(node: onnx.NodeProto) -> str:
    """``"domain::Op"`` of a node before the model was adapted."""
    originals = (item.value for item in node.metadata_props if item.key == ORIGINAL)
    return next(originals, f"{node.domain}::{node.op_type}")


def _call_plugins(model: onnx.ModelProto, targets: set[str]) -> None:
    """Remove the function bodies of these nodes, and add the attributes that select their plugins."""
    import onnx

    bodies = set()
    for scope in (model.graph, *model.functions):
        for node in scope.node:
            operator = _operator(node)
            if operator not in targets:
                continue
            bodies.add((node.domain, node.op_type))
            node.op_type = operator.partition("::")[2]
            node.overload = ""
            node.attribute.append(onnx.helper.make_attribute("plugin_namespace", node.domain))
            node.attribute.append(onnx.helper.make_attribute("plugin_version", "1"))
    for function in [item for item in model.functions if (item.domain, item.name) in bodies]:
        model.functions.remove(function)


def _cmake(product: Product, headers: Sequence[Path], gpu: Sequence[Path]) -> str:
    languages = "CXX CUDA" if gpu else "CXX"
    names = " ".join(header.name for header in headers)
    on_gpu = "".join(f" {file.name}" for file in gpu)
    return f"""\
# cmake -B build -DTENSORRT=<the folder of {product.title}, with include/NvInfer.h in it> && cmake --build build
cmake_minimum_required(VERSION 3.18)
project(opbridge_plugins {languages})
find_package(CUDAToolkit REQUIRED)
set(TENSORRT "" CACHE PATH "The folder of {product.title}")
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CUDA_STANDARD 17)
set(KERNELS {names})
set_source_files_properties(${{KERNELS}} PROPERTIES LANGUAGE CXX HEADER_FILE_ONLY OFF COMPILE_OPTIONS "-x;c++")
add_library(opbridge_plugins SHARED plugin.cc ${{KERNELS}}{on_gpu})
target_include_directories(opbridge_plugins PRIVATE . "${{TENSORRT}}/include")
target_link_libraries(opbridge_plugins PRIVATE CUDA::cudart)
if(NOT APPLE AND NOT WIN32)
  target_link_options(opbridge_plugins PRIVATE -Wl,-Bsymbolic)
endif()
"""
