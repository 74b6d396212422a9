"""Declarations: what the decorators take, refuse and attach."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import opbridge
from opbridge.catalog.declare.spec import OpSpec, Sample, declared_specs, replaces, specs_of
from opbridge.errors import InputError


@pytest.fixture(autouse=True)
def _nothing_stays_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opbridge.catalog.declare.spec._declared", [])


@pytest.mark.parametrize(
    "decorator", [opbridge.decomposition, opbridge.translation, opbridge.fake_for, opbridge.body_for]
)
@pytest.mark.parametrize("target", ["hypot", "aten.hypot", "aten::hy pot", "aten::add.Tensor.extra", "::hypot", ""])
def test_a_malformed_target(decorator: Callable[..., Any], target: str) -> None:
    with pytest.raises(InputError, match="a target has the form 'namespace::name' or") as caught:
        decorator(target)
    assert f"@{decorator.__name__}({target!r})" in caught.value.message
    assert f"@{decorator.__name__}('aten::cummax')" in caught.value.fix


@pytest.mark.parametrize("target", ["aten::roll", "roll", ""])
def test_a_rewrite_names_a_function(target: str) -> None:
    with pytest.raises(InputError, match="the target of a rewrite is the import path of a Python function") as caught:
        opbridge.rewrite(target)
    assert "for a torch operator use @decomposition" in caught.value.fix


def test_what_a_declaration_holds() -> None:
    def samples() -> list[Sample]:
        return [Sample((torch.ones(2),), name="ones")]

    @opbridge.translation("aten::digamma", opset=20, samples=samples, overrides="torch's is wrong at 0")
    @opbridge.decomposition("aten::digamma.out")
    def digamma(self):
        """digamma(Tensor self) -> Tensor

        The derivative of the logarithm of gamma.
        """
        return self

    first, second = specs_of(digamma)
    assert (first.target, first.rung) == ("aten::digamma.out", "decompose")
    assert (second.target, second.rung, second.opset) == ("aten::digamma", "translate", 20)
    assert second.samples is samples
    assert second.overrides == "torch's is wrong at 0"
    assert second.summary == "The derivative of the logarithm of gamma."
    assert second.source.startswith(f"{__file__}:")
    assert digamma(3) == 3, "the function stays what it was"
    assert declared_specs() == (first, second)


def test_nothing_is_attached_to_a_function_without_a_decorator() -> None:
    assert specs_of(print) == ()


def test_a_function_without_a_docstring_has_no_summary() -> None:
    assert OpSpec("a::b", "decompose", lambda x: x).summary == ""


def test_what_replaces_a_declaration(tmp_path: Path) -> None:
    file = tmp_path / "ops.py"
    file.write_text('@decomposition("a::b")\ndef b(x): ...\n')
    other = tmp_path / "other.py"
    other.write_text("")
    assert replaces("a::b", f"{file}:1", f"{file}:1"), "the file was run again"
    assert not replaces("a::b", f"{file}:7", f"{file}:1"), "the first is still there"
    assert not replaces("a::b", f"{other}:1", f"{file}:1"), "another file declares it too"
    file.write_text('\n\n\n@decomposition("a::b")\ndef b(x): ...\n')
    linecache.checkcache(str(file))
    assert replaces("a::b", f"{file}:4", f"{file}:1"), "the file was edited, and run again"
    assert replaces("a::b", "/tmp/ipykernel_1/22.py:1", "/tmp/ipykernel_1/11.py:1"), "a cell was edited, and run again"


def test_a_rerun_replaces_and_a_second_place_does_not() -> None:
    for _ in range(2):

        @opbridge.decomposition("aten::digamma")
        def digamma(self):
            return self

    assert [spec.function for spec in declared_specs()] == [digamma]

    @opbridge.decomposition("aten::digamma")
    def again(self):
        return self

    assert [spec.function for spec in declared_specs()] == [digamma, again]
