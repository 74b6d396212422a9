"""The tests of kernels once more, under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_cases import SANITIZE, SOURCES, sanitizer_runtimes

from opbridge.engines.onnxruntime import adapter_source
from opbridge.kernels.compiler import build

# A kernel that writes one element too many, and one that overflows an int.
FAULTY = """#include "opbridge.h"
void beyond(opbridge::Call& call) {
  const auto y = call.output<float>(0);
  y[y.count()] = 1;
}
void overflow(opbridge::Call& call) {
  const auto x = call.input<int32_t>(0);
  call.output<int32_t>(0)[0] = x[0] + x[0];
}
OPBRIDGE_OPERATOR(beyond, opbridge::shape_of_first, "mylib::beyond(float32 x) -> float32 y")
OPBRIDGE_OPERATOR(overflow, opbridge::shape_of_first, "mylib::overflow(int32 x) -> int32 y")
"""
PROGRAM = """
import sys
from pathlib import Path
import numpy
from opbridge.kernels.library import KernelLibrary
dtype = {"mylib::beyond": "float32", "mylib::overflow": "int32"}[sys.argv[2]]
KernelLibrary(Path(sys.argv[1])).run(sys.argv[2], [numpy.full(1000, 2**31 - 1, dtype)])
print("not noticed")
"""


RUNTIMES = sanitizer_runtimes()
ENVIRONMENT = {
    **os.environ,
    "LD_PRELOAD": ":".join(RUNTIMES),
    # Python itself leaks on purpose, and a request for too much memory is to fail, not to end the process.
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "OPBRIDGE_TEST_SANITIZE": "1",
}

pytestmark = [
    pytest.mark.newest,
    pytest.mark.skipif(
        SANITIZE or not RUNTIMES or not all(Path(runtime).is_absolute() for runtime in RUNTIMES),
        reason="this compiler has no libraries of the sanitizers to preload, or they are already",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operator", "finding"),
    [("mylib::beyond", "AddressSanitizer: heap-buffer-overflow"), ("mylib::overflow", "signed integer overflow")],
)
def test_the_sanitizers_notice(operator, finding, tmp_path):
    source = tmp_path / "faulty.h"
    source.write_text(FAULTY)
    library = build([source], sanitize=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(library), operator],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finding in done.stderr
    assert "faulty.h" in done.stderr
    assert done.returncode != 0
    assert "not noticed" not in done.stdout


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("name", ["library", "onnxruntime"])
def test_the_tests_of_kernels_are_clean(name):
    # Compiled here, since the compiler would run slowly under the sanitizer.
    build(SOURCES, adapters=[] if name == "library" else [adapter_source()], sanitize=True)
    file = str(Path(__file__).with_name(f"test_kernels_{name}.py"))
    # Files that no loader takes, and builds, are no business of the sanitizers.
    apart = ("declared_twice", "can_not_be_used", "without_the_adapter", "child_process", "older_onnxruntime")
    chosen = " and ".join(f"not {name}" for name in apart)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-m", "", "-k", chosen, file]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    printed = done.stdout + done.stderr
    # A report's first lines say what happened and where; its end is Python's own stack.
    at = max(printed.find("ERROR: AddressSanitizer"), printed.find("runtime error"), 0)
    assert done.returncode == 0, printed[at : at + 3000]
    assert "runtime error" not in printed
