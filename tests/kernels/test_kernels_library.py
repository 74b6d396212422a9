"""Libraries of kernels in Python: what they say of themselves, and how they run on NumPy arrays."""

from __future__ import annotations

import ctypes
import shutil
import struct
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from kernel_cases import LARGE, SANITIZE, SOURCES, check_pieces

from opbridge.errors import EngineError, InputError
from opbridge.kernels import abi
from opbridge.kernels.binary import binary_platform, own_platform
from opbridge.kernels.compiler import build
from opbridge.kernels.library import KernelArgument, KernelAttribute, KernelLibrary

pytestmark = pytest.mark.one_worker

F32 = np.float32


@pytest.fixture(scope="module")
def library() -> KernelLibrary:
    return KernelLibrary(build(SOURCES, sanitize=SANITIZE))


def test_what_a_library_says_of_itself(library):
    add = library.operator("mylib::my_add")
    assert add.schema == "mylib::my_add(T a, T b, float alpha=2.0) -> T sum"
    assert add.inputs == (KernelArgument("a", "T"), KernelArgument("b", "T"))
    assert add.outputs == (KernelArgument("sum", "T"),)
    assert add.attributes == (KernelAttribute("alpha", "float", False, 2.0),)
    assert add.variants == (("float32",), ("float64",), ("float16",), ("bfloat16",), ("int64",), ("uint8",))
    assert add.find_variant(["float16", "float16"]) == ("float16",)
    assert add.find_variant(["float16", "float32"]) is None
    assert add.output_dtypes(("float16",)) == ("float16",)
    assert add.to_dict()["attributes"][0] == {"name": "alpha", "kind": "float", "required": False, "default": 2.0}
    statistics = library.operator("mylib::statistics")
    assert statistics.type_variables == ("T", "W")
    assert statistics.variants[0] == ("float32", "int32")
    assert len(statistics.variants) == 4
    assert statistics.outputs[1] == KernelArgument("variance", "float32", optional=True)
    assert library.operator("mylib::sum_all").inputs == (KernelArgument("xs", "T", variadic=True),)
    assert library.operator("mylib::where_true").variants == ((),)
    defaults = {item.name: (item.kind, item.default) for item in library.operator("mylib::attributes").attributes}
    assert defaults == {
        "n": ("int", None),
        "factor": ("float", -0.25),
        "mode": ("string", "ab"),
        "axes": ("ints", [7, -8]),
        "scales": ("floats", []),
        "names": ("strings", ["one", "three"]),
        "table": ("tensor", None),
    }
    with pytest.raises(InputError, match=r"has no operator 'mylib::absent'") as caught:
        library.operator("mylib::absent")
    assert "mylib::my_add" in caught.value.fix


LAYOUTS = {
    "contiguous": lambda x: x,
    "every other": lambda x: x[:, ::2],
    "backwards": lambda x: x[::-1, ::-1],
    "transposed": lambda x: x.T,
    "one row": lambda x: x[1:2],
    "repeated": lambda x: np.broadcast_to(x[0], (3, *x[0].shape)),
    "no elements": lambda x: x[:, :0].T,
    "a scalar": lambda x: x[1, 1],
    "bytes swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "inside a record": lambda x: _record(x),
    "unaligned": lambda x: np.frombuffer(b"-" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
}


def _record(x):
    record = np.zeros(x.shape, [("tag", "u1"), ("value", x.dtype)])
    record["value"] = x
    return record["value"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_of_any_layout(library, layout):
    x = np.arange(20, dtype=F32).reshape(4, 5)
    view = np.asarray(LAYOUTS[layout](x))
    found, values = library.run("mylib::my_add", [view, view]), view.astype(F32)
    np.testing.assert_array_equal(found[0], np.asarray(3 * values, F32), strict=True)
    if view.ndim:
        (rolled,) = library.run("mylib::roll", [view], {"shifts": [1], "axes": [-1]})
        np.testing.assert_array_equal(rolled, np.roll(values, 1, -1))


@pytest.mark.parametrize(
    "shapes", [((3, 1, 2), (4, 1)), ((1,), (2, 3)), ((), (2, 1)), ((2, 0), (1, 1)), ((5, 1), (5, 7))]
)
def test_broadcasting(library, shapes):
    a, b = (np.random.default_rng(0).standard_normal(shape).astype(F32) for shape in shapes)
    np.testing.assert_array_equal(library.run("mylib::my_add", [a, b])[0], 2 * a + b, strict=True)
    np.testing.assert_array_equal(library.run("mylib::my_add", [b, a])[0], 2 * b + a, strict=True)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_number_of_16_bits(library, dtype):
    numbers = np.arange(2**16, dtype=np.uint16).view(dtype)
    (same,) = library.run("mylib::my_add", [numbers, np.full((), -0.0, dtype)], {"alpha": 1.0})
    with np.errstate(invalid="ignore"):
        both_nan = np.isnan(numbers) & np.isnan(same)
    np.testing.assert_array_equal(same.view(np.uint16)[~both_nan], numbers.view(np.uint16)[~both_nan])
    # Rounding: the halves between neighbours, and a bit beside them.
    random = np.random.default_rng(0)
    values = random.standard_normal(100_000).astype(F32) * F32(10.0) ** random.integers(-9, 6, 100_000)
    with np.errstate(over="ignore", invalid="ignore"):
        values = values.astype(dtype)
        others = values[::-1].copy()
        expected = (2 * values.astype(F32) + others.astype(F32)).astype(dtype)
    np.testing.assert_array_equal(library.run("mylib::my_add", [values, others])[0], expected)


def test_shapes_alone(library):
    x = np.zeros((2, 3), F32)
    assert library.shapes("mylib::largest", [x], {"axis": 0}) == ((3,), (3,))
    assert library.shapes("mylib::where_true", [x > 0]) == ((None, 2),)
    assert library.shapes("mylib::unstack", [x], output_count=2) == ((3,), (3,))
    with pytest.raises(EngineError, match=r"mylib::unstack: x has 2 rows for 3 outputs"):
        library.shapes("mylib::unstack", [x], output_count=3)


def test_signatures(library):
    x = np.arange(6, dtype=F32).reshape(2, 3)
    assert np.array_equal(library.run("mylib::scale", [x, x])[0], x * x)
    assert np.array_equal(library.run("mylib::scale", [x, x, None])[0], x * x)
    assert np.array_equal(library.run("mylib::scale", [x, x, x])[0], x * x + x)
    assert np.array_equal(library.run("mylib::sum_all", [x] * 7)[0], 7 * x)
    assert library.run("mylib::count_more", [x, x, x[:1]])[0].tolist() == [2, 9]
    assert library.run("mylib::count_more", [x])[0].tolist() == [0, 0]
    assert library.run("mylib::how_many", [])[0] == 0
    assert np.array_equal(library.run("mylib::where_true", [x > 2])[0], np.argwhere(x > 2))
    rows = library.run("mylib::unstack", [x], output_count=2)
    assert np.array_equal(rows[1], x[1])
    mean, variance = library.run("mylib::statistics", [x, np.ones((2, 3), np.int32)])
    assert (mean, variance) == (F32(2.5), F32(35 / 12))
    given = {"n": 1, "factor": 0.5, "mode": "é", "axes": (), "scales": [1.5], "names": ["", "ab"], "table": x[:, ::2]}
    (found,) = library.run("mylib::attributes", [np.zeros(1)], given)
    letters = list(np.frombuffer("é".encode(), np.int8))
    assert found.tolist() == [1, 0.5, *letters, 1.5, 0, 2, 0, 2, 3, 5]


BAD_CALLS = {
    "too few": (
        ("my_add", [np.zeros(1, F32)], {}),
        "takes mylib::my_add(T a, T b, float alpha=2.0) -> T sum, but",
    ),
    "too many": (("my_add", [np.zeros(1, F32)] * 3, {}), "but got 3 inputs"),
    "a missing one": (("my_add", [None, np.zeros(1, F32)], {}), "mylib::my_add: input 'a' is required"),
    "another dtype": (("scale", [np.zeros(1)] * 2, {}), "mylib::scale has no kernel for x: float64, factor: float64"),
    "nothing that tells a type": (
        ("sum_all", [], {}),
        "mylib::sum_all has no kernel for no inputs, so the output type",
    ),
    "mixed dtypes": (("my_add", [np.zeros(1), np.zeros(1, F32)], {}), "no kernel for a: float64, b: float32"),
    "no such dtype": (("my_add", [np.zeros(1, complex)] * 2, {}), "mylib::my_add: input 'a' is complex128 of rank 1"),
    "no such attribute": (("my_add", [np.zeros(1, F32)] * 2, {"beta": 1.0}), "mylib::my_add has no attribute 'beta'"),
    "an int for a float": (
        ("my_add", [np.zeros(1, F32)] * 2, {"alpha": 1}),
        "'alpha' takes a value of kind float",
    ),
    "a text for ints": (
        ("roll", [np.zeros(1, F32)], {"shifts": "ab"}),
        "'shifts' takes a value of kind ints",
    ),
    "a required attribute": (("roll", [np.zeros(1, F32)], {}), "mylib::roll: attribute 'shifts' is required"),
    "how many outputs": (("unstack", [np.zeros((1, 1), F32)], {}), "mylib::unstack has any number of outputs"),
}
if np.lib.NumpyVersion(np.__version__) >= "2.0.0":  # NumPy 1 has no array of rank 33.
    BAD_CALLS["rank 33"] = (("my_add", [np.zeros((1,) * 33, F32)] * 2, {}), "of rank 33")


@pytest.mark.parametrize("name", BAD_CALLS)
def test_calls_that_do_not_fit(library, name):
    (operator, arrays, attributes), message = BAD_CALLS[name]
    with pytest.raises(InputError) as caught:
        library.run(f"mylib::{operator}", arrays, attributes)
    assert message in caught.value.message
    assert caught.value.fix


FAULTS = {
    "std::exception": "mylib::faults: beyond the end",
    "number": "mylib::faults: an exception that is no std::exception",
    "check": "mylib::faults: expected 3, got sizes (4,) and 2.5",
    "parallel": "mylib::faults: in a thread",
    "shape throws": "mylib::faults: no such shape",
    "negative": "mylib::faults: output 'y' would have the sizes (-7,)",
    "forget": "mylib::faults: the kernel did not allocate output 'y'",
    "twice": "mylib::faults: output 0 is allocated already",
    "unneeded": "mylib::faults: output 0 is allocated already",
    "type": "mylib::faults: input 'x' is float32, but the kernel reads int8",
    "attribute": "mylib::faults: the schema has no attribute 'absent'",
    "kind": "mylib::faults: attribute 'how' is read as another kind",
    "input": "mylib::faults: there is no input 5",
    "scratch": "mylib::faults: no memory for 144115188075855872 elements of scratch",
    "long": "mylib::faults: xxxxx",
}


@pytest.mark.parametrize("how", FAULTS)
def test_a_kernel_that_goes_wrong(library, how):
    with pytest.raises(EngineError) as caught:
        library.run("mylib::faults", [np.zeros(4, F32)], {"how": how})
    assert FAULTS[how] in caught.value.message
    assert len(caught.value.message) < abi.ERROR_SIZE
    assert caught.value.fix


def test_sizes_beyond_32_bits(library):
    """Of a tensor that takes no memory; the run on real ones is the next test."""
    x = np.broadcast_to(np.arange(3, dtype=np.uint8), (2**31 + 5, 3))
    assert library.run("mylib::far", [x])[0].tolist() == [3 * 2**31 + 15, 2, 3 * 2**31 + 15]
    assert library.shapes("mylib::my_add", [x, x[:1]]) == ((2**31 + 5, 3),)


@pytest.mark.skipif(not LARGE, reason="OPBRIDGE_TEST_LARGE=1 is not set: it takes 5 GB and a minute")
def test_more_elements_than_an_int32_counts(library):
    x = np.arange(2**31 + 16, dtype=np.uint8)
    (found,) = library.run("mylib::my_add", [x, np.array([1], np.uint8)], {"alpha": 3.0})
    assert found.shape == x.shape
    for part in (slice(0, 300), slice(2**31 - 300, None)):
        np.testing.assert_array_equal(found[part], x[part] * np.uint8(3) + np.uint8(1))


def test_calls_from_several_threads(library):
    x = np.random.default_rng(0).standard_normal((64, 999)).astype(F32)
    wrong = []

    def repeat(alpha):
        for _ in range(20):
            (found,) = library.run("mylib::my_add", [x, x[:1]], {"alpha": alpha})
            if not np.array_equal(found, F32(alpha) * x + x[:1]):
                wrong.append(alpha)

    threads = [threading.Thread(target=repeat, args=(float(alpha),)) for alpha in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_files_that_are_no_libraries(tmp_path):
    with pytest.raises(InputError, match="There is no library of kernels at"):
        KernelLibrary(tmp_path / "absent.so")
    for text in (b"", b"\x7fELF", b"MZ", b"not a library at all"):
        (tmp_path / "text.so").write_bytes(text)
        with pytest.raises(InputError, match=r"text\.so is not a shared library"):
            KernelLibrary(tmp_path / "text.so")


def test_a_truncated_library(library, tmp_path):
    whole = library.path.read_bytes()
    for size in (100, 4096, len(whole) // 10):
        (tmp_path / "half.so").write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"half\.so is truncated: \d+ bytes are missing"):
            KernelLibrary(tmp_path / "half.so")


def test_a_library_that_the_loader_refuses(library, tmp_path):
    broken = bytearray(library.path.read_bytes())
    broken[64:4096] = bytes(4096 - 64)
    (tmp_path / "broken.so").write_bytes(broken)
    with pytest.raises(InputError, match=r"broken\.so can't be loaded: ") as caught:
        KernelLibrary(tmp_path / "broken.so")
    assert "build it again" in caught.value.fix


def test_a_library_for_another_platform(library, tmp_path):
    content = bytearray(library.path.read_bytes())
    if content[:4] == b"\x7fELF":
        riscv = 0xF3
        content[18:20] = struct.pack("<H", riscv)
        (tmp_path / "other.so").write_bytes(content)
        with pytest.raises(InputError, match=f"other.so was built for linux-riscv64, and this is {own_platform()}"):
            KernelLibrary(tmp_path / "other.so")
    headers = {
        "windows-x86_64": b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0" + struct.pack("<H", 0x8664),
        "macos-aarch64": b"\xcf\xfa\xed\xfe" + struct.pack("<I", 0x0100000C) + bytes(24),
    }
    for platform, header in headers.items():
        (tmp_path / "other.so").write_bytes(header + bytes(100))
        assert binary_platform(tmp_path / "other.so") == platform
        with pytest.raises(InputError, match=f"other.so was built for {platform}, and this is {own_platform()}"):
            KernelLibrary(tmp_path / "other.so")


def test_somebody_elses_library(tmp_path):
    import _ctypes

    copy = shutil.copy(_ctypes.__file__, tmp_path / "theirs.so")
    with pytest.raises(InputError, match=r"theirs\.so is not a library of opbridge kernels: it has no"):
        KernelLibrary(Path(copy))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "library.abi_version = 2;",
            "was built for version 2 of opbridge's kernel ABI, and this",
        ),
        ('library.error = "the operator a::b is declared twice";', "the operator a::b is declared twice"),
        ("library.operator_count = 0;", "has no operators"),
    ],
)
def test_a_library_that_can_not_be_used(change, message, tmp_path):
    source = tmp_path / "strange.cc"
    source.write_text(
        '#include "opbridge/abi.h"\n'
        'extern "C" OPBRIDGE_EXPORT const opbridge_library* opbridge_get_library(void) {\n'
        '  static opbridge_library library{OPBRIDGE_ABI_VERSION, sizeof(opbridge_library), "", nullptr, nullptr, 1};\n'
        f"  {change}\n  return &library;\n}}\n"
    )
    with pytest.raises(InputError) as caught:
        KernelLibrary(build([source]))
    assert message in caught.value.message
    assert "build it again" in caught.value.fix


def test_an_operator_declared_twice(tmp_path):
    source = tmp_path / "twice.h"
    source.write_text(
        '#include "opbridge.h"\nvoid f(opbridge::Call&) {}\n'
        + 'OPBRIDGE_OPERATOR(f, opbridge::shape_of_first, "a::b(float32 x) -> float32 y")\n' * 2
    )
    with pytest.raises(InputError, match="the operator a::b is declared twice"):
        KernelLibrary(build([source]))


def test_the_c_function_itself(library):
    """The table is the same at every call, and names its platform."""
    raw = ctypes.CDLL(str(library.path)).opbridge_get_library
    raw.restype = ctypes.POINTER(abi.Library)
    first, second = raw().contents, raw().contents
    assert ctypes.addressof(first) == ctypes.addressof(second)
    assert first.platform.decode() == own_platform()
    assert first.struct_size == ctypes.sizeof(abi.Library)


def test_the_exponential_is_exact_to_two_units(library):
    """Over all floats, every thousandth, and where results overflow, are subnormal, or vanish; and special values."""
    every = np.arange(0, 2**32, 1031, dtype=np.uint64).astype(np.uint32).view(F32)
    ends = [np.linspace(*around, 20_001, dtype=F32) for around in ((88.7, 88.8), (-88, -87), (-104.1, -103.2), (-1, 1))]
    special = np.array([0, -0.0, 89, 90, 91, np.inf, -104, -106, -107, -np.inf, np.nan, -np.nan], F32)
    x = np.concatenate([every, *ends, special])
    (found,) = library.run("mylib::exponential", [x])
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        exact = np.exp(x.astype(np.float64))
        rounded = exact.astype(F32)
    finite = np.isfinite(rounded)
    units = np.abs(found[finite] - exact[finite]) / np.spacing(rounded[finite]).astype(np.float64)
    assert 1 < units.max() < 2
    np.testing.assert_array_equal(found[~finite], rounded[~finite])
    np.testing.assert_array_equal(found[x < -104], 0)
    assert found[-12:-10].tolist() == [1, 1]


def test_logarithms_are_exact_to_one_and_a_half_units(library):
    """Over all positive floats, every thousandth, around the numbers where results vanish; and special values."""
    every = np.arange(0, 0x7F800000, 1031, dtype=np.uint32).view(F32)
    ends = [np.linspace(*around, 20_001, dtype=F32) for around in ((0.9, 1.1), (-0.999, 0.5), (-1e-6, 1e-6))]
    special = np.array([0, -0.0, -1, np.inf, -np.inf, np.nan, 1], F32)
    x = np.concatenate([every, *ends, special])
    results = library.run("mylib::logarithms", [x])
    for found, function, most in zip(results, (np.log, np.log1p), (0.9, 1.5), strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = function(x.astype(np.float64))
        rounded = exact.astype(F32)
        finite = np.isfinite(rounded)
        units = np.abs(found[finite] - exact[finite]) / np.spacing(np.abs(rounded[finite])).astype(np.float64)
        assert 0.5 < units.max() < most
        np.testing.assert_array_equal(found[~finite], rounded[~finite])
    assert results[0][-1] == 0
    assert np.signbit(results[1][-6])


def test_pieces_of_a_parallel_loop(library):
    for total in (1, 10, 19, 101):
        check_pieces(library.run("mylib::pieces", [np.zeros(total, np.int64)], {"grain": 10})[0], total, 10)
