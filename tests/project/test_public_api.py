"""The public names: sorted, lazy, typed, and not hidden by the submodules of the same name."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from places import ROOT

import opbridge

pytestmark = pytest.mark.newest


def test_the_public_names_are_sorted_and_documented() -> None:
    assert opbridge.__all__ == sorted(opbridge.__all__)
    assert set(opbridge.__all__) <= set(dir(opbridge))
    for name in opbridge.__all__:
        assert inspect.getdoc(getattr(opbridge, name)), name


def test_what_type_checkers_see_is_what_there_is() -> None:
    tree = ast.parse(Path(opbridge.__file__).read_text())
    checking = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module
        for node in checking.body
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for alias in node.names
    }
    assert {*imported, "__version__"} == set(opbridge.__all__)
    for name, module in imported.items():
        assert getattr(opbridge, name) is getattr(importlib.import_module(module), name)


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'opbridge' has no attribute 'exprot'"):
        opbridge.exprot  # noqa: B018


def test_the_version_is_that_of_the_distribution() -> None:
    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    assert opbridge.__version__ == declared[1]


def in_a_new_process(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_imports_neither_torch_nor_an_engine() -> None:
    names = ["BuildError", "Bundle", "InputError", "Sample", "Verification", "load", "translation"]
    in_a_new_process(
        f"import sys, opbridge, opbridge.cli, opbridge.__main__\nopbridge.cli.build_parser()\n"
        f"for name in {names}: getattr(opbridge, name)\n"
        "heavy = {'torch', 'onnx', 'onnx_ir', 'onnxscript', 'onnxruntime'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )


def test_no_submodule_has_the_name_of_a_public_function() -> None:
    folder = Path(opbridge.__file__).parent
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert not modules & set(opbridge.__all__)


def test_dir_shows_the_public_names_and_no_others() -> None:
    assert dir(opbridge) == sorted([*opbridge.__all__, "legacy", "surgery", "testing", "vision"])


def test_a_public_class_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(opbridge.Bundle)) is opbridge.Bundle


def test_a_public_function_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opbridge, "load", len)
    assert opbridge.load is len
    monkeypatch.undo()
    assert isinstance(opbridge.load, types.FunctionType)
