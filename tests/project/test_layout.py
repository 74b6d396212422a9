"""The layout's rules: new things are new files, no torch at import, small modules, no stubs."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import opbridge

pytestmark = pytest.mark.newest

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

from opbridge.cli._options import add_command
from opbridge.cli._outcome import Outcome


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


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_module_is_small_and_finished(file: Path) -> None:
    text = file.read_text()
    assert len(text.splitlines()) < 400, "a module has under ~400 lines"
    assert not re.search(r"\b(TODO|FIXME|XXX)\b|raise NotImplementedError", text)
    tree = ast.parse(text)
    assert ast.get_docstring(tree) or not tree.body
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [item for item in node.body if not _is_docstring(item)]
            signature_and_body = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            assert signature_and_body <= 60, f"{node.name} is too long"
            assert body or ast.get_docstring(node), f"{node.name} is a stub"


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_every_package_and_module_is_found() -> None:
    for folder in {file.parent for file in MODULES}:
        assert (folder / "__init__.py").is_file(), folder


@pytest.mark.parametrize("file", OPERATOR_FILES, ids=lambda file: file.stem)
def test_an_operator_file_states_its_schemas(file: Path) -> None:
    from importlib import import_module

    from opbridge.catalog.declare.catalog import _module_specs

    name = ".".join(("opbridge", *file.relative_to(PACKAGE).with_suffix("").parts))
    specs = list(_module_specs(import_module(name)))
    assert specs, "it declares nothing"
    for spec in specs:
        documentation = spec.function.__doc__ or ""
        operator_name = spec.target.partition("::")[2].split(".")[0]
        schema = rf"\b{operator_name}(\.\w+)?\(.*\)\s+-> "
        # The body of a node follows its translation, and a rewrite replaces a Python function.
        if spec.rung in ("decompose", "translate"):
            assert re.search(schema, documentation, re.DOTALL), f"{spec.function.__name__} does not state its schema"
        assert spec.summary, f"{spec.function.__name__} does not say what it computes"


def test_internals_of_torch_are_read_in_one_file() -> None:
    """Underscored modules of torch are named in torch_internals.py, those of the old exporter in torchscript.py.

    ``torch._check`` is documented, its underscore notwithstanding; an operator of ATen is one that the catalog maps.
    """
    allowed = re.compile(
        r"torch\._ops|torch\.utils\._pytree|torch\.testing\._internal|torch\.__|torch\._check\b|torch\.ops\.aten\."
    )
    found = [
        f"{file.relative_to(PACKAGE)}: {match}"
        for file in MODULES
        if file.name not in ("internals.py", "reuse.py", "torchscript.py")
        for match in re.findall(r"\btorch(?:\.\w+)*\._\w+(?:\.\w+)*", _without_strings(file.read_text()))
        if not allowed.match(match)
    ]
    assert found == []


def _without_strings(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.unparse(tree)
