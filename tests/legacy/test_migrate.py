"""``opbridge migrate``: what becomes of each old form, what is left, and that the table's files export the same."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import DOCS, OLD_PROGRAMS, SUPPORT

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("libcst")

from legacy_batches import batches, migrated_batches, trees_of, with_torch  # noqa: E402
from legacy_cases.table import FOLDER, all_cases  # noqa: E402
from legacy_graphs import output_trees, registered  # noqa: E402

from opbridge import legacy  # noqa: E402
from opbridge.cli import main  # noqa: E402
from opbridge.errors import InputError  # noqa: E402
from opbridge.legacy.migrate import Migration, migrate  # noqa: E402
from opbridge.legacy.migrate.check import checked  # noqa: E402

pytestmark = [pytest.mark.newest, pytest.mark.one_worker]

CASES = all_cases()
FILES = sorted(file.name for file in FOLDER.glob("*.py") if file.name not in ("__init__.py", "table.py"))
SCRIPTS = ["asinh", "clamp_swish", *(["deform_conv"] if importlib.util.find_spec("torchvision") else [])]
SCRIPTS.append("super_resolution")

migrated_file = functools.cache(migrate)


def migrated(folder: Path, text: str) -> Migration:
    file = folder / "old.py"
    file.write_text(text)
    return migrate(file)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the migrated table and the migrated examples export, each in one process: with the bridge, if one was left.

    Beside it the examples as they were, by ``run-script``.
    """
    folder = tmp_path_factory.mktemp("migrated")
    for name in ("legacy_cases", "examples"):
        (folder / name).mkdir()
    for file in FOLDER.glob("*.py"):
        text = migrated_file(file).text if file.name in FILES else file.read_text()
        (folder / "legacy_cases" / file.name).write_text(text)
    for name in SCRIPTS:
        (folder / "examples" / f"{name}.py").write_text(migrated_file(OLD_PROGRAMS / f"{name}.py").text)
    command = [sys.executable, str(SUPPORT / "legacy_migrated_script.py"), str(folder), str(OLD_PROGRAMS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="session")
def results(folder: Path) -> dict[str, list[Any]]:
    """What each case of the migrated table became, without the bridge, with it, or both."""
    found: dict[str, list[Any]] = {}
    for batch in [*migrated_batches(bridge=False), *migrated_batches(bridge=True)]:
        for name, trees in trees_of(batch, onnx.load(folder / f"{batch.name}.onnx")).items():
            found.setdefault(name, []).append(trees)
    return found


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each case of the table becomes as it is, with the bridge on."""
    folder = tmp_path_factory.mktemp("originals")
    found: dict[str, Any] = {}
    with legacy.enable():
        for batch in batches(dynamic=False, to_run=False):
            with registered(*batch.cases):
                found.update(trees_of(batch, with_torch(batch, folder)))
    return found


def scalars_alike(tree: Any) -> Any:
    """A tree in which a constant of one element has no shape, as a number of Python, and none is cast."""
    if _is_scalar(tree):
        return tree[0], (), tree[2]
    if isinstance(tree, tuple):
        return tuple(map(scalars_alike, tree))
    if hasattr(tree, "inputs"):
        inputs = scalars_alike(tree.inputs)
        if tree.operator == "::Cast" and _is_scalar(inputs[0]):
            return onnx.helper.tensor_dtype_to_np_dtype(dict(tree.attributes)["to"]).name, (), inputs[0][2]
        return tree.operator, scalars_alike(tree.attributes), inputs, tree.output
    return tree


def _is_scalar(tree: Any) -> bool:
    parts = isinstance(tree, tuple) and len(tree) == 3 and isinstance(tree[1], tuple) and isinstance(tree[2], tuple)
    return parts and len(tree[2]) == 1


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_a_migrated_case_exports_the_same_model(
    name: str, results: dict[str, list[Any]], originals: dict[str, Any]
) -> None:
    assert results[name]
    for trees in results[name]:
        assert scalars_alike(tuple(trees)) == scalars_alike(tuple(originals[name]))


@pytest.mark.sweep
def test_the_document_states_what_the_run_converted(
    folder: Path, results: dict[str, list[Any]], originals: dict[str, Any]
) -> None:
    pytest.importorskip("torchvision")  # a few cases need it
    converted = {
        name
        for batch in migrated_batches(bridge=False)
        for name, trees in trees_of(batch, onnx.load(folder / f"{batch.name}.onnx")).items()
        if scalars_alike(tuple(trees)) == scalars_alike(tuple(originals[name]))
    }
    row = re.search(r"^\| converted by `migrate`[^|]*\| (\d+) \((\d+)%\)", (DOCS / "legacy.md").read_text(), re.M)
    assert row is not None
    assert (int(row[1]), int(row[2])) == (len(converted), round(100 * len(converted) / len(CASES)))


@pytest.mark.sweep
def test_nearly_all_of_the_table_is_converted_and_the_rest_is_listed() -> None:
    found = {file: migrated_file(FOLDER / file) for file in FILES}
    left = {name for name, case in CASES.items() if not case.migrates and not case.source}
    assert left == {
        "exporter_graph_attribute", "exporter_raw_node", "exporter_replaced_uses", "forward_with_autocast",
        "if_inside_if", "if_with_blocks", "list_of_chunk", "list_of_split", "list_of_split_with_sizes",
        "list_of_unbind", "registered_a_lambda", "registered_a_method", "registered_a_partial_function",
        "the_newer_of_two_opsets", "the_older_of_two_opsets",
    }  # fmt: skip
    said = {(change.name, change.detail) for item in found.values() for change in item.left}
    for name, detail in {
        "InPlace.symbolic": "forward modifies its input, which an operator must not do.",
        "Power.symbolic": "the class is defined in a function; declare the operator at the top of the file.",
        "MultiLevelAlign.symbolic": "forward has a starred parameter that takes other values than tensors.",
        "SparseConv3d.symbolic": "the names of its attributes are known only at run time.",
        "SymbolicHelper.symbolic": "symbolic is an object that is assigned in the class; define the function there.",
        "FakeQuant.symbolic": "amax is a constant tensor whose contents symbolic reads.",
        "ConstantsAreKnown.symbolic": "it calls symbolic_helper._is_value.",
        "ConstantContents.symbolic": "it calls .node() on a value.",
        "Pillars.symbolic": "forward is written for the tracer, and an operator is never traced.",
        "Branch.symbolic": "it calls _internal.jit_utils.add_op_with_blocks.",
        "ScriptFunction.symbolic": "it calls g.onnxscript_op.",
        "aten::mean": "mean_value, line 272: it has starred parameters.",
        "aten::atanh": "atanh, line 44: it is not defined at the top of the file.",
    }.items():
        assert (name, detail) in said
    assert any(
        name == "legacy_cases::plain" and "a translation can't be unregistered" in detail for name, detail in said
    )
    for item in found.values():
        old = Path(item.file).read_text().splitlines()
        for change in item.left:
            word = change.name.rpartition("::")[2].partition(".")[0]
            near = "\n".join(old[max(0, change.line - 30) : change.line + 1])
            assert word in near, change


def test_comments_and_layout_stay(tmp_path: Path) -> None:
    old = (FOLDER / "functions.py").read_text()
    text = migrate(FOLDER / "functions.py").text
    comments = [line.strip() for line in old.splitlines() if line.strip().startswith("#")]
    assert all(comment in text for comment in comments)
    untouched = "x = 1   # odd   spacing\n\n\n\ny = {  1: 2}\n"
    assert migrated(tmp_path, untouched).text == untouched


def test_a_scripted_module_is_replaced_by_the_module_also_of_a_tuple(tmp_path: Path) -> None:
    text = (
        "import torch\n\nmodel, x = Model(), torch.rand(2)\n"
        "traced, scripted = torch.jit.trace(model, x), torch.jit.script(model)\n"
        "first, second = torch.jit.script(pair)\n"
        "torch.onnx.export(traced, x, 'a.onnx')\ntorch.onnx.export(scripted, x, 'b.onnx')\n"
        "torch.onnx.export(first, x, 'c.onnx')\n"
    )
    found = migrated(tmp_path, text).text
    for line in ("export(model, x, 'a.onnx'", "export(model, x, 'b.onnx'", "export(first, x, 'c.onnx'"):
        assert line in found


def test_an_export_call_gets_todays_arguments(tmp_path: Path) -> None:
    result = migrated(
        tmp_path,
        "import torch\n\n"
        "torch.onnx.export(\n    model,\n    x,\n    'a.onnx',\n    True,\n    opset_version=11,  # the engine's\n"
        "    input_names=['x', 'm'],\n    dynamic_axes={'x': {0: 'batch'}, 'y': [0]},\n"
        "    enable_onnx_checker=True,\n)\n",
    )
    assert result.text == (
        "import torch\n\n"
        "torch.onnx.export(\n    model,\n    x,\n    'a.onnx',\n    opset_version=18,  # the engine's\n"
        "    input_names=['x', 'm'],\n    dynamic_shapes=({0: \"batch\"}, {}),\n)\n"
    )
    assert [(change.line, change.name) for change in result.converted] == [
        (7, "export_params"), (8, "opset_version"), (10, "dynamic_axes"), (11, "enable_onnx_checker"),
    ]  # fmt: skip
    assert "opbridge.convert_opset converts the model to 11" in result.converted[1].detail


@pytest.mark.parametrize(
    ("constants", "given", "now"),
    [
        ("A = 10\nB = A + 1\n", "opset_version=B", "opset_version=18"),
        ("A = 20\n", "opset_version=A", "opset_version=A"),
        ("A = 20\nA = 11\n", "opset_version=A", "opset_version=max(18, A)"),
        ("if x:\n    A = 11\n", "opset_version=A", "opset_version=max(18, A)"),
        ("A = A + 1\n", "opset_version=A", "opset_version=max(18, A)"),
        ("N = 'x'\nD = {N: [0]}\n", "input_names=[N], dynamic_axes=D", 'input_names=[N], dynamic_shapes=({0: "x_0"},)'),
        ("V = 1\n", "custom_opsets={f'own.{V}': V}", ""),
    ],
)
def test_constants_of_the_module_are_read(constants: str, given: str, now: str, tmp_path: Path) -> None:
    result = migrated(tmp_path, f"import torch\n{constants}torch.onnx.export(m, x, 'f', {given})\n")
    assert not result.left
    assert result.text == f"import torch\n{constants}torch.onnx.export(m, x, 'f'{', ' * bool(now)}{now})\n"


_SYMBOLIC = "import torch\n\n\ndef f(g, x):\n    return g.op('a::F', x)\n\n\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("NAME = 'a::b'\nregister(NAME, f, 9)\n", "NAME = 'a::b'\n"),
        ("register(symbolic_name='a::b', symbolic_fn=f, opset_version=9)\n", ""),
        ("if x:\n    register('a::b', f, 9)\n", 'if x:\n    opbridge.translation("a::b")(f)\n'),
        ("for n in y:\n    register('a::b', f, n)\n", 'for n in y:\n    opbridge.translation("a::b")(f)\n'),
        ("register('a::b', f, 9)\nregister('a::c', f, 9)\n", ""),
    ],
)
def test_a_registration_becomes_a_declaration_where_it_stands(old: str, new: str, tmp_path: Path) -> None:
    register = "torch.onnx.register_custom_op_symbolic"
    result = migrated(tmp_path, _SYMBOLIC + old.replace("register", register))
    assert not result.left
    decorators = '@opbridge.translation("a::b")\n' * ("opbridge" not in new)
    decorators += '@opbridge.translation("a::c")\n' * ("a::c" in old)
    function = 'def f(x):\n    return opbridge.custom_node("a::F", x)\n'
    assert result.text.split() == f"import torch import opbridge {decorators}{function}{new}".split()


def test_what_shares_an_operator_stays_together(tmp_path: Path) -> None:
    register = "torch.onnx.register_custom_op_symbolic"
    text = f"{_SYMBOLIC}def h(g, *xs):\n    return g.op('a::H', *xs)\n\n\n"
    text += f"{register}('a::b', f, 9)\n{register}('a::c', h, 9)\n{register}('a::b', h, 9)\n"
    result = migrated(tmp_path, text)
    assert result.text == text
    assert [change.name for change in result.left] == ["a::b", "a::c", "a::b"]
    assert "work with the bridge on: use opbridge run-script" in result.way_out


_FUNCTION = """import torch
from typing import Optional
from torch.onnx import symbolic_helper


def domain(name):
    return "own::" + name


class Group:
    pass


GROUP = Group()


class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, dtype, limit: float, bias: Optional[torch.Tensor] = None):
        return x

    @staticmethod
    def symbolic(g, x, group, dtype, limit, bias=None):
        if not symbolic_helper._is_value(limit):
            limit = g.op("Constant", value_t=torch.tensor(limit))
        tensors = [x]
        if bias is not None:
            tensors.append(bias)
        return g.op(domain("F"), *tensors, limit, size_i=group.size)


def f(x, y):
    return F.apply(x, GROUP, torch.int8, 0.5, y)
"""


def test_an_object_that_all_calls_pass_is_no_argument_of_the_operator(tmp_path: Path) -> None:
    result = migrated(tmp_path, _FUNCTION)
    assert not result.left
    for text in (
        "def f_operator(x: torch.Tensor, limit: float, bias: torch.Tensor | None = None) -> torch.Tensor:\n"
        "    return F.apply(x, GROUP, torch.int8, limit, bias).clone()\n",
        "def f_operator_to_onnx(x, limit, bias=None):\n    group = GROUP\n    if not isinstance(limit, ir.Value):\n"
        "        limit = limit\n",
        'return opbridge.custom_node("own::F", *tensors, limit, size=group.size)',
        "def f(x, y):\n    return f_operator(x, 0.5, y)\n",
    ):
        assert text in result.text


@pytest.mark.parametrize(
    "more",
    [
        "\n\nF.apply(x, Group(), torch.int8, 0.5, None)\n",
        "\n\nGROUP = Group()\n",
        "\n\nF.apply(x, GROUP, *given)\n",
    ],
)
def test_an_object_that_may_be_another_is_not_taken_for_one(more: str, tmp_path: Path) -> None:
    result = migrated(tmp_path, _FUNCTION + more)
    assert result.text == _FUNCTION + more
    assert [change.name for change in result.left] == ["F.symbolic"]


@pytest.mark.parametrize("given", ["False", "with_weights"])
def test_weights_that_were_left_out_stay_out(given: str, tmp_path: Path) -> None:
    result = migrated(tmp_path, f"import torch\ntorch.onnx.export(m, x, 'f', {given}, strip_doc_string=True)\n")
    assert result.text == f"import torch\ntorch.onnx.export(m, x, 'f', export_params={given})\n"


def test_line_endings_stay(tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    script.write_bytes(b"import torch\r\ntorch.onnx.export(m, x, 'f', aten=False)\r\n")
    assert main(["migrate", "-q", "-w", "--no-run", str(script)]) == 0
    assert script.read_bytes() == b"import torch\r\ntorch.onnx.export(m, x, 'f')\r\n"


@pytest.mark.parametrize(
    ("text", "name", "detail"),
    [
        ("import torch\ntorch.onnx.export(m, x, 'f', custom_opsets={'own': 3})", "custom_opsets", "set other versions"),
        ("import torch\ntorch.onnx.export(m, x, 'f', dynamic_axes=axes)", "dynamic_axes", "write dynamic_shapes"),
        ("import torch\ntorch.onnx.export(*given)", "torch.onnx.export", "it is called with starred arguments"),
        ("import torch\ntorch.onnx.register_custom_op_symbolic(name, f, 9)", "torch.onnx.reg", "only at run time"),
        (
            "import torch\ntorch.onnx.unregister_custom_op_symbolic('a::b', 9)",
            "unregister_custom",
            "can't be unregistered",
        ),
        ("from torch.onnx import utils\nutils._model_to_graph(m, x)", "_model_to_graph", "has the graph as .model"),
        ("X.symbolic = staticmethod(f)", "X.symbolic", "assigned at run time"),
    ],
)
def test_what_it_cannot_convert_is_named(text: str, name: str, detail: str, tmp_path: Path) -> None:
    result = migrated(tmp_path, text + "\n")
    (change,) = result.left
    assert change.line == text.count("\n") + 1
    assert change.name.startswith(name)
    assert detail in change.detail


def test_the_tutorials_programs_are_converted_in_full() -> None:
    found = {file.name: migrated_file(file) for file in OLD_PROGRAMS.rglob("*.py")}
    for name, target in {
        "asinh.py": '@opbridge.translation("aten::asinh")',
        "clamp_swish.py": '@opbridge.operator("clamp_swish::custom_op2")',
        "deform_conv.py": 'opbridge.translation("torchvision::deform_conv2d")(symbolic_of_all if everything else',
        "export.py": '@opbridge.translation("export::my_add_function")',
        "super_resolution.py": "@new_interpolate.fake",
    }.items():
        assert target in found[name].text
        assert "custom_translation_table=opbridge.translation_table()" in found[name].text
        compile(found[name].text, name, "exec")
        assert not found[name].left


@pytest.mark.sweep
@pytest.mark.parametrize("name", [*SCRIPTS, *(["deform_conv-all"] if "deform_conv" in SCRIPTS else [])])
def test_a_migrated_program_exports_what_run_script_does(name: str, folder: Path) -> None:
    new, old = onnx.load(folder / f"{name}.onnx"), onnx.load(folder / f"{name}.old.onnx")
    assert operators(new) == operators(old)
    assert [value.name for value in new.graph.input] == [value.name for value in old.graph.input]
    if "output_names" in (OLD_PROGRAMS / f"{name.partition('-')[0]}.py").read_text():
        assert [value.name for value in new.graph.output] == [value.name for value in old.graph.output]
    assert scalars_alike(tuple(output_trees(new))) == scalars_alike(tuple(output_trees(old)))


@pytest.mark.sweep
def test_a_migrated_program_takes_its_factor_at_run_time(folder: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
    for factor in (2.0, 3.0):
        feeds = {"input": x, "factor": np.array([1, 1, factor, factor], np.float32)}
        new, old = (
            onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
            for name in ("super_resolution.onnx", "super_resolution.old.onnx")
        )
        assert new.shape == (1, 3, 32 * factor, 32 * factor)
        np.testing.assert_allclose(new, old, 1e-6, 1e-6)


def operators(model: Any) -> list[tuple[str, str]]:
    return [(node.domain, node.op_type) for node in model.graph.node if node.op_type != "Constant"]


def test_the_command_prints_or_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "old.py"
    old = "import torch\n\ntorch.onnx.export(m, x, 'f', aten=False)\ntorch.onnx.export(*y)\n"
    script.write_text(old)
    new = "import torch\n\ntorch.onnx.export(m, x, 'f')\ntorch.onnx.export(*y)\n"
    assert main(["migrate", "-q", "--no-run", str(script)]) == 1
    shown = capsys.readouterr()
    assert shown.out == new
    assert f"{script}:4: torch.onnx.export is left unchanged: it is called with starred arguments." in shown.err
    assert "work with the bridge on: use opbridge run-script" in shown.err
    assert script.read_text() == old
    assert f"{script}:3: aten is rewritten, but was not run." in shown.err
    assert main(["migrate", "-q", "--no-run", "--json", str(script)]) == 1
    assert json.loads(capsys.readouterr().out)["text"] == new
    assert main(["migrate", "-q", "-w", "--no-run", str(script)]) == 1
    shown = capsys.readouterr()
    assert "0 converted, 1 not run, 1 left unchanged" in shown.out
    assert "with the bridge on: use opbridge run-script" in " ".join(shown.out.split())
    assert script.read_text() == new
    assert list(tmp_path.iterdir()) == [script]


_SCRIPT = """
import sys

import torch


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        return x * float(factor)

    @staticmethod
    def symbolic(g, x, factor):
        return g.op("own::Scale", x, factor_f=factor)


class Unused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1

    @staticmethod
    def symbolic(g, x):
        return g.op("own::Unused", x)


def unused(x):
    return Unused.apply(x)


class Net(torch.nn.Module):
    def forward(self, x):
        return Scale.apply(x, 2.0)


torch.onnx.export(Net(), (torch.ones(2, 3),), sys.argv[1], opset_version=13)
"""


@pytest.mark.sweep
def test_what_the_command_reports_as_converted_was_run_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "old.py"
    script.write_text(_SCRIPT)
    found = checked(migrate(script), ["model.onnx"])
    assert found.problem == ""
    assert {change.name for change in found.converted} == {"Scale.symbolic", "torch.onnx.export", "opset_version"}
    assert [change.name for change in found.not_run] == ["Unused.symbolic"]
    assert found.reason == "no exported model calls it"
    wrong = checked(dataclasses.replace(migrate(script), text=_SCRIPT), ["model.onnx"])
    assert "is computed by other nodes (without own::Scale; with ai.onnx::Mul)" in wrong.problem
    assert wrong.converted == ()
    monkeypatch.setattr("opbridge.legacy.migrate.check.checked", lambda *given: wrong)
    assert main(["migrate", "-q", "-w", str(script)]) == 1
    assert script.read_text() == _SCRIPT
    assert "The new source is not right, and was not written" in capsys.readouterr().out
    monkeypatch.undo()
    assert main(["migrate", "-q", "-w", str(script)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "0 converted, 4 not run" in shown
    assert "it fails in an empty folder: IndexError: list index out of range" in shown
    assert list(tmp_path.iterdir()) == [script]


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="can't be read: No such file"):
        migrate(tmp_path / "none.py")
    for text in ("def f(:\n", "[" * 100_000, f"x = {'-' * 20_000}1\n"):  # The last two would end libcst's process.
        with pytest.raises(InputError, match=r"is not valid Python: \w"):
            migrated(tmp_path, text)
    monkeypatch.setitem(sys.modules, "libcst", None)
    with pytest.raises(InputError, match="needs the Python package libcst") as error:
        migrate(tmp_path / "old.py")
    assert error.value.fix == 'pip install "libcst>=1.5.0"'
