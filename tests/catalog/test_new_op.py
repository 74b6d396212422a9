"""``opbridge new-op``: the files it writes, and what it refuses."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from opbridge import engines
from opbridge.catalog.declare.scaffold import new_operator
from opbridge.cli import main
from opbridge.errors import InputError
from opbridge.kernels.compiler import build
from opbridge.kernels.library import KernelLibrary
from opbridge.verbs.operator_check import check_operators

pytestmark = pytest.mark.newest


def test_the_files_and_the_next_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    folder = tmp_path / "deep" / "my ops"
    assert main(["new-op", "mylib::my_op", "--kernel", "-o", str(folder)]) == 0
    out = capsys.readouterr().out
    assert f"wrote {folder}/my_op.py" in out
    assert f"wrote {folder}/my_op.h" in out
    assert f"opbridge test-op '{folder}/my_op.py'" in out
    assert f"opbridge export '{folder}/my_op.py:model' -o '{folder}/bundle'" in out
    assert sorted(file.name for file in folder.iterdir()) == ["my_op.h", "my_op.py"]
    assert 'my_op.kernel("my_op.h")' in (folder / "my_op.py").read_text()


def test_without_a_kernel_there_is_one_file(tmp_path: Path) -> None:
    scaffold = new_operator("mylib::plain_op", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["plain_op.py"]
    assert scaffold.target == "mylib::plain_op"
    assert "kernel(" not in (tmp_path / "plain_op.py").read_text()


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-op", "mylib::my_op", "--json", "-o", str(tmp_path)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["target"] == "mylib::my_op"
    assert [Path(file).name for file in data["files"]] == ["my_op.py"]
    assert data["commands"][0].startswith("opbridge test-op ")


@pytest.mark.quick("False")
@pytest.mark.parametrize("kernel", [False, True])
def test_it_exports_at_once(kernel: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    name = f"exported_{'with' if kernel else 'without'}_kernel"
    new_operator(f"test_new_op::{name}", "ops", kernel=kernel)
    assert main(["export", f"ops/{name}.py:model", "-o", "build/it", "-q"]) == 0
    manifest = json.loads((tmp_path / "build/it/bundle.json").read_text())
    (step,) = [step for step in manifest["operators"] if step["target"] == f"test_new_op::{name}"]
    assert step["rung"] == ("kernel" if kernel else "function")
    assert json.loads((tmp_path / "build/it/verification.json").read_text())["verdict"] == "passed"


@pytest.mark.sweep
def test_it_passes_its_checks_in_engines_without_some_types(tmp_path: Path) -> None:
    """What an engine can't hold at all does not apply to it: float64 to OpenVINO, empty tensors to ncnn."""
    able = [name for name in ("openvino", "ncnn", "tvm") if engines.get(name).is_installed()]
    scaffold = new_operator("test_new_op::checked", tmp_path, kernel=True)
    found = check_operators(scaffold.files[0], engines=able)
    assert found.passed, [result for result in found.results if result.status == "failed"]
    without = {(r.check, r.sample) for r in found.results if r.check in able and r.status == "not applicable"}
    assert without <= {
        ("openvino", "float64"),
        *(("ncnn", sample) for sample in ("empty", "float64", "float16", "bfloat16")),
    }
    assert {result.check.partition(",")[0] for result in found.results if result.status == "passed"} >= set(able)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["union", "exp", "template", "index"])
def test_names_that_mean_something_in_cpp(name: str, tmp_path: Path) -> None:
    new_operator(f"mylib::{name}", tmp_path, kernel=True)
    library = KernelLibrary(build([tmp_path / f"{name}.h"]))
    assert [operator.target for operator in library.operators] == [f"mylib::{name}"]


@pytest.mark.parametrize(
    ("name", "message", "fix"),
    [
        ("my_op", "The name 'my_op' has no namespace.", "mylib::my_op"),
        ("my op", "The name 'my op' has no namespace.", "mylib::my_op"),
        ("mylib::", "is not a valid operator name", "mylib::my_op"),
        ("mylib::my-op", "is not a valid operator name", "mylib::my_op"),
        ("a::b::c", "is not a valid operator name", "mylib::my_op"),
        ("mylib::größe", "is not a valid operator name", "mylib::my_op"),
        ("mylib::my_op.out", "is not a valid operator name", "mylib::my_op"),
        ("aten::my_op", "the namespace 'aten' belongs to PyTorch", "mylib::my_op"),
        ("mylib::lambda", "can't be named 'lambda'", "mylib::lambda_op"),
        ("mylib::model", "can't be named 'model'", "mylib::model_op"),
        ("mylib::x", "can't be named 'x'", "mylib::x_op"),
        ("mylib::torch", "can't be named 'torch'", "mylib::torch_op"),
        ("mylib::calendar", "would hide the installed module 'calendar'", "mylib::calendar_op"),
        ("mylib::numpy", "would hide the installed module 'numpy'", "mylib::numpy_op"),
    ],
)
def test_names_that_are_refused(name: str, message: str, fix: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        new_operator(name, tmp_path)
    assert message in raised.value.message
    assert fix in raised.value.fix
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["my_op.py", "my_op.h"])
def test_nothing_is_overwritten_and_nothing_half_written(there: str, tmp_path: Path) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(InputError) as raised:
        new_operator("mylib::my_op", tmp_path, kernel=True)
    assert raised.value.message == f"{tmp_path / there} already exists and is not overwritten."
    assert [file.name for file in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="can't be written to"):
        new_operator("mylib::my_op", tmp_path / "file")
    with pytest.raises(InputError, match="can't be written to"):
        new_operator("mylib::my_op", tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def full(self: Path, *args: object, **kwargs: object) -> object:
        if self.suffix == ".h":
            raise OSError(28, "No space left on device", str(self))
        return opened(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(InputError, match="No space left on device"):
        new_operator("mylib::my_op", tmp_path / "new" / "deep", kernel=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(InputError, match="Permission denied"):
        new_operator("mylib::my_op", tmp_path)
