"""ONNX Runtime's adapter for kernels, on the installed version and on the oldest that it supports."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from kernel_cases import LARGE, SANITIZE, SOURCES, Case, cases, check_pieces, model_of, node_case
from one_node import save
from onnx import TensorProto, helper

import opbridge
from opbridge import engines
from opbridge.engines.onnxruntime import adapter_source
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.errors import EngineError, InputError
from opbridge.kernels.compiler import build

pytestmark = pytest.mark.one_worker

ENGINE = engines.get("onnxruntime")
# Under AddressSanitizer a request for too much memory ends the process.
CASES = {case.name: case for case in cases() if not (SANITIZE and case.name == "fault: scratch")}
OLD = "OPBRIDGE_TEST_OLD_ORT_PYTHON"


@pytest.fixture(scope="module")
def library() -> Path:
    return build(SOURCES, adapters=[adapter_source()], sanitize=SANITIZE)


def check(case: Case, results: list[np.ndarray]) -> None:
    for found, expected in zip(results, case.expected, strict=True):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.quick("add", every=0)
@pytest.mark.parametrize("name", CASES)
def test_on_the_installed_version(name, library, tmp_path):
    case = CASES[name]
    path = save(case.model, tmp_path / "model.onnx")

    def run():
        session = ENGINE.load(path, threads=2, libraries=[library])
        return list(session.run(dict(case.feeds)).values())

    if case.error is None:
        check(case, run())
        return
    with pytest.raises(EngineError) as caught:
        run()
    assert case.error in caught.value.message


# Runs every case of a folder in an environment that has nothing but NumPy and ONNX Runtime.
PROGRAM = """
import json, sys
from pathlib import Path
import numpy, onnxruntime
folder, library = Path(sys.argv[1]), sys.argv[2]
errors = {}
for model in sorted(folder.glob("*.onnx")):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    try:
        options.register_custom_ops_library(library)
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        results = session.run(None, dict(numpy.load(model.with_suffix(".in.npz"))))
        numpy.savez(model.with_suffix(".out.npz"), *results)
    except Exception as error:
        errors[model.stem] = str(error)
print(json.dumps({"version": onnxruntime.__version__, "errors": errors}))
"""


def run_elsewhere(python: str, folder: Path, library: Path) -> dict:
    done = subprocess.run(
        [python, "-c", PROGRAM, str(folder), str(library)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(OLD not in os.environ, reason=f"{OLD} names no Python that has ONNX Runtime 1.17, the oldest")
def test_on_an_older_version(library, tmp_path):
    listed = list(CASES.values())
    for index, case in enumerate(listed):
        save(case.model, tmp_path / f"{index:03}.onnx")
        np.savez(tmp_path / f"{index:03}.in.npz", **case.feeds)
    answer = run_elsewhere(os.environ[OLD], tmp_path, library)
    print("ONNX Runtime", answer["version"])
    for index, case in enumerate(listed):
        error = answer["errors"].get(f"{index:03}")
        if case.error is not None:
            assert case.error in (error or ""), case.name
            continue
        assert error is None, f"{case.name}: {error}"
        with np.load(tmp_path / f"{index:03}.out.npz") as results:
            check(case, list(results.values()))


def test_shapes_are_inferred_where_they_are_known(library, tmp_path):
    x, mask = np.zeros((2, 3), np.float32), np.zeros((2, 3), bool)
    shapes = {
        case.name: ENGINE.load(save(case.model, tmp_path / "model.onnx"), libraries=[library]).outputs[0].shape
        for case in (
            node_case("known", "my_add", [x, x[0]], [x], static=True),
            node_case("of attributes", "sized", [x], [x], static=True, lengths=[2, 3], factor=2, mode="twice"),
            node_case("data-dependent", "where_true", [mask], [np.zeros((0, 2), np.int64)], static=True),
        )
    }
    assert shapes == {"known static": (2, 3), "of attributes static": (20, 2), "data-dependent static": ()}


def test_operators_of_two_sessions_at_once(library, tmp_path):
    x = np.random.default_rng(0).standard_normal((64, 999)).astype(np.float32)
    case = node_case("add", "my_add", [x, x[:1]], [2 * x + x[:1]])
    path = save(case.model, tmp_path / "model.onnx")
    first, second = (ENGINE.load(path, threads=2, libraries=[library]) for _ in range(2))
    wrong = []

    def repeat(session):
        for _ in range(50):
            found = session.run(case.feeds)["y0"]
            if not np.array_equal(found, case.expected[0]):
                wrong.append(found)

    threads = [threading.Thread(target=repeat, args=(session,)) for session in (first, first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("threads", [1, 3])
def test_pieces_of_a_parallel_loop(library, tmp_path, threads):
    node = helper.make_node("pieces", ["x"], ["y"], domain="mylib", grain=10)
    model = model_of([node], {"x": (TensorProto.INT64, ["n"])}, {"y": TensorProto.INT64})
    session = ENGINE.load(save(model, tmp_path / "model.onnx"), threads=threads, libraries=[library])
    for total in (1, 10, 19, 101, 100_003):
        found = session.run({"x": np.zeros(total, np.int64)})["y"]
        check_pieces(found, total, 10)
        assert len(np.unique(found)) > (total >= 20)


@pytest.mark.sweep
def test_a_chain_of_nodes_reuses_memory(library, tmp_path):
    nodes = [helper.make_node("faults", [f"x{i}"], [f"x{i + 1}"], domain="mylib") for i in range(20)]
    model = model_of(nodes, {"x0": (TensorProto.FLOAT, ["n"])}, {"x20": TensorProto.FLOAT})
    path = save(model, tmp_path / "chain.onnx")
    x = np.arange(1000, dtype=np.float32)

    def repeat(sessions: int, runs: int) -> int:
        for _ in range(sessions):
            session = ENGINE.load(path, threads=1, libraries=[library])
            for _ in range(runs):
                assert np.array_equal(session.run({"x0": x})["x20"], x)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    if SANITIZE:
        repeat(1, 2)
        return
    before = repeat(5, 100)
    after = repeat(20, 200)
    assert after - before < 8 * 1024, "kibibytes; 80,000 kernel runs and 400 kernels"


@pytest.mark.skipif(not LARGE, reason="OPBRIDGE_TEST_LARGE=1 is not set: it takes 5 GB and a minute")
def test_more_elements_than_an_int32_counts(library, tmp_path):
    x = np.arange(2**31 + 16, dtype=np.uint8)
    case = node_case("large", "my_add", [x, x[:1]], [x])
    session = ENGINE.load(save(case.model, tmp_path / "model.onnx"), libraries=[library])
    found = session.run({"x0": x, "x1": x[1:2]})["y0"]
    assert found.shape == x.shape
    for part in (slice(0, 300), slice(2**31 - 300, None)):
        np.testing.assert_array_equal(found[part], x[part] * np.uint8(2) + np.uint8(1))


def test_through_the_public_load_and_in_a_child_process(library, tmp_path):
    x = np.ones((2, 2), np.float32)
    case = node_case("add", "my_add", [x, x], [3 * x])
    path = save(case.model, tmp_path / "model.onnx")
    assert np.array_equal(opbridge.load(path, libraries=[library]).run(case.feeds)["y0"], 3 * x)
    with IsolatedSession("onnxruntime", path, libraries=[library]) as session:
        assert np.array_equal(session.run(case.feeds)["y0"], 3 * x)


def test_without_the_library(tmp_path):
    x = np.ones((2, 2), np.float32)
    path = save(node_case("add", "my_add", [x, x], [x]).model, tmp_path / "model.onnx")
    with pytest.raises(EngineError, match="my_add"):
        ENGINE.load(path)


def test_a_library_without_the_adapter(tmp_path):
    x = np.ones((2, 2), np.float32)
    path = save(node_case("add", "my_add", [x, x], [x]).model, tmp_path / "model.onnx")
    plain = build([SOURCES[0]])
    with pytest.raises(EngineError) as caught:
        ENGINE.load(path, libraries=[plain])
    assert f"refuses the library {plain.name!r}" in caught.value.message
    assert "RegisterCustomOps" in caught.value.message
    assert "adapter" in caught.value.fix


KERNEL = """
#include "opbridge.h"
void same_shape(opbridge::ShapeCall& call) { call.set_output(0, call.sizes(0)); }
template <class T> void same(opbridge::Call& call) { call.output<T>(0)[0] = call.input<T>(0)[0]; }
OPBRIDGE_OPERATOR(same, same_shape, "mylib::same(T x) -> T y", opbridge::types<float>)
"""


@pytest.mark.sweep
def test_kernels_and_an_adapter_of_different_abi_versions(tmp_path):
    """What a program without Python would load: the adapter itself says it."""
    kernels = Path(opbridge.__file__).parent / "kernels"
    shutil.copytree(kernels / "opbridge", tmp_path / "other" / "opbridge")
    shutil.copy(kernels / "opbridge.h", tmp_path / "other")
    abi = tmp_path / "other" / "opbridge" / "abi.h"
    abi.write_text(abi.read_text().replace("#define OPBRIDGE_ABI_VERSION 1", "#define OPBRIDGE_ABI_VERSION 7"))
    (tmp_path / "same.cc").write_text(KERNEL)
    adapter = ENGINE.kernel_adapter
    compiler = shutil.which("g++") or shutil.which("clang++")
    compile_ = [compiler, "-std=c++17", "-O0", "-fPIC", "-c"]
    subprocess.run([*compile_, f"-I{abi.parent.parent}", "same.cc"], cwd=tmp_path, check=True)
    here = [f"-I{kernels}", f"-I{adapter.parent}", *ENGINE.adapter_flags.compile]
    subprocess.run([*compile_, *here, str(adapter)], cwd=tmp_path, check=True)
    library = tmp_path / "mixed.so"
    link = [compiler, "-shared", "same.o", "adapter.o", *ENGINE.adapter_flags.link, "-o", library.name]
    subprocess.run(link, cwd=tmp_path, check=True)
    message = "the kernels were built for version 7 of opbridge's kernel ABI, and their adapter for version 1"
    x = np.ones((2, 2), np.float32)
    path = save(node_case("add", "my_add", [x, x], [x]).model, tmp_path / "model.onnx")
    with pytest.raises(EngineError, match=message) as caught:
        ENGINE.load(path, libraries=[library])
    fix = "build its kernels and ONNX Runtime's adapter again, with one version of opbridge"
    assert caught.value.fix.startswith(fix)


def test_files_that_are_no_libraries(tmp_path):
    x = np.ones((2, 2), np.float32)
    path = save(node_case("add", "my_add", [x, x], [x]).model, tmp_path / "model.onnx")
    with pytest.raises(InputError, match="There is no library of kernels at"):
        ENGINE.load(path, libraries=[tmp_path / "absent.so"])
    with pytest.raises(InputError, match=r"model\.onnx is not a shared library"):
        ENGINE.load(path, libraries=[path])


def test_an_older_onnxruntime_gets_a_status_it_can_read(library):
    """RegisterCustomOps is called as ONNX Runtime 1.16 would: it has no API of version 17."""
    program = f"""
import ctypes
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
said = []
create_status = FUNCTION(lambda code, text: said.append((code, text.decode())) or 1)
table = (ctypes.c_void_p * 1)(ctypes.cast(create_status, ctypes.c_void_p))
GET = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
VERSION = ctypes.CFUNCTYPE(ctypes.c_char_p)
get_api = GET(lambda version: ctypes.addressof(table) if version <= 16 else None)
get_version = VERSION(lambda: b"1.16.3")
class Base(ctypes.Structure):
    _fields_ = [("get_api", GET), ("get_version", VERSION)]
register = ctypes.CDLL({str(library)!r}).RegisterCustomOps
register.restype = ctypes.c_void_p
assert register(None, ctypes.byref(Base(get_api, get_version)))
print(said)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    expected = "[(1, 'opbridge kernels need ONNX Runtime 1.17 or newer; this is 1.16.3')]"
    assert done.stdout.strip() == expected, done.stderr
