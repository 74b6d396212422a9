"""The user's own line, out of tracebacks and FX nodes."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from opbridge.capture.capture import capture
from opbridge.torch_graph.sources import (
    SourceLine,
    frames_of_error,
    innermost,
    module_path,
    source_of_error,
    source_of_function,
    source_of_node,
    source_of_stack_trace,
    source_of_traceback,
)
from opbridge.torch_graph.statements import called_name, condition_at

pytestmark = pytest.mark.newest

HERE = str(Path(__file__).resolve())


class Model(nn.Module):
    def forward(self, x):
        return self.inner(x)

    def inner(self, x):
        return torch.nn.functional.linear(x, x.reshape(7, 7))


def caught(function, *args) -> Exception:
    with pytest.raises(Exception) as info:  # noqa: PT011 - whatever it raises
        function(*args)
    return info.value


def line_of(function, text: str) -> int:
    lines, start = inspect.getsourcelines(function)
    return start + next(index for index, line in enumerate(lines) if text in line)


def test_the_innermost_line_of_the_user() -> None:
    source = source_of_error(caught(torch.export.export, Model(), (torch.ones(2, 3),)))
    expected = "return torch.nn.functional.linear(x, x.reshape(7, 7))"
    assert source == SourceLine(HERE, line_of(Model.inner, "linear"), "Model.inner", expected)
    assert source_of_traceback(caught(Model(), torch.ones(2, 3)).__traceback__) == source


def test_the_script_that_calls_the_export_is_not_the_culprit() -> None:
    error = caught(torch.export.export, Model(), ())
    assert source_of_error(error) is None
    assert all(frame.file != HERE for frame in frames_of_error(error))


def test_the_cause_is_looked_at_where_the_error_passed_no_line() -> None:
    error = RuntimeError("outer")
    error.__cause__ = caught(Model(), torch.ones(2, 3))
    source = source_of_error(error)
    assert source is not None
    assert source.function == "Model.inner"


def test_a_library_gives_its_line_only_where_the_user_has_none() -> None:
    torch_line = SourceLine(str(Path(torch.__file__).parent / "functional.py"), 3)
    library = SourceLine("/env/lib/python3.11/site-packages/torchvision/ops/boxes.py", 86, "batched_nms")
    standard = SourceLine(ast.__file__, 5)
    generated = SourceLine("<string>", 1, "<lambda>")
    user = SourceLine("/home/somebody/model.py", 12)
    assert innermost([user, library, torch_line, standard, generated]) == user
    assert innermost([user, library, torch_line], libraries=True) == library
    assert innermost([library, torch_line]) == library
    assert innermost([torch_line, standard, generated]) is None
    assert library.is_installed
    assert not user.is_installed


def test_a_notebook_cell_is_the_users() -> None:
    assert innermost([SourceLine("<ipython-input-3-ab>", 2), SourceLine("<string>", 1)]) is not None


def test_source_of_a_node() -> None:
    program = torch.export.export(nn.Sequential(nn.ReLU(), Twice()), (torch.ones(3),))
    node = next(node for node in program.graph.nodes if "mul" in str(node.target))
    assert source_of_node(node) == SourceLine(HERE, line_of(Twice.forward, "x * 2"), "forward", "return x * 2")
    assert source_of_node(next(iter(program.graph.find_nodes(op="output")))) is None


class Twice(nn.Module):
    def forward(self, x):
        return x * 2


class Scaled(nn.Module):
    def forward(self, x):
        return self.inner(x)

    def inner(self, x):
        return x * x.shape[0]


def test_source_of_a_node_in_a_method_that_forward_calls() -> None:
    program = capture(Scaled(), (torch.ones(3),), dynamic_shapes=({0: "n"},)).program
    lines = {str(node.target): source_of_node(node) for node in program.graph.nodes}
    expected = SourceLine(HERE, line_of(Scaled.inner, "x * x"), "inner", "return x * x.shape[0]")
    assert lines["aten.mul.Tensor"] == expected
    assert lines["aten.sym_size.int"] is None


def test_stack_trace_text() -> None:
    text = (
        '  File "/home/somebody/model.py", line 12, in forward\n    y = roll(x)\n    ~~~~^^^\n'
        '  File "/x/site-packages/torch/nn/functional.py", line 3, in roll\n    return _roll(x)\n'
    )
    assert source_of_stack_trace(text) == SourceLine("/home/somebody/model.py", 12, "forward", "y = roll(x)")
    assert source_of_stack_trace(None) is None
    assert source_of_stack_trace("nothing of the kind") is None


def test_printed_relative_to_the_current_directory(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(SourceLine(str(tmp_path / "models" / "net.py"), 7)) == "models/net.py:7"
    assert str(SourceLine("/elsewhere/net.py", 7)) == "/elsewhere/net.py:7"
    assert str(SourceLine(str(tmp_path / "env/lib/site-packages/timm/layers/x.py"), 7)) == "timm/layers/x.py:7"
    assert str(SourceLine("<stdin>", 7)) == "<stdin>:7"


def test_to_dict_is_json() -> None:
    line = SourceLine("/elsewhere/net.py", 7, "forward", "x = 1")
    assert json.loads(json.dumps(line.to_dict())) == {
        "source": "/elsewhere/net.py:7",
        "line": 7,
        "function": "forward",
        "text": "x = 1",
    }


CODE = """\
def forward(self, x, n):
    if n.numel() > (4 if True else 5) and not tracing():
        pass
    while not n.shape[0]:
        pass
    assert (
        x.min() > -1
    )
    y = [row for row in x.rows()]
    z = 1 if x.flag or n else 2
    if x.a < x.b < x.c: pass
    return torch.from_numpy(np.sort(x.cpu().numpy())) + helper(x)
"""


@pytest.mark.parametrize(
    ("line", "keyword", "text", "holds", "opposite"),
    [
        (
            2,
            "if",
            "n.numel() > (4 if True else 5)",
            "n.numel() > (4 if True else 5)",
            "n.numel() <= (4 if True else 5)",
        ),
        (4, "while", "not n.shape[0]", "n.shape[0] == 0", "n.shape[0] != 0"),
        (7, "assert", "x.min() > -1", "x.min() > -1", "x.min() <= -1"),
        (9, "for", "x.rows()", "x.rows() != 0", "x.rows() == 0"),
        (10, "if", "x.flag or n", "x.flag or n", "torch.sym_not(x.flag or n)"),
        (11, "if", "x.a < x.b < x.c", "x.a < x.b < x.c", "torch.sym_not(x.a < x.b < x.c)"),
    ],
)
def test_condition_of_a_line(tmp_path, line, keyword, text, holds, opposite) -> None:
    file = tmp_path / "code.py"
    file.write_text(CODE)
    found = condition_at(SourceLine(str(file), line))
    assert found is not None
    assert (found.keyword, found.text, found.holds, found.opposite) == (keyword, text, holds, opposite)


def test_lines_without_a_condition(tmp_path) -> None:
    file = tmp_path / "code.py"
    file.write_text(CODE)
    assert condition_at(SourceLine(str(file), 12)) is None
    assert condition_at(SourceLine(str(tmp_path / "missing.py"), 1)) is None
    assert condition_at(None) is None
    file = tmp_path / "broken.py"
    file.write_text("if (:\n")
    assert condition_at(SourceLine(str(file), 1)) is None


def test_called_name(tmp_path) -> None:
    file = tmp_path / "code.py"
    file.write_text(CODE)
    assert called_name(SourceLine(str(file), 12)) == "helper"
    assert called_name(SourceLine(str(file), 4)) is None
    assert called_name(None) is None


def test_import_path_and_definition_of_a_function() -> None:
    source = source_of_function(Model.forward)
    assert source is not None
    assert source.text == "def forward(self, x):"
    assert module_path(source) == f"{__name__}.Model.forward"
    assert source_of_function(len) is None
    assert module_path(SourceLine("/nowhere.py", 1, "f")) is None
    assert __name__ in sys.modules


def test_searching_for_a_module_imports_no_lazy_one(monkeypatch) -> None:
    class Lazy(ModuleType):
        def __getattribute__(self, name: str):
            raise ImportError(f"{name}: an optional dependency is missing")

    monkeypatch.setitem(sys.modules, "lazy_module_of_this_test", Lazy("lazy"))
    monkeypatch.setitem(sys.modules, "blocked_module_of_this_test", None)
    assert module_path(SourceLine("/nowhere.py", 1, "f")) is None
