"""Compiling kernels: the cache, the header that authors include, and what they read when it fails."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kernel_cases import FOLDER

from opbridge.engines.onnxruntime import adapter_source
from opbridge.errors import BuildError
from opbridge.kernels import abi, toolchain
from opbridge.kernels.cache import cache_folder
from opbridge.kernels.compiler import HEADERS, build
from opbridge.kernels.compiler_errors import error_lines
from opbridge.kernels.library import KernelLibrary
from opbridge.kernels.sources import requirements, source_files

pytestmark = pytest.mark.newest

PLAIN = """#include "opbridge.h"
void plain(opbridge::Call& call) { call.output<float>(0)[0] = call.input<float>(0)[0] + VALUE; }
OPBRIDGE_OPERATOR(plain, opbridge::shape_of_first, "mylib::plain(float32 x) -> float32 y")
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPBRIDGE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(path: Path, text: str = PLAIN.replace("VALUE", "1")) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.slow
def test_the_cache_is_keyed_by_content(cache, tmp_path):
    source = write(tmp_path / "plain.h")
    first = build([source])
    assert first.parent == cache
    stamp = first.stat().st_mtime_ns
    (tmp_path / "elsewhere").mkdir()
    assert build([write(tmp_path / "elsewhere" / "plain.h")]) == first, "a moved file is the same kernel"
    assert first.stat().st_mtime_ns == stamp
    assert build([write(source, PLAIN.replace("VALUE", "2"))]) != first
    write(tmp_path / "value.h", "#define VALUE 3\n")
    including = write(source, f'#include "value.h"\n{PLAIN}')
    third = build([including])
    write(tmp_path / "value.h", "#define VALUE 4\n")
    fourth = build([including])
    assert fourth != third, "an included file counts"
    x = np.zeros(1, np.float32)
    assert [KernelLibrary(path).run("mylib::plain", [x])[0][0] for path in (first, third, fourth)] == [1, 3, 4]
    assert build([including], extra_compile_flags=["-DUNUSED"]) != fourth
    left = [path.name for path in cache.rglob("*") if path.is_file() and not path.name.endswith(".lock")]
    assert all(name.endswith((".so", ".dylib", ".o", ".code")) for name in left), left


@pytest.mark.slow
def test_native_instructions_are_part_of_the_key(cache, tmp_path):
    source = write(tmp_path / "plain.h")
    native = build([source], native=True)
    assert native != build([source])
    assert KernelLibrary(native).run("mylib::plain", [np.zeros(1, np.float32)])[0][0] == 1


def test_two_processes_at_once(cache, tmp_path):
    source = write(tmp_path / "plain.h")
    # Every compilation of the kernel leaves a line.
    counting = tmp_path / "counting"
    log = tmp_path / "log"
    compiler = toolchain.find_compiler().command[0]
    counting.write_text(f'#!/bin/sh\ncase "$*" in *plain.h*) echo "$$" >> {log};; esac\nexec {compiler} "$@"\n')
    counting.chmod(0o755)
    imports = "from pathlib import Path; from opbridge.kernels.compiler import build"
    program = f"{imports}; print(build([Path({str(source)!r})]))"
    environment = {**os.environ, "CXX": str(counting)}
    processes = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    answers = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    assert len(answers) == 1
    assert len(log.read_text().splitlines()) == 1
    assert KernelLibrary(Path(answers.pop())).operators[0].target == "mylib::plain"


ERRORS = {
    "a wrong name": (
        PLAIN.replace("VALUE", "nonsense"),
        [
            (
                "plain.h:2: 'nonsense' was not declared in this scope",
                "plain.h:2: use of undeclared identifier 'nonsense'",
            )
        ],
    ),
    "a missing header": (
        '#include "absent.h"\n',
        [("plain.h:1: absent.h: No such file or directory", "plain.h:1: 'absent.h' file not found")],
    ),
    "an unknown element type": (
        PLAIN.replace("input<float>", "input<char*>").replace("VALUE", "1"),
        ["plain.h:2:", "opbridge: tensors have no such element type; use float, double, opbridge::half"],
    ),
    "no domain": (
        PLAIN.replace("mylib::plain(", "plain(").replace("VALUE", "1"),
        ["plain.h:3:", "opbridge schema: it begins with domain::name, like mylib::my_add"],
    ),
    "no type": (PLAIN.replace("(float32 x", "(fluot x").replace("VALUE", "1"), ["plain.h:3:", "schema: unknown type;"]),
    "an unused type list": (
        PLAIN.replace('y")', 'y", opbridge::types<float>)').replace("VALUE", "1"),
        ["plain.h:3:", "opbridge::types<...> per type variable of the schema"],
    ),
}


@pytest.mark.quick("an unused type list", every=3)
@pytest.mark.parametrize("mistake", ERRORS)
def test_the_author_reads_the_error_and_its_line(mistake, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, expected = ERRORS[mistake]
    source = write(tmp_path / "plain.h", text)
    with pytest.raises(BuildError) as caught:
        build([source])
    error = caught.value
    assert error.message.startswith("plain.h does not compile:\n  ")
    assert len(error.message.splitlines()) <= 12
    said = error.message.translate({ord(quote): None for quote in "'‘’"})
    for words in expected:
        # GCC's or clang's.
        either = (words,) if isinstance(words, str) else words
        assert any(part.replace("'", "") in said for part in either), error.message
    assert "correct these lines" in error.fix
    assert str(source) in error.details
    assert not list(cache.glob("**/*.o")) + list(cache.glob("**/*.so"))


def test_clang_repeats_the_condition_of_an_assertion(tmp_path):
    """What clang 14 and 16 write; only the words of opbridge's own assertions stand for themselves."""
    output = """\
k.h:3:1: error: static_assert failed due to requirement '(Error)1 != Error::name' "opbridge schema: a domain"
k.h:4:1: error: static assertion failed due to requirement '(Error)1 != Error::name': opbridge schema: a type
k.h:3:1: error: static_assert failed due to requirement '::opbridge::detail::require_valid_schema()'
k.h:5:1: error: static_assert failed due to requirement 'N == 3'
"""
    assert error_lines(output, tmp_path) == [
        "k.h:3: static assertion failed: opbridge schema: a domain",
        "k.h:4: static assertion failed: opbridge schema: a type",
        "k.h:5: static_assert failed due to requirement 'N == 3'",
    ]


SCHEMAS = {
    "mylib::f(T a -> T y": "the parameters stand in ( )",
    "mylib::f(T) -> T y": "a name must follow the type",
    "mylib::f(T a, int n=0.5) -> T y": "a default does not fit its type",
    "mylib::f(T a, float n=0.12345678901234567890) -> T y": "a default has too many digits",
    "mylib::f(T a=1) -> T y": "inputs have no defaults",
    "mylib::f(T? a, T b) -> T y": "optional inputs come after the required ones",
    "mylib::f(T... a, T b) -> T y": "only the last input and the last output may have ...",
    "mylib::f(T a)": "-> and the output follow the parameters",
    "mylib::f(T a) -> (T y": "outputs are written -> T y",
    "mylib::f(T a) -> U y": "an output's type variable must be that of an input",
    "mylib::f(T a, T a) -> T y": "two parameters or two outputs have the same name",
    "mylib::f(T a) -> T y, T z": "something follows the outputs",
}


@pytest.mark.parametrize("half", [0, 1])
def test_every_mistake_in_a_schema_has_its_words(half, cache, tmp_path):
    """Several in one file, since each compiler start costs; not all, since clang stops after 20 errors."""
    schemas = list(SCHEMAS)[half::2]
    kernels = "\n".join(
        f'OPBRIDGE_OPERATOR(f, opbridge::shape_of_first, "{schema}", opbridge::types<float>)' for schema in schemas
    )
    head = '#include "opbridge.h"\ntemplate <class T>\nvoid f(opbridge::Call&) {}\n'
    source = write(tmp_path / "f.h", f"{head}{kernels}\n")
    with pytest.raises(BuildError) as caught:
        build([source])
    found = dict(
        line.strip().removeprefix(f"{source}:").split(": ", 1)
        for line in error_lines(caught.value.details, HEADERS, most=100)
        if "opbridge schema" in line
    )
    said = {schema: found.get(str(line), "nothing") for line, schema in enumerate(schemas, 4)}
    missing = {schema: text for schema, text in said.items() if SCHEMAS[schema] not in text}
    assert not missing


def test_no_compiler(cache, tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError) as caught:
        build([write(tmp_path / "plain.h")])
    assert caught.value.message == "A kernel needs a C++ compiler, and there is no g++ or clang++ on the path."
    for line in ("apt install g++", "brew install gcc", "conda install -c conda-forge cxx-compiler", "CXX"):
        assert line in caught.value.fix


def test_a_compiler_that_is_not_there(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(BuildError, match="names the compiler 'no-such-compiler', which does not exist"):
        build([write(tmp_path / "plain.h")])
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(BuildError, match="The compiler false does not print its version"):
        build([write(tmp_path / "plain.h")])


def test_a_compiler_that_dies(cache, tmp_path, monkeypatch):
    dying = tmp_path / "dying"
    dying.write_text('#!/bin/sh\ncase "$*" in *-c*) kill -9 $$;; esac\necho 1.0\n')
    dying.chmod(0o755)
    monkeypatch.setenv("CXX", str(dying))
    with pytest.raises(BuildError, match=r"the compiler .*dying was ended by signal 9"):
        build([write(tmp_path / "plain.h")])


def test_missing_sources_and_unwritable_caches(tmp_path, monkeypatch):
    with pytest.raises(BuildError, match="There is no kernel source at"):
        build([tmp_path / "absent.h"])
    monkeypatch.setenv("OPBRIDGE_CACHE", str(write(tmp_path / "file") / "cache"))
    with pytest.raises(BuildError, match="The cache of compiled kernels can't be written") as caught:
        build([write(tmp_path / "plain.h")])
    assert "OPBRIDGE_CACHE" in caught.value.fix


@pytest.mark.slow
def test_undefined_functions_are_found_when_linking(cache, tmp_path):
    text = PLAIN.replace("void plain", "float helper();\nvoid plain").replace("VALUE", "helper()")
    with pytest.raises(BuildError, match=r"plain.h does not compile:\n  undefined (reference to .helper|symbol)"):
        build([write(tmp_path / "plain.h", text)])


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("OPBRIDGE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/opbridge")
    # The specification ignores relative paths.
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert cache_folder() == Path.home() / ".cache" / "opbridge"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "opbridge"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == Path.home() / "Library" / "Caches" / "opbridge"


@pytest.mark.slow
def test_header_only_dependencies(cache, tmp_path, monkeypatch):
    eigen = write(tmp_path / "a.h", f"// opbridge: requires eigen\n{PLAIN.replace('VALUE', '1')}")
    assert requirements(eigen) == ("eigen",)
    assert requirements(FOLDER / "my_add.h") == ()
    monkeypatch.setattr("opbridge.kernels.sources._prefixes", lambda: [tmp_path])
    with pytest.raises(BuildError, match=r"a\.h requires eigen, which is not installed") as caught:
        build([eigen])
    assert "pip install cmeel-eigen" in caught.value.fix
    (tmp_path / "include" / "eigen3" / "Eigen").mkdir(parents=True)
    write(tmp_path / "include" / "eigen3" / "Eigen" / "Core", "#define VALUE 5\n")
    using = write(tmp_path / "b.h", f"// opbridge: requires Eigen\n#include <Eigen/Core>\n{PLAIN}")
    assert KernelLibrary(build([using])).run("mylib::plain", [np.zeros(1, np.float32)])[0][0] == 5
    other = write(tmp_path / "c.h", "// opbridge: requires boost\n")
    with pytest.raises(BuildError, match=r"c\.h requires 'boost', which opbridge does not know how to find"):
        build([other])


def test_the_files_that_a_kernel_is_made_of(tmp_path):
    write(tmp_path / "inner.h", '#include "outer.h"\n')
    outer = write(tmp_path / "outer.h", '#include <vector>\n#include "inner.h"\n#include "opbridge.h"\n')
    names = [path.name for path in source_files([outer], [HEADERS])]
    assert names[:3] == ["outer.h", "inner.h", "opbridge.h"]
    assert {"abi.h", "call.h", "registration.h"} <= set(names)


@pytest.mark.slow
def test_two_libraries_in_one_process_keep_apart(cache, tmp_path):
    one = build([write(tmp_path / "one.h")], extra_compile_flags=["-fvisibility=default"])
    two = build(
        [write(tmp_path / "two.h", PLAIN.replace("plain", "other").replace("VALUE", "2"))],
        extra_compile_flags=["-fvisibility=default"],
    )
    program = f"""
import ctypes
from pathlib import Path
from opbridge.kernels.library import KernelLibrary
for path in ({str(one)!r}, {str(two)!r}):
    ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    print([operator.target for operator in KernelLibrary(Path(path)).operators])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['mylib::plain']", "['mylib::other']"]


def test_the_c_interface_is_c(tmp_path):
    """Hosts may be written in C: the ABI's header compiles as C, and its layout is the one that Python uses."""
    kinds = {
        "tensor": abi.Tensor,
        "value": abi.Value,
        "call": abi.Call,
        "operator": abi.Operator,
        "library": abi.Library,
    }
    checks = "\n".join(
        f"int {name}[sizeof(opbridge_{name}) == {ctypes.sizeof(kind)} ? 1 : -1];" for name, kind in kinds.items()
    )
    source = tmp_path / "host.c"
    source.write_text(f'#include "opbridge/abi.h"\n{checks}\n')
    command = [*toolchain.find_compiler().command, "-x", "c", "-std=c99", "-Wall", "-Werror", "-Wno-unused-function"]
    subprocess.run([*command, f"-I{HEADERS}", "-fsyntax-only", str(source)], check=True)


@pytest.mark.slow
def test_no_warnings(tmp_path):
    """Authors may turn warnings into errors."""
    command = [*toolchain.find_compiler().command, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    source = write(tmp_path / "all.cc", '#include "my_add.h"\n#include "largest.h"\n#include "where_true.h"\n')
    subprocess.run([*command, f"-I{HEADERS}", f"-I{FOLDER}", str(source)], check=True)
    subprocess.run([*command, f"-I{HEADERS}", str(adapter_source())], check=True)
