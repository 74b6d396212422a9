"""Turning the bridge on and off: nothing is left behind, and old names are there only meanwhile."""

from __future__ import annotations

import concurrent.futures
import importlib
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch.autograd import Function

import opbridge
from opbridge import legacy
from opbridge.errors import InputError, OpbridgeError, UnsupportedOperatorError
from opbridge.legacy import switch


class Scale(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def symbolic(g, x):
        return g.op("t::Scale", x)


MODULES = ["torch.onnx", "torch.onnx.utils", "torch.onnx.symbolic_helper", "torch.onnx.symbolic_opset9"]


def state_of_torch() -> dict[str, Any]:
    """Everything that the bridge might touch; modules that were imported meanwhile are no change."""
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    found: dict[str, Any] = {}
    for name in MODULES:
        for key, value in vars(importlib.import_module(name)).items():
            if not isinstance(value, types.ModuleType):
                found[f"{name}.{key}"] = value
    found |= {f"GLOBALS.{key}": value for key, value in vars(GLOBALS).items()}
    found |= {f"meta.{key}": value for key, value in vars(type(Function)).items()}
    found |= {f"Scale.{key}": value for key, value in vars(Scale).items()}
    found["registry"] = "torch.onnx.symbolic_registry" in sys.modules
    return found


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    changed = {key for key in before.keys() | after.keys() if before.get(key) is not after.get(key)}
    assert changed == set()


@pytest.mark.slow
def test_importing_opbridge_changes_nothing_in_torch() -> None:
    code = (
        "import torch, torch.onnx\n"
        "def seen(): return {key: id(value) for key, value in vars(torch.onnx).items()}\n"
        "before = seen()\nimport opbridge, opbridge.legacy\n"
        "assert seen() == before, seen().keys() ^ before.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_bridge_does_not_import_torch() -> None:
    code = "import sys, opbridge\nopbridge.legacy.bridged()\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_as_a_context_manager_it_undoes_itself_completely() -> None:
    before = state_of_torch()
    with legacy.enable():
        assert switch.is_on()
        assert torch.onnx.export is not before["torch.onnx.export"]
        torch.onnx.export(torch.nn.ReLU(), (torch.randn(2),))
    assert not switch.is_on()
    assert_same(before, state_of_torch())


def test_as_a_call_it_holds_until_disable() -> None:
    before = state_of_torch()
    legacy.enable()
    assert switch.is_on()
    legacy.disable()
    legacy.disable()
    assert_same(before, state_of_torch())


def test_disable_leaves_the_blocks_of_others_alone() -> None:
    before = state_of_torch()
    legacy.enable()
    with legacy.enable():
        legacy.disable()
        legacy.disable()
        assert switch.is_on()
    assert not switch.is_on()
    assert_same(before, state_of_torch())


def test_nested_uses_end_with_the_last() -> None:
    before = state_of_torch()
    outer = legacy.enable()
    with legacy.enable():
        pass
    assert switch.is_on()
    with outer:
        pass
    assert_same(before, state_of_torch())


def test_it_undoes_itself_when_the_export_raises() -> None:
    class Fails(torch.nn.Module):
        def forward(self, x):
            Scale.apply(x)
            raise ValueError("no")

    before = state_of_torch()
    with pytest.raises(OpbridgeError), legacy.enable():
        torch.onnx.export(Fails(), (torch.randn(2),))
    assert_same(before, state_of_torch())
    assert not torch.onnx.is_in_onnx_export()


def test_it_undoes_itself_when_turning_it_on_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from opbridge.legacy import exporter

    def broken() -> Any:
        raise RuntimeError("broken")

    before = state_of_torch()
    monkeypatch.setattr(exporter, "installed", broken)
    with pytest.raises(RuntimeError, match="broken"):
        legacy.enable()
    assert not switch.is_on()
    assert_same(before, state_of_torch())


@pytest.mark.slow
def test_threads_share_it_and_the_last_one_ends_it() -> None:
    before = state_of_torch()

    def export(number: int) -> list[str]:
        model = torch.nn.Sequential(torch.nn.ReLU(), *(Layer() for _ in range(number)))
        with legacy.enable():
            program = torch.onnx.export(model.eval(), (torch.randn(2),))
        return [node.op_type for node in program.model.graph]

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = list(pool.map(export, (1, 2, 3)))
    assert found == [["Relu"] + ["Scale"] * n for n in (1, 2, 3)]
    assert_same(before, state_of_torch())


class Layer(torch.nn.Module):
    def forward(self, x):
        return Scale.apply(x)


def test_what_was_bridged_is_told_and_begins_anew() -> None:
    with legacy.enable():
        torch.onnx.export(torch.nn.Sequential(Layer(), Layer()).eval(), (torch.randn(2),), do_constant_folding=True)
    first, second = sorted(legacy.bridged(), key=lambda item: item.kind)
    assert (first.kind, first.name, first.count) == ("autograd.Function", "Scale", 2)
    assert first.source.startswith("tests/legacy/test_legacy_enable.py:")
    assert (second.kind, second.name, second.count) == ("old argument", "do_constant_folding", 1)
    assert second.source.startswith("tests/legacy/test_legacy_enable.py:")
    assert first.to_dict()["notes"] == []
    with legacy.enable():
        assert legacy.bridged() == ()


def test_names_that_moved_are_found_meanwhile() -> None:
    with legacy.enable():
        import torch.onnx.symbolic_registry
        from torch.onnx import CheckerError, ExportTypes, symbolic_registry
        from torch.onnx.symbolic_helper import _export_onnx_opset_version, _set_opset_version

        assert ExportTypes.PROTOBUF_FILE.value == "Protobuf"
        assert issubclass(CheckerError, Exception)
        assert symbolic_registry.is_registered_op("relu", "", 9)
        assert symbolic_registry.get_op_supported_version("relu", "", 13) == 7
        assert not symbolic_registry.is_registered_op("no_such_op", "", 9)
        assert torch.onnx.utils._graph_at
        assert isinstance(_export_onnx_opset_version, int)
        _set_opset_version(11)
        assert torch.onnx.symbolic_helper._export_onnx_opset_version == 11
        assert torch.onnx.symbolic_helper._set_training_mode
        assert torch.onnx.utils.is_in_onnx_export is torch.onnx.is_in_onnx_export
        torch.onnx.enable_log()
    for module, name in (("torch.onnx", "_export"), ("torch.onnx.symbolic_helper", "_set_opset_version")):
        assert not hasattr(importlib.import_module(module), name)
    assert "torch.onnx.symbolic_registry" not in sys.modules


@pytest.mark.parametrize(
    "line",
    [
        "from torch.onnx._internal import jit_utils, registration",
        "from torch.onnx._internal import _beartype, onnx_proto_utils",
        "from torch.onnx._internal.jit_utils import GraphContext",
        "from torch.onnx._internal.registration import onnx_symbolic",
        "from torch.onnx._globals import GLOBALS",
        "import torch.onnx._type_utils; torch.onnx._type_utils.JitScalarType",
        "from torch.onnx._type_utils import JitScalarType",
        "from torch.onnx import ONNX_ARCHIVE_MODEL_PROTO_NAME, ExportTypes",
        "from torch.onnx.symbolic_registry import _registry, register_ops_in_version, unregister_op",
    ],
)
def test_imports_of_former_years_work(line: str) -> None:
    with legacy.enable():
        exec(line, {})
    module = line.split()[1].rstrip(";")
    if module.count(".") > 2 or module.endswith(("_globals", "_type_utils")):
        assert module not in sys.modules, "the bridge leaves nothing behind"


def test_the_former_table_of_symbolic_functions_is_read_and_changed() -> None:
    def symbolic(g, x):
        return g.op("Relu", x)

    with legacy.enable():
        from torch.onnx.symbolic_registry import _registry

        operators = _registry["", 13]
        assert callable(operators["relu"])
        assert "no_such_op" not in operators
        operators["asinh"] = symbolic
        try:
            assert operators["asinh"] is symbolic
            assert "asinh" in list(operators)
        finally:
            del operators["asinh"]
        assert "asinh" not in list(operators)


def test_a_function_that_is_replaced_in_every_opset_of_the_former_table_is_used() -> None:
    """In the manner of CrypTen's crypten/nn/onnx_converter.py."""

    def symbolic(g, x, dim, dtype=None):
        return g.op("own::Softmax", x)

    with legacy.enable():
        from torch.onnx.symbolic_registry import _registry

        for operators in dict(_registry).values():
            for name in list(operators):
                if name == "softmax":
                    operators[name] = symbolic
        try:
            model = torch.onnx.export(torch.nn.Softmax(1), (torch.rand(2, 3),)).model
        finally:
            for operators in _registry.values():
                if operators["softmax"] is symbolic:
                    del operators["softmax"]
        assert [(node.domain, node.op_type) for node in model.graph] == [("own", "Softmax")]
        assert [(item.name, item.count) for item in legacy.bridged()] == [("aten::softmax", 1)]
    assert "softmax" in list(_registry["", 13])


@pytest.mark.slow
def test_a_script_that_ends_with_the_bridge_on_ends_quietly() -> None:
    code = "from opbridge import legacy; legacy.enable(); from torch.onnx._internal import jit_utils"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_registration_names_what_to_do() -> None:
    with legacy.enable():
        from torch.onnx.symbolic_registry import get_registered_op

        with pytest.raises(InputError, match="No symbolic function is registered for aten::no_such_op at opset 11"):
            get_registered_op("no_such_op", "", 11)


def test_the_old_export_returns_what_the_model_returns() -> None:
    x = torch.randn(3)
    with legacy.enable():
        assert torch.equal(torch.onnx._export(torch.nn.ReLU(), (x,)), x.relu())
        assert "Relu" in torch.onnx.export_to_pretty_string(torch.nn.ReLU(), (x,))


def test_a_name_without_a_meaning_says_so_on_use() -> None:
    with legacy.enable():
        from torch.onnx import symbolic_caffe2
        from torch.onnx.utils import _newNode

        with pytest.raises(InputError, match=r"torch\.onnx\.symbolic_caffe2 was removed from PyTorch") as raised:
            symbolic_caffe2.register_quantized_ops("caffe2", 9)
        assert "Caffe2 and its symbolic functions were removed" in raised.value.fix
        with pytest.raises(InputError, match=r"torch\.onnx\.utils\._newNode was removed"):
            _newNode(None, "Relu")
        assert "was removed" in repr(symbolic_caffe2)
        with pytest.raises(AttributeError, match=r"module 'torch\.onnx' has no attribute 'exprot'"):
            torch.onnx.exprot  # noqa: B018


class Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1

    @staticmethod
    def symbolic(g, x):
        return g.op("nokernel::Refused", x)


def test_what_a_refused_export_used_is_not_honoured(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            return Refused.apply(x)

    with legacy.enable():
        with pytest.raises(UnsupportedOperatorError, match="no kernel for nokernel::Refused"):
            opbridge.export(Model(), (torch.rand(2),), path=tmp_path / "refused")
        assert legacy.bridged() == ()
        torch.onnx.export(Model(), (torch.rand(2),), tmp_path / "written.onnx")
        assert [(item.name, item.count) for item in legacy.bridged()] == [("Refused", 1)]
        with pytest.raises(InputError):
            torch.onnx.export(Model(), (torch.rand(2),), tmp_path / "no" / "such" / "folder.onnx")
        assert [(item.name, item.count) for item in legacy.bridged()] == [("Refused", 1)]


class Twice(torch.nn.Module):
    """torch.export captures it only after its branch was converted, so that it is captured more than once."""

    def forward(self, x):
        y = Half.apply(x, 0.5)
        y = y + 1 if y.sum() > 0 else y - 1
        Half.apply(x, 0.25)
        return Half.apply(y, 0.125)


class Half(Function):
    @staticmethod
    def forward(ctx, x, factor):
        return x * factor

    @staticmethod
    def symbolic(g, x, factor):
        return g.op("Mul", x, g.op("Constant", value_t=torch.tensor(factor)))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["torch.onnx.export", "opbridge.export"])
def test_only_the_uses_in_the_written_model_are_counted(way: str, tmp_path: Path) -> None:
    inputs = (torch.rand(3),)
    with legacy.enable():
        if way == "torch.onnx.export":
            model = torch.onnx.export(Twice(), inputs, tmp_path / "model.onnx").model
        else:
            bundle = opbridge.export(Twice(), inputs, path=tmp_path / "bundle", verify=False)
            model = ir.load(bundle.path / "model.onnx")
    assert [(item.name, item.count) for item in legacy.bridged()] == [("Half", 2)]
    assert sum(node.op_type == "Mul" for node in model.graph.all_nodes()) == 2


def test_a_diagnosis_writes_nothing_and_counts_nothing() -> None:
    with legacy.enable():
        opbridge.diagnose(Layer(), (torch.rand(2),))
        assert legacy.bridged() == ()
