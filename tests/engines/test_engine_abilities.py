"""What engines can do, one set of tests for all: an ability that one lacks must be refused in the words it states."""

from __future__ import annotations

import concurrent.futures
import importlib.metadata
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_models import Cnn, Deform, Extremes, PythonExtremes, SoftSteps
from one_node import FLOAT, one_node

import opbridge
from opbridge import engines
from opbridge.catalog.declare.operator import without_kernels
from opbridge.engines.abilities import ABILITIES
from opbridge.engines.base import Engine
from opbridge.engines.profiling import profile_isolated
from opbridge.errors import EngineError, EngineNotInstalledError, InputError, OpbridgeError, UnsupportedOperatorError
from opbridge.kernels.declared import declared_kernels
from opbridge.ladder.build import build

pytestmark = pytest.mark.newest

NAMES = [name for name in engines.names() if engines.get(name).is_installed()]
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++"))), reason="not run: kernels need a C++ compiler"
)


@pytest.fixture(params=NAMES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engines.get(request.param)


@pytest.fixture(autouse=True)
def reference_functions() -> Iterator[None]:
    """In PyTorch, operators run their Python function: that is what engines are held against."""
    with without_kernels():
        yield


def attempt(engine: Engine, *abilities: str, act: Callable[[], object]) -> None:
    """Do what takes these abilities; where the engine lacks one, it must say so, and what to do."""
    lacking = [ability for ability in abilities if ability in engine.limits]
    if not lacking:
        act()
        return
    with pytest.raises(OpbridgeError) as caught:
        act()
    words = [engine.limits[ability] for ability in lacking]
    assert any(re.search(word, str(caught.value)) for word in words), f"{caught.value} says none of {words}"
    assert caught.value.fix


def export(engine: Engine, model: torch.nn.Module, args: tuple, folder: Path, **options) -> opbridge.Bundle:
    return opbridge.export(model, args, path=folder / "bundle", engines=[engine.name], **{"verify": False, **options})


def compare(session, model: torch.nn.Module, *inputs: torch.Tensor) -> None:
    """An engine's outputs against the eager module's."""
    with torch.no_grad():
        expected = model(*inputs)
    results = session(*(tensor.numpy() for tensor in inputs))
    for result, tensor in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert result.dtype == tensor.numpy().dtype
        np.testing.assert_allclose(result, tensor.numpy(), rtol=1e-4, atol=1e-4)


def test_every_limit_is_an_ability(engine):
    assert set(engine.limits) <= set(ABILITIES)
    for pattern in engine.limits.values():
        re.compile(pattern)


@pytest.mark.quick("onnxruntime", every=0)
def test_a_cnn_at_several_sizes_in_threads_and_in_two_sessions(engine, tmp_path):
    model, image = Cnn(), torch.randn(2, 3, 12, 12)
    dynamic = {"image": {0: "n"}} if "dynamic shapes" not in engine.limits else None
    bundle = export(engine, model, (image,), tmp_path, verify=True, dynamic_shapes=dynamic)
    if engine.not_run is not None:
        assert bundle.verification["verdict"] == engine.not_run.verdict
        assert engine.not_run.reason in bundle.verification["error"]
        assert bundle.verified is None
    else:
        assert bundle.verified, bundle.verification

    def run() -> None:
        one, two = (opbridge.load(bundle.path, engine.name, threads=1) for _ in range(2))
        compare(one, model, image)
        if dynamic:
            compare(one, model, torch.randn(5, 3, 12, 12))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(compare, session, model, torch.randn(2, 3, 12, 12)) for session in (one, two) * 4]:
                done.result()

    attempt(engine, "runs", "threads", "two sessions", act=run)


@pytest.mark.quick("onnxruntime", "reference", every=0)
def test_the_time_of_each_node(engine, tmp_path):
    def act() -> None:
        bundle = export(engine, Cnn(), (torch.randn(2, 3, 12, 12),), tmp_path)
        image = np.zeros((2, 3, 12, 12), np.float32)
        times = profile_isolated(engine.name, bundle.model_file(engine.name), {bundle.inputs[0].name: image}, runs=2)
        assert all(item.seconds >= 0 for item in times)
        assert 0 < sum(item.seconds for item in times) < 10
        assert any("conv" in item.operator.lower() for item in times)

    attempt(engine, "node times", "runs", act=act)


@pytest.mark.quick("onnxruntime", every=0)
def test_no_threads_are_refused(engine, tmp_path):
    bundle = export(engine, Cnn(), (torch.randn(1, 3, 12, 12),), tmp_path)
    with pytest.raises(InputError if engine.not_run is None else OpbridgeError) as caught:
        opbridge.load(bundle.path, engine.name, threads=0)
    assert engine.not_run is not None or "at least one thread" in caught.value.message


@pytest.mark.quick("onnxruntime", "reference", every=0)
def test_an_operator_with_a_function_body(engine, tmp_path):
    def act() -> None:
        bundle = export(engine, SoftSteps(), (torch.randn(3, 4),), tmp_path)
        assert "enginetest::soft_step" in [step["target"] for step in bundle.manifest["operators"]]
        compare(opbridge.load(bundle.path, engine.name), SoftSteps(), torch.randn(3, 4))

    attempt(engine, "function bodies", "runs", act=act)


def refuses_kernels(engine: Engine) -> bool:
    """Whether the engine takes no kernels; then it says so, and function bodies run in their place."""
    if "kernels" not in engine.limits:
        return False
    specs = [spec for spec in declared_kernels() if spec.target == "enginetest::extremes"]
    with pytest.raises(EngineError, match=engine.limits["kernels"]) as caught:
        build(specs, engine)
    assert "the bodies run" in caught.value.fix
    return True


@pytest.fixture(params=[Extremes, PythonExtremes], ids=["C++", "Python"])
def kernel_model(request: pytest.FixtureRequest) -> type[Extremes]:
    """A model of kernels that are written in one language or the other: all else is the same."""
    if request.param is PythonExtremes:
        pytest.importorskip("numba", reason="not run: numba is not installed")
    return request.param


@pytest.mark.quick("onnxruntime-C++-float32", every=0)
@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_a_kernel_with_attributes_two_outputs_and_an_optional_input(engine, tmp_path, dtype, kernel_model):
    def tensor(*sizes: int) -> torch.Tensor:
        return torch.randint(-50, 50, sizes).to(getattr(torch, dtype))

    def act() -> None:
        model, shapes = kernel_model(), {"x": {0: "n"}, "offset": {0: "n"}}
        bundle = export(engine, model, (tensor(4, 5), tensor(4, 5)), tmp_path, dynamic_shapes=shapes)
        (library,) = bundle.manifest["kernels"]
        assert library["operators"] == [model.operator.target]
        session = opbridge.load(bundle.path, engine.name)
        for size in (4, 7):
            compare(session, model, tensor(size, 5), tensor(size, 5))

    if refuses_kernels(engine):
        return
    abilities = ["kernel attributes", "several outputs", "optional inputs", "dynamic shapes", "runs"]
    attempt(engine, *abilities, *([dtype] if dtype in ABILITIES else []), act=act)


@pytest.mark.quick("onnxruntime-C++", every=6)
@needs_compiler
def test_a_kernel_that_fails(engine, tmp_path, kernel_model):
    def act() -> None:
        bundle = export(engine, kernel_model(factor=0), (torch.randn(4, 5), torch.randn(4, 5)), tmp_path)
        session = opbridge.load(bundle.path, engine.name)
        x = np.zeros((4, 5), np.float32)
        for _ in range(2):  # The first failure must not be the end of the session.
            with pytest.raises(EngineError, match=r"enginetest::\w+: the factor must not be zero") as caught:
                session(x, x)
            assert caught.value.fix

    if not refuses_kernels(engine):
        attempt(engine, "kernel attributes", "several outputs", "optional inputs", "runs", act=act)


@pytest.mark.quick("reference", every=0)
def test_deform_conv2d_with_a_mask_and_groups(engine, tmp_path):
    pytest.importorskip("torchvision", reason="not run: torchvision is not installed")
    inputs = (torch.randn(1, 4, 7, 7), 2 * torch.randn(1, 36, 7, 7), torch.rand(1, 18, 7, 7))

    def act() -> None:
        bundle = export(engine, Deform(), inputs, tmp_path)
        compare(opbridge.load(bundle.path, engine.name), Deform(), *inputs)

    attempt(engine, "deform_conv2d", "runs", act=act)


def test_a_refused_node_is_named_with_operator_reason_and_fix(engine, tmp_path):
    model = one_node("Frobnicate", [(FLOAT, [2])], [(FLOAT, [2])], domain="mine")
    if engine.accepts != "onnx":
        with pytest.raises(InputError, match=f"{engine.name} takes PyTorch programs") as refused:
            opbridge.diagnose(model, engines=[engine.name])
        assert "--engine" in refused.value.fix
        return
    (finding,) = [f for f in opbridge.diagnose(model, engines=[engine.name]).findings if f.severity == "error"]
    assert finding.target == "mine::Frobnicate"
    for text in ("mine::Frobnicate", f"{engine.name} {engine.version}", "the_node"):
        assert text in finding.message + " ".join(finding.sources), finding
    assert "body_for" in finding.fix
    with pytest.raises(UnsupportedOperatorError, match=rf"mine::Frobnicate: .*\[{engine.name}\] \(node 'the_node'\)"):
        opbridge.export(model, path=tmp_path / "bundle", engines=[engine.name])
    assert not (tmp_path / "bundle").exists()


@pytest.mark.quick("onnxruntime", "reference", every=0)
def test_a_library_for_another_platform(engine, tmp_path):
    bundle = export(engine, SoftSteps(), (torch.randn(3, 4),), tmp_path)
    # The head of an ELF file for RISC-V, and nothing after it.
    foreign = tmp_path / "foreign.so"
    foreign.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\xf3\x00\x01\x00\x00\x00" + bytes(40))
    act = lambda: opbridge.load(bundle.path, engine.name, libraries=[foreign])  # noqa: E731
    if "kernels" in engine.limits or engine.not_run is not None:
        with pytest.raises(OpbridgeError):
            act()
        return
    with pytest.raises(InputError, match=r"foreign\.so (was built for|is truncated)") as caught:
        act()
    assert caught.value.fix


def test_an_engine_that_is_not_installed(engine, monkeypatch):
    """Without its package it says how to install it; one that is asked a list instead of a package does not run."""
    folder = f"opbridge.engines.{engine.name}"
    known = [module for name, module in sys.modules.items() if name.startswith(folder)]
    caches = [value for module in known for value in vars(module).values() if hasattr(value, "cache_clear")]
    module = {"tvm": "tvm", "reference": "onnx"}.get(engine.name, engine.package.replace("-", "_"))
    real = importlib.metadata.version

    def version(package: str) -> str:
        if package.replace("-", "_") == engine.package.replace("-", "_"):
            raise importlib.metadata.PackageNotFoundError(package)
        return real(package)

    monkeypatch.setitem(sys.modules, module, None)
    if module == "pyppl":
        monkeypatch.setitem(sys.modules, "pyppl.nn", None)
    monkeypatch.setattr(importlib.metadata, "version", version)
    for cache in caches:
        cache.cache_clear()
    try:
        lost = type(engine)()
        if lost.is_installed():
            assert lost.not_run is not None
            assert lost.not_run.fix
            return
        with pytest.raises(EngineNotInstalledError, match=r"is not installed") as caught:
            _ = lost.version
        assert "pip install" in caught.value.fix
    finally:
        monkeypatch.undo()
        for cache in caches:
            cache.cache_clear()
