"""entry.py: what an entry may be, and what the user is told when it is something else."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from opbridge.bundle.bundle import Bundle
from opbridge.bundle.reference import find_entry
from opbridge.bundle.trust import Trust
from opbridge.capture.entry import entry_file, load_entry, portable_entry
from opbridge.errors import InputError

pytestmark = pytest.mark.newest

HEAD = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def entry(body: str, name: str = "net.py", function: str = "model") -> str:
    Path(name).write_text(HEAD + body)
    return f"{name}:{function}"


def returning(value: str) -> str:
    return entry(f"def model():\n    return {value}\n")


def fails(text: str, match: str, fix: str) -> InputError:
    with pytest.raises(InputError, match=match) as caught:
        load_entry(text)
    assert fix in caught.value.fix
    return caught.value


def test_tuple_of_two() -> None:
    loaded = load_entry(returning("Net(), (torch.ones(2),)"))
    assert type(loaded.model).__name__ == "Net"
    assert [value.shape for value in loaded.args] == [(2,)]
    assert loaded.kwargs == {}
    assert loaded.file == Path("net.py").resolve()


def test_tuple_of_three() -> None:
    loaded = load_entry(returning("Net(), [], {'x': torch.ones(2)}"))
    assert loaded.args == ()
    assert list(loaded.kwargs) == ["x"]


def test_dict() -> None:
    text = returning(
        "dict(model=Net(), args=(torch.ones(2),), dynamic_shapes=({0: 'n'},), input_names=['x'], output_names=['y'])"
    )
    loaded = load_entry(text)
    assert loaded.dynamic_shapes == ({0: "n"},)
    assert (loaded.input_names, loaded.output_names) == (["x"], ["y"])
    assert loaded.text == text


def test_program(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),))
    torch.export.save(program, "net.pt2")
    loaded = load_entry("net.pt2")
    assert isinstance(loaded.model, torch.export.ExportedProgram)
    assert loaded.args[0].shape == (1, 2)
    assert loaded.file == tmp_path / "net.pt2"


def test_module_in_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "zoo_of_this_test").mkdir()
    text = entry("def model():\n    return Net(), ()\n", "zoo_of_this_test/nets.py")
    assert load_entry("zoo_of_this_test.nets:model").file == tmp_path / text.split(":")[0]


def test_a_file_is_imported_once_and_its_siblings_share_it(tmp_path: Path) -> None:
    Path("sibling_of_counted.py").write_text("import counted_net\nSEEN = counted_net\n")
    text = entry(
        "RUNS = [0]\nRUNS[0] += 1\ndef model():\n    import sibling_of_counted as s\n"
        "    assert s.SEEN.RUNS is RUNS\n    return Net(), (torch.full((1,), RUNS[0]),)\n",
        "counted_net.py",
    )
    before = list(sys.path)
    assert load_entry(text).args[0].item() == 1
    assert load_entry(f"{tmp_path}/{text}").args[0].item() == 1
    assert sys.path == before


def test_a_file_named_like_a_library_module_hides_nothing() -> None:
    import queue

    loaded = load_entry(entry("def model():\n    return Net(), ()\n", "queue.py"))
    assert type(loaded.model).__module__ != "queue"
    assert sys.modules["queue"] is queue


def test_two_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    for folder, size in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        entry(f"def model():\n    return Net(), (torch.ones({size}),)\n", f"{folder}/same_name.py")
    assert [load_entry(f"{folder}/same_name.py:model").args[0].numel() for folder in "ab"] == [1, 2]


@pytest.mark.parametrize(
    ("text", "fix"),
    [("net.py", "net.py:model"), ("net.py:", "net.py:model"), (":f", "for example"), ("a:1b", "example")],
)
def test_no_entry(text: str, fix: str) -> None:
    fails(text, f"{re.escape(repr(text))} is not a valid entry: expected file.py:function", fix)


def test_missing_file() -> None:
    returning("None")
    fails("nett.py:model", "there is no file nett.py", "write net.py")
    fails("nowhere/other.py:model", "there is no file nowhere/other.py", "is relative to the current folder")
    fails("other.pt2", "there is no such file", "check the path")


def test_missing_function() -> None:
    text = entry("def model():\n    pass\n")
    fails(text + "s", "net.py has no function 'models'", "write net.py:model")
    fails("net.py:zzz", "net.py has no function 'zzz'", "its functions are: model")
    Path("empty.py").write_text("")
    fails("empty.py:model", "no function 'model'", "define a function that returns (module, args)")


def test_missing_module() -> None:
    fails("no_such_package.nets:model", "there is no module 'no_such_package'", "run in the folder")


def test_missing_dependency() -> None:
    text = entry("import no_such_dependency\ndef model():\n    pass\n")
    fails(
        text, r"importing net.py raised ModuleNotFoundError.*net.py:5, import no_such_dependency", "install the package"
    )


def test_an_entry_that_raises_is_told_with_the_users_own_line() -> None:
    text = entry("def build():\n    return torch.ones(2) @ torch.ones(3)\ndef model():\n    return build(), ()\n")
    error = fails(text, r"model\(\) raised RuntimeError: .*\(net.py:6, return torch.ones\(2\) @", "correct the entry")
    assert "Traceback" in (error.details or "")


def test_a_file_that_raises_while_it_is_imported() -> None:
    text = entry("1 / 0\n", "raising_net.py")
    fails(text, r"importing raising_net.py raised ZeroDivisionError.*raising_net.py:5, 1 / 0", "correct the entry")
    fails(entry("raise SystemExit('usage')\n", "script.py"), "importing script.py raised SystemExit: usage", "correct")
    assert "raising_net" not in sys.modules


def test_a_syntax_error() -> None:
    fails(entry("def model(:\n"), r"importing net.py raised SyntaxError.*\(net.py:5\)", "correct the entry")


def test_errors_of_opbridge_in_the_entry_pass_unchanged() -> None:
    text = entry("import opbridge\n@opbridge.decomposition('hypot')\ndef hypot(a, b):\n    pass\n")
    fails(text, "^@decomposition\\('hypot'\\): a target has the form", "aten::cummax")


def test_wrong_arity() -> None:
    fails(entry("def model(size):\n    pass\n"), r"model\(\) is called without arguments.*'size'", "default value")


@pytest.mark.parametrize(
    ("value", "match", "fix"),
    [
        ("None", "returns a NoneType, not a model", "return (module, args)"),
        ("Net()", "returns a Net, not a model", "return (module, args)"),
        ("(Net(),)", "returns a tuple of 1", "return (module, args)"),
        ("Net(), (), {}, 4", "returns a tuple of 4", "return (module, args)"),
        ("Net(), torch.ones(1)", "args is a Tensor, not a tuple", "note the comma"),
        ("Net(), (), [1]", "kwargs is a list, not a dict", "'name': value"),
        ("len, ()", "the model is a builtin_function_or_method, not a torch.nn.Module", "wrap a plain function"),
        ("{'module': Net()}", "unknown key 'module'", "use only these keys: model, args"),
        ("{'args': ()}", "a dict without 'model'", "return (module, args)"),
        ("{'model': Net(), 'input_names': 'x'}", "input_names is not a list of strings", "['x', 'y']"),
    ],
)
def test_wrong_return(value: str, match: str, fix: str) -> None:
    fails(returning(value), match, fix)


def test_a_module_instead_of_a_function() -> None:
    fails(entry("model = Net()\n"), "'model' is a Net, not a function", "define a function")
    fails(entry("model = 3\n", "three.py"), "'model' is a int, not a function", "define a function")


def test_a_broken_program() -> None:
    Path("net.pt2").write_bytes(b"no zip")
    fails("net.pt2", r"torch.export.load can't read it \(", "torch.export.save")


@pytest.mark.parametrize(
    ("text", "portable"),
    [
        ("examples/a.py:model", "examples/a.py:model"),
        ("./examples/a.py:model", "examples/a.py:model"),
        ("/home/me/a.py:model", "a.py:model"),
        ("package.module:model", "package.module:model"),
        ("/home/me/a.pt2", "a.pt2"),
        ("a.pt2", "a.pt2"),
    ],
)
def test_portable_entry(text: str, portable: str) -> None:
    assert portable_entry(text) == portable


def test_entry_file(tmp_path: Path) -> None:
    assert entry_file("a.py:model") == tmp_path / "a.py"
    assert entry_file("package.module:model") is None


def bundle(text: str | None, **sources: Any) -> Bundle:
    import json

    Path("b").mkdir(exist_ok=True)
    Path("b/sources.json").write_text(json.dumps(sources))
    return Bundle(Path("b"), {"entry": text}, Trust.GIVEN)


def test_the_entry_of_a_bundle_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = returning("None")
    assert find_entry(bundle(text)) == text
    assert find_entry(bundle("package.module:model")) == "package.module:model"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert find_entry(bundle(text, entry_path=str(tmp_path / "net.py"))) == f"{tmp_path}/net.py:model"
    (tmp_path / "net.pt2").touch()
    assert find_entry(bundle("net.pt2", entry_path=str(tmp_path / "net.pt2"))) == f"{tmp_path}/net.pt2"


def test_a_bundle_whose_entry_is_gone() -> None:
    with pytest.raises(InputError, match=r"was exported from gone.py:model, which is not here") as caught:
        find_entry(bundle("gone.py:model", entry_path="/nowhere/gone.py"))
    assert "--reference" in caught.value.fix
    with pytest.raises(InputError, match="records no entry") as caught:
        find_entry(bundle(None))
    assert "--reference" in caught.value.fix
