"""``opbridge migrate``: what becomes of each old form, what is left, and that the table's files export the same."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("libcst")

from legacy_batches import batches, trees_of  # noqa: E402
from legacy_cases.table import FOLDER, all_cases  # noqa: E402
from legacy_graphs import export_with_torchscript, output_trees  # noqa: E402

from opbridge.cli import main  # noqa: E402
from opbridge.errors import InputError  # noqa: E402
from opbridge.legacy.migrate import Migration, migrate  # noqa: E402

TESTS = Path(__file__).parent
EXAMPLES = TESTS.parent / "examples" / "legacy"
CASES = {name: case for name, case in all_cases().items() if case.migrates}
FILES = sorted(file.name for file in FOLDER.glob("*.py") if file.name not in ("__init__.py", "table.py"))


def migrated(folder: Path, text: str) -> Migration:
    file = folder / "old.py"
    file.write_text(text)
    return migrate(file)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The table's files, migrated, then exported by plain torch.onnx.export in a process without the bridge."""
    folder = tmp_path_factory.mktemp("migrated")
    copy = folder / "legacy_cases"
    copy.mkdir()
    for file in FOLDER.glob("*.py"):
        text = migrate(file).text if file.name in FILES else file.read_text()
        (copy / file.name).write_text(text)
    command = [sys.executable, str(TESTS / "legacy_migrated_script.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {
        name: trees
        for batch in batches(dynamic=False, only=lambda case: case.migrates)
        for name, trees in trees_of(batch, onnx.load(folder / f"{batch.name}.onnx")).items()
    }


def scalars_alike(tree: Any) -> Any:
    """A tree in which a constant of one element has no shape: a number of Python has none."""
    if isinstance(tree, tuple) and len(tree) == 3 and isinstance(tree[1], tuple) and len(tree[2]) == 1:
        return tree[0], (), tree[2]
    if isinstance(tree, tuple):
        return tuple(map(scalars_alike, tree))
    if hasattr(tree, "inputs"):
        return tree.operator, scalars_alike(tree.attributes), scalars_alike(tree.inputs), tree.output
    return tree


@pytest.mark.parametrize("name", CASES)
def test_a_migrated_case_exports_the_same_model(name: str, results: dict[str, Any]) -> None:
    case = CASES[name]
    if case.oracle:
        expected = output_trees(export_with_torchscript(case, False))
        assert scalars_alike(tuple(results[name])) == scalars_alike(tuple(expected))
    else:
        assert [str(tree) for _, tree in results[name]] == list(case.graph)


def test_most_of_the_table_is_converted_and_the_rest_is_listed() -> None:
    found = {file: migrate(FOLDER / file) for file in FILES}
    # Two of these are torchvision's, and left out where it is not installed.
    assert len(CASES) >= (65 if importlib.util.find_spec("torchvision") else 63)
    assert sum(len(item.converted) for item in found.values()) >= 60
    said = {(change.name, change.detail) for item in found.values() for change in item.left}
    assert ("StarredSymbolic.symbolic", "its parameters are starred.") in said
    assert ("SetTypeSizes.symbolic", "it asks a value for .with_sizes().") in said
    assert ("ScriptFunction.symbolic", "it calls g.onnxscript_op.") in said
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
    assert "opbridge.convert_opset goes down to 11" in result.converted[1].detail


@pytest.mark.parametrize("given", ["False", "with_weights"])
def test_weights_that_were_left_out_stay_out(given: str, tmp_path: Path) -> None:
    result = migrated(tmp_path, f"import torch\ntorch.onnx.export(m, x, 'f', {given}, strip_doc_string=True)\n")
    assert result.text == f"import torch\ntorch.onnx.export(m, x, 'f', export_params={given})\n"


def test_line_endings_stay(tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    script.write_bytes(b"import torch\r\ntorch.onnx.export(m, x, 'f', aten=False)\r\n")
    assert main(["migrate", "-q", "-w", str(script)]) == 0
    assert script.read_bytes() == b"import torch\r\ntorch.onnx.export(m, x, 'f')\r\n"


@pytest.mark.parametrize(
    ("text", "name", "detail"),
    [
        ("import torch\ntorch.onnx.export(m, x, 'f', custom_opsets={'own': 3})", "custom_opsets", "set the others"),
        ("import torch\ntorch.onnx.export(m, x, 'f', dynamic_axes=axes)", "dynamic_axes", "write dynamic_shapes"),
        ("import torch\ntorch.onnx.export(*given)", "torch.onnx.export", "its arguments are starred"),
        ("import torch\ntorch.onnx.register_custom_op_symbolic(name, f, 9)", "torch.onnx.register", "no literals"),
        ("import torch\ntorch.onnx.unregister_custom_op_symbolic('a::b', 9)", "unregister_custom", "not taken back"),
        ("from torch.onnx import utils\nutils._model_to_graph(m, x)", "_model_to_graph", "its .model is the graph"),
        ("X.symbolic = staticmethod(f)", "X.symbolic", "assigned at run time"),
    ],
)
def test_what_it_cannot_convert_is_named(text: str, name: str, detail: str, tmp_path: Path) -> None:
    result = migrated(tmp_path, text + "\n")
    (change,) = result.left
    assert change.line == text.count("\n") + 1
    assert change.name.startswith(name)
    assert detail in change.detail


def test_the_tutorials_programs_are_converted() -> None:
    found = {file.name: migrate(file) for file in EXAMPLES.rglob("*.py")}
    for name, target in {
        "asinh.py": '@opbridge.translation("aten::asinh")',
        "clamp_swish.py": '@opbridge.operator("clamp_swish::custom_op2")',
        "export.py": '@opbridge.translation("export::my_add_function")',
    }.items():
        assert target in found[name].text
        assert "custom_translation_table=opbridge.translation_table()" in found[name].text
        compile(found[name].text, name, "exec")
        assert not found[name].left
    assert [change.name for change in found["super_resolution.py"].left] == ["NewInterpolate.symbolic"]


def test_the_migrated_clamp_swish_exports(tmp_path: Path) -> None:
    script = tmp_path / "clamp_swish.py"
    script.write_text(migrate(EXAMPLES / "clamp_swish.py").text)
    file = tmp_path / "model.onnx"
    done = subprocess.run(
        [sys.executable, str(script), str(file)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (node,) = [node for node in onnx.load(file).graph.node if node.domain]
    assert (node.domain, node.op_type) == ("custom_domain", "customOp2")


def test_the_command_prints_or_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "old.py"
    old = "import torch\n\ntorch.onnx.export(m, x, 'f', aten=False)\ntorch.onnx.export(*y)\n"
    script.write_text(old)
    new = "import torch\n\ntorch.onnx.export(m, x, 'f')\ntorch.onnx.export(*y)\n"
    assert main(["migrate", "-q", str(script)]) == 0
    shown = capsys.readouterr()
    assert shown.out == new
    assert f"{script}:4: torch.onnx.export stays: its arguments are starred." in shown.err
    assert script.read_text() == old
    assert main(["migrate", "-q", "--json", str(script)]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == new
    assert main(["migrate", "-q", "-w", str(script)]) == 0
    assert "1 converted, 1 left as they are" in capsys.readouterr().out
    assert script.read_text() == new
    assert list(tmp_path.iterdir()) == [script]


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="can't be read: No such file"):
        migrate(tmp_path / "none.py")
    with pytest.raises(InputError, match="is no Python"):
        migrated(tmp_path, "def f(:\n")
    monkeypatch.setitem(sys.modules, "libcst", None)
    with pytest.raises(InputError, match="needs the Python package libcst") as error:
        migrate(tmp_path / "old.py")
    assert error.value.fix == 'pip install "opbridge[migrate]"'
