"""What is special about TensorRT: the parser's reasons, the engine file, and the plugins' sources."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from engine_models import Extremes, SoftSteps
from one_node import FLOAT, make_model, one_node, save, to_ir
from onnx import helper
from places import SUPPORT

import opbridge
from opbridge import engines
from opbridge.engines.probe import probe
from opbridge.engines.tensorrt_rtx.building import PROFILE, build_engine, sibling_path
from opbridge.engines.tensorrt_rtx.native import RTX, TENSORRT, parse
from opbridge.engines.tensorrt_rtx.plugins import write_sources
from opbridge.errors import EngineError, EngineNotInstalledError, InputError
from opbridge.kernels.compiler import HEADERS
from opbridge.kernels.declared import KernelSpec
from opbridge.ladder.adapt import adapt

pytestmark = pytest.mark.newest

STAND_INS = SUPPORT / "tensorrt_headers"
FOLDER = HEADERS.parent / "engines" / "tensorrt_rtx"
needs_parser = pytest.mark.skipif(
    not engines.get("tensorrt_rtx").is_installed(), reason="not run: TensorRT for RTX is not installed"
)
needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="not run: there is no g++")


@pytest.fixture
def engine():
    return engines.get("tensorrt_rtx")


def refusal_of(engine, model: onnx.ModelProto):
    converted = to_ir(model)
    return engine.supports(converted.graph[-1], converted.opset_imports)


def test_tensorrt_proper_is_another_engine_and_answers_for_itself(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    engine = engines.get("tensorrt")
    with pytest.raises(EngineNotInstalledError, match="TensorRT is not installed") as caught:
        _ = engine.version
    assert "docs.nvidia.com" in caught.value.fix
    assert not engine.is_installed()


@needs_parser
def test_a_refusal_has_the_parsers_own_words(engine):
    reasons = {
        "Det": ([(FLOAT, ["n", 3, 3])], [(FLOAT, ["n"])], "has no importer for ai.onnx::Det"),
        "Softmax": ([(FLOAT, ["n", 3])], [(FLOAT, ["n", 3])], "refuses it: Axis must be in the range"),
    }
    for op_type, (inputs, outputs, reason) in reasons.items():
        attributes = {"axis": 5} if op_type == "Softmax" else {}
        refusal = refusal_of(engine, one_node(op_type, inputs, outputs, **attributes))
        assert (refusal.node, refusal.operator) == ("the_node", f"ai.onnx::{op_type}")
        assert f"the parser of TensorRT for RTX {engine.version} {reason}" in refusal.reason


@needs_parser
@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        ("DOUBLE", "computes float64 as float32"),
        ("INT16", "has no tensors of int16"),
        ("INT64", None),
        ("BFLOAT16", None),
    ],
)
def test_element_types_that_the_parser_would_change_or_lacks(engine, dtype, reason):
    refusal = refusal_of(engine, one_node("Identity", [(dtype, [2])], [(dtype, [2])]))
    assert (refusal is None) == (reason is None)
    assert refusal is None or reason in refusal.reason


@needs_parser
def test_opsets(engine):
    """The parser looks at no opset: what a model of it can't have is refused all the same."""
    vector = [(FLOAT, [2])]
    assert refusal_of(engine, one_node("Relu", vector, vector, opset=engine.newest_opset)) is None
    newest = engine.newest_opset
    refusal = refusal_of(engine, one_node("Relu", vector, vector, opset=newest + 1))
    assert refusal.reason == f"TensorRT for RTX {engine.version} takes opsets up to {newest}, not {newest + 1}"
    refusal = refusal_of(engine, one_node("Gelu", vector, vector, opset=18))
    assert refusal.reason == "ai.onnx::Gelu is new in opset 20, and the model is of opset 18"


@needs_parser
def test_weights_are_asked_about_with_their_sizes(engine):
    """Without them the parser takes a convolution's channels for unknown, and refuses."""
    weight = helper.make_tensor("w", onnx.TensorProto.FLOAT, [64, 16, 3, 3], [0.0] * (64 * 16 * 9))
    model = make_model(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        {"x": (FLOAT, ["n", 16, 8, 8])},
        {"y": (FLOAT, ["n", 64, 6, 6])},
        initializers=[weight],
    )
    assert refusal_of(engine, model) is None


def function_called(name: str) -> onnx.ModelProto:
    """mylib::<name>(a, b) = a * b, called with x twice."""
    body = helper.make_function(
        "mylib", name, ["a", "b"], ["c"], [helper.make_node("Mul", ["a", "b"], ["c"])], [helper.make_opsetid("", 20)]
    )
    matrix = (FLOAT, ["n", 3])
    node = helper.make_node(name, ["x", "x"], ["y"], name="call", domain="mylib")
    return make_model([node], {"x": matrix}, {"y": matrix}, functions=[body], domains=["mylib"])


@needs_parser
def test_a_custom_node_is_an_unknown_plugin_and_its_body_runs(engine, tmp_path):
    model = to_ir(function_called("my_mul"))
    assert engine.supports(model.graph[0], model.opset_imports).reason == "no kernel for mylib::my_mul"
    assert probe(model, engine) == ()
    alone = one_node("my_mul", [(FLOAT, [3])], [(FLOAT, [3])], domain="mylib")
    with pytest.raises(EngineError, match=r"refuses 'm.onnx': node .*\(my_mul\): .*Plugin not found") as caught:
        build_engine(RTX, save(alone, tmp_path / "m.onnx"))
    assert "body_for" in caught.value.fix


@needs_parser
def test_a_function_called_like_an_operator_of_the_standard_gets_another_name(engine):
    """The parser would run ONNX's Add, and say nothing: this is the operator of the network's layer."""
    trap = function_called("Add")
    (layer,) = layers(parse(RTX, trap.SerializeToString()).network)
    assert layer.endswith("SUM")
    model, adaptations = adapt(to_ir(trap), engine)
    assert [found.what for found in adaptations] == [
        "the function mylib::Add becomes mylib::Add_function: the parser distinguishes functions only by it"
    ]
    (layer,) = layers(parse(RTX, ir.to_proto(model).SerializeToString()).network)
    assert layer.endswith("PROD")


@needs_parser
def test_overloads_of_a_function_get_names_of_their_own(engine, tmp_path):
    """The parser would run the body of one of them for both."""
    bundle = opbridge.export(
        SoftSteps(), (torch.randn(3, 4),), path=tmp_path / "b", engines=["tensorrt_rtx"], verify=False
    )
    model = onnx.load(bundle.path / "model.onnx")
    calls = [node.op_type for node in model.graph.node if node.domain == "enginetest"]
    assert len(set(calls)) == 2
    assert {(function.name, function.overload) for function in model.functions} == {(name, "") for name in calls}
    assert {change["what"].partition(" becomes")[0] for change in bundle.manifest["adaptations"]["tensorrt_rtx"]} == {
        "the function enginetest::soft_step"
    }


def layers(network) -> list[str]:
    from opbridge.engines.tensorrt_rtx.native import runtime

    trt = runtime(RTX)
    found = []
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        assert layer.type == trt.LayerType.ELEMENTWISE
        layer.__class__ = trt.IElementWiseLayer
        found.append(str(layer.op))
    return found


@needs_parser
def test_the_builder_names_what_it_can_not_build(engine, tmp_path, monkeypatch):
    from opbridge.engines.tensorrt_rtx import building

    model = one_node("Relu", [(FLOAT, ["n", 3])], [(FLOAT, ["n", 3])])
    path = save(model, tmp_path / "m.onnx")
    assert len(build_engine(RTX, path)) > 1000
    monkeypatch.setattr(building, "PROFILE", (9, 3, 1))
    with pytest.raises(EngineError, match=r"The builder of TensorRT for RTX fails on 'm\.onnx'") as caught:
        build_engine(RTX, path)
    assert "fixed sizes" in caught.value.fix
    assert PROFILE[0] <= PROFILE[1] <= PROFILE[2]
    assert sibling_path(path, "tensorrt_rtx", ".engine").name == "m.tensorrt_rtx.engine"
    assert sibling_path(Path("model.tensorrt_rtx.onnx"), "tensorrt_rtx", ".engine").name == "model.tensorrt_rtx.engine"


@needs_parser
@needs_gxx
def test_a_bundle_has_the_engine_file_and_the_plugins_sources_and_is_not_passed(engine, tmp_path):
    inputs = (torch.randn(4, 5), torch.randn(4, 5))
    bundle = opbridge.export(Extremes(), inputs, path=tmp_path / "b", engines=["tensorrt_rtx"])
    if engine.not_run is not None:
        assert bundle.verification["verdict"] == "built, not run"
        assert "no NVIDIA GPU" in bundle.verification["error"]
        assert "a sibling of TensorRT" in bundle.verification["error"]
        assert bundle.verified is None
        with pytest.raises(EngineError, match=r"can't run 'model\.onnx': this machine has no NVIDIA GPU"):
            opbridge.load(bundle.path, "tensorrt_rtx")
    assert (bundle.path / "model.tensorrt_rtx.engine").stat().st_size > 1000
    (described,) = json.loads((bundle.path / "model.tensorrt_rtx.plugins" / "plugins.json").read_text())
    assert described == {
        "name": "extremes",
        "namespace": "enginetest",
        "version": "1",
        "runs": "in a host kernel: its tensors are copied to the host and back",
    }
    calling = onnx.load(bundle.path / "model.tensorrt_rtx.plugins.onnx")
    nodes = [node for node in calling.graph.node if node.domain == "enginetest"]
    given = [{a.name: helper.get_attribute_value(a) for a in node.attribute} for node in nodes]
    assert {node.op_type for node in nodes} == {"extremes"}
    assert {(a["plugin_namespace"], a["plugin_version"]) for a in given} == {(b"enginetest", b"1")}
    assert sorted(a["factor"] for a in given) == [2, 3]
    assert not calling.functions
    # What is written compiles, against stand-ins of TensorRT's and CUDA's headers.
    sources = bundle.path / "model.tensorrt_rtx.plugins"
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{sources}", f"-I{STAND_INS}", "plugin.cc"]
    subprocess.run(command, cwd=sources, check=True, capture_output=True)


def compiled(folder: Path, *sources: Path) -> Path:
    """A program that does what TensorRT does with plugins, made of these and of what was compiled there before."""
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{HEADERS}", f"-I{FOLDER}", f"-I{STAND_INS}"]
    for source in sources:
        made = folder / f"{source.stem}{source.suffix}.o"
        subprocess.run(["g++", *flags, "-c", "-x", "c++", str(source), "-o", str(made)], check=True)
    subprocess.run(["g++", *map(str, sorted(folder.glob("*.o"))), "-o", str(folder / "host")], check=True)
    return folder / "host"


@pytest.mark.slow
@needs_gxx
def test_the_plugins_do_what_tensorrt_asks_of_them(tmp_path):
    host = compiled(tmp_path, FOLDER / "plugin.cc", STAND_INS / "host.cc", STAND_INS / "scaled.h")
    said = subprocess.run([host], check=True, capture_output=True, text=True).stdout.splitlines()
    assert said == [
        "1 creators: mylib::scaled version 1, field factor",
        "log: mylib::scaled: the node has no attribute 'factor', which is required, or TensorRT's parser hands over "
        "none of its type",
        "without its attribute: refused",
        "types: 0 1 1 of 2 outputs",
        "shapes: 0 1 3 1",
        "log: mylib::scaled: a must be a matrix",
        "of a vector: 1",
        "formats: 1 0 0",
        "run: 0 2 12 30",
    ]
    # With a kernel for the GPU, that one runs in place of the host's.
    host = compiled(tmp_path, STAND_INS / "scaled.cu")
    said = subprocess.run([host], check=True, capture_output=True, text=True).stdout.splitlines()
    assert said[-1] == "run: 0 7 0 0"


def test_a_kernel_for_the_gpu_is_compiled_and_named(tmp_path):
    kernel = KernelSpec("mylib::scaled", STAND_INS / "scaled.h", False, "here:1")
    write_sources(RTX, [kernel], tmp_path)
    assert json.loads((tmp_path / "plugins.json").read_text())[0]["runs"] == "on the GPU: scaled.cu"
    cmake = (tmp_path / "CMakeLists.txt").read_text()
    assert "project(opbridge_plugins CXX CUDA)" in cmake
    assert "plugin.cc ${KERNELS} scaled.cu" in cmake
    for name in ("scaled.h", "scaled.cu", "plugin.cc", "adapter/run.h", "opbridge/abi.h", "opbridge.h"):
        assert (tmp_path / name).is_file(), name


class Memory:
    """Memory of the stand-in's GPU, by its address."""

    at: ClassVar[dict[int, Memory]] = {}

    def __init__(self, size: int) -> None:
        self.data, self.address = bytearray(max(size, 1)), id(self)
        self.at[self.address] = self

    def fill(self, array: np.ndarray) -> None:
        self.data[: array.nbytes] = array.tobytes()

    def read(self, array: np.ndarray) -> None:
        array[...] = np.frombuffer(self.data, array.dtype, array.size).reshape(array.shape)


class Context:
    """Negates x, and takes at most four rows."""

    def __init__(self) -> None:
        self.fails = False

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shape = shape
        return shape[0] <= 4

    def set_tensor_address(self, name: str, address: int) -> None:
        self.address = address

    def set_output_allocator(self, name: str, allocator) -> None:
        self.name, self.allocator = name, allocator

    def execute_async_v3(self, stream: int) -> bool:
        x = np.frombuffer(Memory.at[self.address].data, np.float32, self.shape[0] * self.shape[1])
        place = self.allocator.reallocate_output_async(self.name, 0, x.nbytes, 256, stream)
        Memory.at[place].fill(-x)
        self.allocator.notify_shape(self.name, self.shape)
        return not self.fails


def test_a_session_by_a_stand_in_of_the_interface(tmp_path, monkeypatch):
    """It shows which calls are made and what is said when they fail; a GPU has not run it."""
    from opbridge.engines.tensorrt_rtx import cuda, native, session

    path = save(one_node("Neg", [(FLOAT, ["n", 3])], [(FLOAT, ["n", 3])]), tmp_path / "m.onnx")
    (tmp_path / "m.tensorrt.engine").write_bytes(b"an engine file")
    context, log = Context(), types.SimpleNamespace(messages=["its own\nwords"])
    made = types.SimpleNamespace(create_execution_context=lambda: context)
    files: list[bytes] = []
    loader = types.SimpleNamespace(deserialize_cuda_engine=lambda data: (files.append(data), made)[1])
    trt = types.SimpleNamespace(IOutputAllocator=object, Runtime=lambda logger: loader, __version__="11.4")
    monkeypatch.setattr(native, "runtime", lambda product: trt)
    monkeypatch.setattr(native, "logger", lambda product: log)
    stream = types.SimpleNamespace(handle=1, wait=lambda: None)
    for name, value in {"Memory": Memory, "Stream": lambda: stream, "enter": lambda: None}.items():
        monkeypatch.setattr(cuda, name, value)
    engine = types.SimpleNamespace(product=TENSORRT, version="11.4", name="tensorrt", not_run=None)

    def load(**options):
        return session.load_session(engine, path, **{"threads": None, "providers": None, "libraries": (), **options})

    loaded = load()
    assert files == [b"an engine file"]
    for rows in (2, 4, 0):
        x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        (y,) = loaded(x)
        assert np.array_equal(y, -x)
    with pytest.raises(EngineError, match=r"TensorRT takes no 'x0' of the sizes \[5, 3\]: its own words"):
        loaded(np.zeros((5, 3), np.float32))
    context.fails = True
    with pytest.raises(EngineError, match="TensorRT failed while running the model: its own words"):
        loaded(np.zeros((2, 3), np.float32))
    loader.deserialize_cuda_engine = lambda data: None
    with pytest.raises(EngineError, match="TensorRT can't load the engine file") as caught:
        load()
    assert "with this version" in caught.value.fix
    with pytest.raises(InputError, match="no execution providers"):
        load(providers=["CUDA"])
    with pytest.raises(EngineError, match=r"takes kernels only as plugins, and k\.so is not a plugin"):
        load(libraries=[Path("k.so")])


def test_a_gpu_is_looked_for_in_the_driver(monkeypatch):
    from opbridge.engines.tensorrt_rtx import cuda

    def driver(count: int, code: int):
        def count_into(pointer) -> int:
            pointer._obj.value = count
            return code

        return types.SimpleNamespace(cuInit=lambda flags: 0, cuDeviceGetCount=count_into)

    for found, gpus in ((driver(2, 0), 2), (driver(2, 100), 0)):
        monkeypatch.setattr(cuda, "_driver", lambda found=found: found)
        assert cuda.gpu_count.__wrapped__() == gpus
    failing = types.SimpleNamespace(cuMemAlloc_v2=lambda *args: 2)
    monkeypatch.setattr(cuda, "_driver", lambda: failing)
    with pytest.raises(EngineError, match="cuMemAlloc_v2 gave error 2") as caught:
        cuda.Memory(8)
    assert "out of memory" in caught.value.fix
