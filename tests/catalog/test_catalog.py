"""The catalog: who maps an operator, where declarations are found, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from roundtrip import travel

import opbridge
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.spec import OpSpec, declared_specs
from opbridge.errors import InputError

ONE = """
import opbridge

@opbridge.decomposition("aten::{name}")
def {name}(self, *rest):
    return self
"""


def spec(target: str, rung: str = "decompose", source: str = "a.py:1") -> OpSpec:
    return OpSpec(target, rung, lambda self: self, source=source)


def overload(name: str, which: str = "default") -> torch._ops.OpOverload:
    return getattr(getattr(torch.ops.aten, name), which)


def test_the_users_beats_the_catalogs_and_the_catalogs_beats_torchs() -> None:
    users, builtin = spec("aten::hypot"), spec("aten::hypot")
    both = Catalog((users,), (builtin,))
    assert both.find(overload("hypot")) is users
    assert both.provider(users) == "user"
    alone = Catalog((), (builtin,))
    assert alone.find(overload("hypot")) is builtin
    assert alone.provider(builtin) == "catalog"
    assert alone.find(overload("relu")) is None


def test_an_overload_beats_a_bare_name_and_a_cheap_rung_a_dear_one() -> None:
    bare, exact, dear = spec("aten::add"), spec("aten::add.Tensor"), spec("aten::add", "translate")
    found = Catalog((bare, dear, exact), ())
    assert found.find(overload("add", "Tensor")) is exact
    assert found.find(overload("add", "Scalar")) is bare


def test_a_refused_rung_is_followed_by_the_next_and_then_by_the_catalogs() -> None:
    found = Catalog((spec("aten::cummax"),), (spec("aten::cummax", "translate"), spec("aten::cummax", "function")))
    for refused, rung in (((), "decompose"), (("decompose",), "translate"), (("decompose", "translate"), "function")):
        chosen = found.find(overload("cummax"), refused=refused)
        assert chosen is not None
        assert chosen.rung == rung
    assert found.find(overload("cummax"), rungs=("rewrite",)) is None


def test_a_bare_name_means_the_functional_overloads() -> None:
    found = Catalog((spec("aten::cummax"),), ())
    assert found.find(overload("cummax")) is not None
    assert found.find(overload("cummax", "out")) is None
    assert Catalog((spec("aten::cummax.out"),), ()).find(overload("cummax", "out")) is not None
    assert found.find(overload("cummin")) is None


def test_a_users_mapping_is_taken_instead_of_torchs() -> None:
    trip = travel(
        torch.relu, (torch.randn(4),), specs=[OpSpec("aten::relu", "decompose", lambda x: x.clamp(min=0) * 1)]
    )
    assert "Relu" not in trip.op_types
    assert trip.rung("aten::relu") == "decompose"
    trip.check(torch.randn(4))


@pytest.mark.parametrize("rung", ["decompose", "translate"])
def test_duplicates_of_one_level(rung: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decorator = {"decompose": "decomposition", "translate": "translation"}[rung]
    for name in ("a", "b"):
        text = ONE.format(name="erf").replace("decomposition", decorator)
        (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(InputError, match="'aten::erf' is declared twice") as caught:
        Catalog.load([tmp_path])
    assert f"{tmp_path / 'a.py'}:4" in caught.value.message
    assert f"{tmp_path / 'b.py'}:4" in caught.value.message
    assert "remove one of the two" in caught.value.fix


def test_two_rungs_of_one_operator_are_no_duplicates(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(ONE.format(name="erf"))
    (tmp_path / "b.py").write_text(ONE.format(name="erf").replace("decomposition", "translation"))
    found = Catalog.load([tmp_path]).find(overload("erf"))
    assert found is not None
    assert found.rung == "decompose"


@pytest.mark.parametrize("form", ["directory", "file", "text", "module", "function"])
def test_forms_of_ops(form: str, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    file = tmp_path / "inner" / "cos.py"
    file.write_text(ONE.format(name="cos"))
    module = types.ModuleType("opbridge_user_ops_of_this_test")
    exec(compile(ONE.format(name="cos"), str(file), "exec"), module.__dict__)
    ops = {"directory": tmp_path, "file": file, "text": str(file), "module": module, "function": module.cos}[form]
    found = Catalog.load([ops])
    chosen = found.find(overload("cos"))
    assert chosen is not None
    assert chosen.source == f"{file}:4"
    assert found.provider(chosen) == "user"
    assert Catalog.load().find(overload("cos")) is None, "ops= holds for one call"


def test_an_operator_in_an_ops_file(tmp_path: Path) -> None:
    file = tmp_path / "grow.py"
    file.write_text(
        "import opbridge\nfrom torch import Tensor\n\n"
        '@opbridge.operator("test_catalog::grow")\ndef grow(x: Tensor) -> Tensor:\n    return x + 1\n'
    )
    found = Catalog.load([file])
    assert found.find(torch.ops.test_catalog.grow.default) is not None
    assert [s.target for s in found.user].count("test_catalog::grow") == 1


def test_what_is_no_ops_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ops: there is no file or folder") as caught:
        Catalog.load([tmp_path / "absent"])
    assert "check the path" in caught.value.fix
    (tmp_path / "notes.txt").write_text("no Python")
    with pytest.raises(InputError, match="is not a Python file"):
        Catalog.load([tmp_path / "notes.txt"])
    with pytest.raises(InputError, match="'print' is not declared with an opbridge decorator"):
        Catalog.load([print])


@pytest.mark.parametrize("text", ["import nowhere_at_all", "def broken(:", "1 / 0", "raise SystemExit(3)"])
def test_a_broken_ops_file(text: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    for _ in range(2):
        with pytest.raises(InputError, match=r"broken.py' fails when it is imported") as caught:
            Catalog.load([file])
        assert "run it with python to see the error" in caught.value.fix


def test_a_file_given_twice_is_imported_once(tmp_path: Path) -> None:
    file = tmp_path / "erf.py"
    file.write_text(ONE.format(name="erf"))
    first, second = (Catalog.load([file, tmp_path]).find(overload("erf")) for _ in range(2))
    assert first is second


@pytest.mark.slow
def test_importing_a_file_of_the_catalog_registers_nothing() -> None:
    before = declared_specs()
    import opbridge.catalog.ops.elementwise.hypot  # noqa: F401

    assert declared_specs() == before
    code = (
        "import opbridge.catalog.ops.elementwise.hypot, opbridge.catalog.declare.spec\n"
        "assert opbridge.catalog.declare.spec.declared_specs() == (), opbridge.catalog.declare.spec.declared_specs()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_declaration_in_the_users_code_takes_effect_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opbridge.catalog.declare.spec._declared", [])

    @opbridge.decomposition("aten::erf")
    def erf(self):
        return self

    chosen = Catalog.load().find(overload("erf"))
    assert chosen is not None
    assert chosen.function is erf
    assert Catalog.load([erf]).user == (chosen,), "declared and given is one declaration"


def test_the_users_rewrite_beats_the_catalogs() -> None:
    users, builtin = spec("torch.roll", "rewrite"), spec("torch.roll", "rewrite")
    other = spec("torch.cat", "rewrite")
    assert Catalog((users,), (builtin, other)).rewrites() == (users, other)


def test_the_list_is_sorted() -> None:
    specs = Catalog.load().specs
    targets = [s.target for s in specs if s in Catalog.load().builtin]
    assert targets == sorted(targets)
    assert len(targets) > 5
