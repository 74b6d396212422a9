"""The layout's rules: new things are new files, no torch at import, small modules, no stubs."""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import opbridge

pytestmark = [pytest.mark.newest, pytest.mark.one_worker]

PACKAGE = Path(opbridge.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
OPERATOR_FILES = [file for file in sorted((PACKAGE / "catalog" / "ops").rglob("*.py")) if file.name != "__init__.py"]

NEW_FILES = {
    "catalog/ops/special/zeta_of_the_test.py": '''"""An operator."""

from opbridge.catalog.declare.spec import decomposition


@decomposition("opbridge_tests::lost")
def lost(x):
    """lost(Tensor x) -> Tensor

    Nothing.
    """
    return x * 0
''',
    "findings/of_the_test.py": '''"""A finding of the test.

What it means: nothing.

Why it is a problem: it is none.

Example::

    pass

Fix: none.
"""

from opbridge.findings.base import Finding

CODE = "of-the-test"


def detect(program):
    """Found in every program."""
    yield Finding(CODE, "model", "the test found it", "do nothing.", severity="info")
''',
    "engines/passes/of_the_test.py": '''"""A pass of the test."""

from opbridge.engines.passes.cast_around_missing_types import CastAroundMissingTypesPass


class OfTheTestPass(CastAroundMissingTypesPass):
    """Nothing new."""
''',
    "engines/of_the_test/__init__.py": '''"""An engine of the test."""

from opbridge.engines.onnxruntime.engine import OnnxRuntimeEngine


class OfTheTestEngine(OnnxRuntimeEngine):
    """ONNX Runtime by another name."""

    name = "of_the_test"


ENGINE = OfTheTestEngine
''',
    "cli/of_the_test.py": '''"""A subcommand of the test."""

from opbridge.cli._options import ONNX, add_command
from opbridge.cli._outcome import Outcome

GROUP = ONNX
EXAMPLE = "opbridge of_the_test"


def register(commands):
    """Add the subcommand."""
    add_command(commands, "of_the_test", lambda arguments, progress: Outcome({}, str), help="say hello")
''',
}

CODE = """
import torch
import opbridge, opbridge.cli, opbridge.engines, opbridge.engines.passes.of_the_test
from opbridge.catalog.declare.catalog import Catalog

schema = "(Tensor x) -> Tensor"
lost = torch.library.custom_op("opbridge_tests::lost", lambda x: x.clone(), mutates_args=(), schema=schema)
lost.register_fake(torch.empty_like)
assert opbridge.__file__.startswith({folder!r}), opbridge.__file__
assert "of_the_test" in opbridge.engines.names()
assert opbridge.engines.get("of_the_test").version
chosen = Catalog.load().find(torch.ops.opbridge_tests.lost.default)
assert chosen is not None and "zeta_of_the_test" in chosen.source
diagnosis = opbridge.diagnose(lambda x: lost(x), (torch.rand(3),), engines=["of_the_test"])
assert diagnosis.ok, diagnosis.to_dict()
assert "of-the-test" in [finding.code for finding in diagnosis.findings]
assert "of_the_test" in opbridge.cli.build_parser().format_help()
"""


@pytest.mark.slow
def test_adding_one_thing_edits_no_file(tmp_path: Path) -> None:
    """A copy of the package, with one new operator, finding, pass, engine and subcommand dropped in."""
    shutil.copytree(PACKAGE, tmp_path / "opbridge", ignore=shutil.ignore_patterns("__pycache__"))
    before = {file: file.read_bytes() for file in (tmp_path / "opbridge").rglob("*.py")}
    for name, text in NEW_FILES.items():
        file = tmp_path / "opbridge" / name
        file.parent.mkdir(exist_ok=True)
        assert not file.exists()
        file.write_text(text)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + CODE.format(folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(file.read_bytes() == data for file, data in before.items())


LIGHT = [
    "opbridge",
    "opbridge.errors",
    "opbridge.catalog.declare.spec",
    "opbridge.bundle.bundle",
    "opbridge.bundle.load",
    "opbridge.bundle.write",
    "opbridge.cli",
    "opbridge.engines",
    "opbridge.engines.onnxruntime",
    "opbridge.engines.process.isolation",
    "opbridge.capture.entry",
]


def test_the_light_part_imports_nothing_heavy() -> None:
    code = (
        f"import sys, importlib\nfor name in {LIGHT}: importlib.import_module(name)\n"
        "heavy = {'torch', 'onnx', 'onnx_ir', 'onnxscript', 'onnxruntime', 'torchvision'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_modules_are_small_and_finished() -> None:
    assert [problem for file in MODULES for problem in _problems(file)] == []


@functools.cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _problems(file: Path) -> Iterator[str]:
    """What is too long, unfinished or undocumented in a module."""
    place, text = file.relative_to(PACKAGE), file.read_text()
    if len(text.splitlines()) >= 400:
        yield f"{place} has 400 lines or more"
    if re.search(r"\b(TODO|FIXME|XXX)\b|raise NotImplementedError", text):
        yield f"{place} is not finished"
    tree = _tree(file)
    if tree.body and not ast.get_docstring(tree):
        yield f"{place} has no docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [item for item in node.body if not _is_docstring(item)]
            if body and (body[-1].end_lineno or 0) - body[0].lineno + 1 > 60:
                yield f"{place}: {node.name} is longer than 60 lines"
            if not body and not ast.get_docstring(node):
                yield f"{place}: {node.name} is a stub"


REGISTRIES = {
    *(
        "__init__.py",
        "catalog/complex/rules.py",
        "catalog/declare/catalog.py",
        "cli/__init__.py",
        "engines/__init__.py",
    ),
    *("engines/own.py", "findings/__init__.py", "ladder/adapt.py", "onnx_model/opsets/steps.py"),
    *("proof/reduce/engine_script.py", "proof/reduce/torch_script.py", "surgery/__init__.py"),
    *("vision/__init__.py", "vision/old_nodes.py"),
}
"""Files that import the modules that they find in a folder, or the public names when they are used."""


def test_layers_are_not_evaded() -> None:
    """import-linter sees neither imports by a string nor what the package's lazy public names import."""
    assert [problem for file in MODULES for problem in _evasions(file)] == []


def _evasions(file: Path) -> Iterator[str]:
    if not re.search("import_module|__import__|from opbridge import", file.read_text()):
        return
    place = file.relative_to(PACKAGE).as_posix()
    nodes = list(ast.walk(_tree(file)))
    called = [node for node in nodes if isinstance(node, ast.Call) and _imports(node.func)]
    if called and place not in REGISTRIES:
        named = [
            node.value
            for node in nodes
            if isinstance(node, ast.Constant) and re.fullmatch(r"opbridge(\.\w+)+", str(node.value))
        ]
        built = [node for node in nodes if isinstance(node, ast.JoinedStr) and _names_a_module(node)]
        if named or built:
            yield f"{place} imports a module of opbridge by a string"
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "opbridge":
            for alias in node.names:
                if not (PACKAGE / alias.name).is_dir() and not (PACKAGE / f"{alias.name}.py").is_file():
                    yield f"{place} imports the public name {alias.name} from opbridge"


def _imports(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    return name in ("import_module", "__import__")


def _names_a_module(text: ast.JoinedStr) -> bool:
    """Whether an f-string begins like a module of opbridge, or with the name of this module or of a package."""
    first = text.values[0]
    if isinstance(first, ast.FormattedValue):
        return ast.unparse(first.value) in ("__name__", "__package__", "package.__name__")
    return ast.unparse(first).strip("'").startswith("opbridge.")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_every_package_and_module_is_found() -> None:
    for folder in {file.parent for file in MODULES}:
        assert (folder / "__init__.py").is_file(), folder


def test_operator_files_state_their_schemas() -> None:
    assert [problem for file in OPERATOR_FILES for problem in _unstated(file)] == []


def _unstated(file: Path) -> Iterator[str]:
    from importlib import import_module

    from opbridge.catalog.declare.catalog import _module_specs

    name = ".".join(("opbridge", *file.relative_to(PACKAGE).with_suffix("").parts))
    specs = list(_module_specs(import_module(name)))
    if not specs:
        yield f"{name} declares nothing"
    for spec in specs:
        documentation = spec.function.__doc__ or ""
        operator_name = spec.target.partition("::")[2].split(".")[0]
        schema = rf"\b{operator_name}(\.\w+)?\(.*\)\s+-> "
        # The body of a node follows its translation, and a rewrite replaces a Python function.
        if spec.rung in ("decompose", "translate") and not re.search(schema, documentation, re.DOTALL):
            yield f"{name}: {spec.function.__name__} does not state its schema"
        if not spec.summary:
            yield f"{name}: {spec.function.__name__} does not say what it computes"


_FILES_OF_INTERNALS = (
    "branch_shapes.py",
    "custom_ops.py",
    "decomposed.py",
    "divisible_sizes.py",
    "equal_sizes.py",
    "example_values.py",
    "gradients.py",
    "internals.py",
    "largest_sizes.py",
    "mutations.py",
    "recurrent.py",
    "reuse.py",
    "short_quotients.py",
    "short_sizes.py",
    "size_branches.py",
    "subgraphs.py",
    "torch_registry.py",
    "torchscript.py",
)


def test_names_of_test_files_are_unique() -> None:
    """pytest imports each test file under its bare name."""
    names = Counter(file.name for file in (Path(__file__).parents[1]).rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


INTERNAL = re.compile(r"\btorch(?:\.\w+)*\._\w+(?:\.\w+)*")


def test_internals_of_torch_are_read_in_one_file() -> None:
    """Underscored modules of torch are named in torch_internals.py, those of the old exporter in torchscript.py.

    ``torch._check`` is documented, its underscore notwithstanding; an operator of ATen is one that the catalog maps.
    """
    allowed = re.compile(
        r"torch\._ops|torch\.utils\._pytree|torch\.testing\._internal|torch\.(Tensor\.)?__|torch\._check\b|torch\.ops\.aten\."
    )

    def internals(text: str) -> list[str]:
        return [match for match in INTERNAL.findall(text) if not allowed.match(match)]

    found = [
        f"{file.relative_to(PACKAGE)}: {match}"
        for file in MODULES
        if file.name not in _FILES_OF_INTERNALS
        if internals(file.read_text())
        for match in internals(_without_strings(file.read_text()))
    ]
    assert found == []


def _without_strings(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.unparse(tree)
