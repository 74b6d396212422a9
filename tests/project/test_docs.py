"""The documentation is true: its commands and code run, its output is what is printed, its links and names exist."""

from __future__ import annotations

import ast
import html
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from places import ENTRIES, EXAMPLES, OLD_PROGRAMS, ROOT, TUTORIAL

import opbridge
from opbridge import engines
from opbridge.cli import build_parser, main

pytestmark = pytest.mark.newest

PACKAGE = ROOT / "src" / "opbridge"
DOCUMENTS = [
    *("README.md", "README.zh.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *("docs/design.md", "docs/legacy.md", "docs/onnx.md", "docs/opsets.md", "docs/kernels.md", "docs/verification.md"),
    *("docs/engines.md", "docs/surgery.md", "docs/report.md", "docs/compare.md", "docs/catalog.md", "docs/reports.md"),
    *("docs/packages.md", "docs/control-flow.md", "docs/cpp.md", "docs/usage.md", "docs/examples.md", "SECURITY.md"),
    *("docs/tutorial.md", "docs/tutorial.zh.md", "docs/vision.md", "docs/vision-speed.md", "docs/sweep.md"),
]
GUIDES = ["README.md", "docs/usage.md", "README.zh.md"]
"""Their commands are run: the first two are the English guide."""
TUTORIALS = ["docs/tutorial.md", "docs/tutorial.zh.md"]
SET_UP = "python3 -m venv .venv && . .venv/bin/activate && "
NEEDS = {"examples/tutorial/deform_conv.py": "torchvision", "opbridge completion": "shtab", "own_operator": "openvino"}
NOTEBOOKS = {
    "first_hour": "assert 'end the loop after a largest number' in str(error_shown)",
    "own_operator": "assert max(abs(result - expected).max() for result in results.values()) < 1e-5",
}
"""What holds after the last cell of each notebook."""


def text(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def prose(document: str) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text(document), flags=re.MULTILINE | re.DOTALL)


def blocks(document: str, language: str) -> list[str]:
    """The fenced blocks of a language; "" means those without one, which show output."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text(document), re.MULTILINE | re.DOTALL)
    return [content for name, content in fenced if name == language]


def shell_lines(document: str) -> list[str]:
    return [line for block in blocks(document, "sh") for line in block.splitlines()]


def set_up_commands(document: str) -> list[str]:
    return [line for line in shell_lines(document) if line.startswith(SET_UP)]


def commands(document: str) -> Iterator[str]:
    """What a reader runs once opbridge is installed, in order."""
    for line in shell_lines(document):
        parts = line.split(" && ") if line.startswith(SET_UP) else [line]
        yield from (part for part in parts if part.startswith(("opbridge ", "python -c ")))


def table_rows(output: str) -> list[list[str]]:
    """The first two columns of the rows about an operator: its name and its rung."""
    return [line.split()[:2] for line in output.splitlines() if re.match(r"(aten|torch|torchvision)(::|\.)\S+  ", line)]


# Links, paths, names.


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_to_a_file(document: str) -> None:
    links = re.findall(r"\]\(([^)]+)\)", re.sub(r"`[^`\n]*`", "", prose(document)))
    for link in links:
        if not link.startswith("https://"):
            file, _, heading = link.partition("#")
            target = (ROOT / document).parent / file if file else ROOT / document
            assert target.exists(), f"{document} links to {link}"
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE) if heading else []
            anchors = ["", *(re.sub(r"[.,:]", "", words.lower()).replace(" ", "-") for words in headings)]
            assert heading in anchors, f"{document} links to {link}"


def test_every_document_is_checked() -> None:
    found = {file.relative_to(ROOT).as_posix() for file in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))}
    assert found == set(DOCUMENTS)


@pytest.mark.parametrize("document", [*DOCUMENTS, ".ci/run", ".ci/oldest.txt", "pyproject.toml"])
def test_no_path_of_a_machine(document: str) -> None:
    lines = [line for line in text(document).splitlines() if not line.startswith("#!")]
    assert re.findall(r"(?:^|[\s`'\"(=])(?:/(?!dev/null)[a-z]\w+/\S*|[A-Z]:\\\S*)", "\n".join(lines)) == []


def test_every_example_is_listed() -> None:
    listed = re.findall(r"^\| \[(\w+\.py)\]\(\.\./(examples/\S*\1)\)", text("docs/examples.md"), re.M)
    entries = [file.relative_to(ROOT).as_posix() for file in ENTRIES.values()]
    assert sorted(file for _, file in listed) == sorted(entries)


def test_every_subcommand_is_shown() -> None:
    names = {file.stem.replace("_", "-") for file in (PACKAGE / "cli").glob("[a-z]*.py")}
    shown = {guide: {line.split()[1] for line in commands(guide) if line.startswith("opbridge ")} for guide in GUIDES}
    elsewhere = {command.split()[1] for page in ("docs/surgery.md", "SECURITY.md") for command in commands(page)}
    for guide in GUIDES[1:]:
        assert shown[guide] | elsewhere | {"export"} == names


def test_the_example_of_every_subcommand_is_a_command_of_the_guides(capsys: pytest.CaptureFixture[str]) -> None:
    run = {line for page in (*GUIDES, "docs/surgery.md", "SECURITY.md") for line in commands(page)}
    parser = build_parser()
    for file in sorted((PACKAGE / "cli").glob("[a-z]*.py")):
        line = importlib.import_module(f"opbridge.cli.{file.stem}").EXAMPLE
        assert line in run, f"no guide that is run has {line!r}"
        assert parser.parse_args(shlex.split(line)[1:]).command == file.stem.replace("_", "-")
        with pytest.raises(SystemExit) as ended:
            parser.parse_args([file.stem.replace("_", "-"), "--help"])
        assert ended.value.code == 0
        assert capsys.readouterr().out.endswith(f"\n\nExample: {line}\n")


def test_the_architecture_names_every_folder_and_what_it_names_exists() -> None:
    page = text("docs/design.md")
    folders = {f"{file.parent.name}/" for file in PACKAGE.glob("*/__init__.py")}
    assert folders <= set(re.findall(r"^\| `(\w+/)`", page, re.MULTILINE))
    named = set(re.findall(r"`((?:\w+/)*\w+(?:\.py|/))`", page)) - {"src/opbridge/", "tests/"}
    assert {name for name in named if not any(PACKAGE.rglob(name.rstrip("/")))} == set()
    assert len(page.splitlines()) <= 100, "one page, which a newcomer reads in five minutes"


@pytest.mark.parametrize("document", ["docs/verification.md", "CONTRIBUTING.md"])
def test_files_named_in_text_exist(document: str) -> None:
    for name in set(re.findall(r"`((?:src/|tests/)?[\w/]+\.py)`", prose(document))) - {"utils.py"}:
        assert (ROOT / name).exists() or any(PACKAGE.rglob(name)), f"{document} names {name}"


def test_the_changelog_knows_this_version() -> None:
    assert re.search(r"^## \[Unreleased\]$", text("CHANGELOG.md"), re.MULTILINE)
    assert opbridge.__version__ in text("CHANGELOG.md")


# Set-up: what the documents say, what pyproject.toml offers, what .ci/run does.


def test_there_are_two_set_up_commands_and_ci_runs_the_test_one() -> None:
    main_job, tests = set_up_commands("README.md")
    assert main_job.endswith(" && opbridge export examples/detector_head.py:model -o build/head")
    assert tests.endswith(" && python -m pytest -n 2")
    (in_ci,) = re.findall(r"^readonly TEST='(.+)'$", text(".ci/run"), re.MULTILINE)
    assert tests == SET_UP + in_ci
    assert set_up_commands("README.zh.md") == [main_job, tests]


def test_the_image_installs_and_runs_what_the_first_command_does() -> None:
    image = text("Dockerfile")
    first, _ = set_up_commands("README.md")
    (package,) = re.findall(r'^RUN pip install --no-cache-dir "(\..*)"$', image, re.MULTILINE)
    (words,) = (json.loads(command) for command in re.findall(r"^CMD (.*)$", image, re.MULTILINE))
    words.remove("--overwrite")
    assert first == f'{SET_UP}pip install -q -e "{package}" && opbridge {" ".join(words)}'
    (python,) = re.findall(r"^FROM python:(.*)-slim$", image, re.MULTILINE)
    assert f"Programming Language :: Python :: {python}" in text("pyproject.toml")


def test_pip_of_any_age_finds_every_extra() -> None:
    extras = tomllib.loads(text("pyproject.toml"))["project"]["optional-dependencies"]
    # An older pip asks for "tensorrt_rtx" by another name than the one in the metadata, and installs nothing.
    assert [name for name in extras if not re.fullmatch("[a-z0-9-]+", name)] == []
    lines = [engines.get(name).install for name in engines.names()]
    asked = [re.fullmatch(r'pip install "opbridge\[(.+)\]"', line) for line in lines]
    assert {match[1] for match in asked if match} <= set(extras)


def test_the_packages_that_a_fix_names_are_those_of_the_extras() -> None:
    extras = tomllib.loads(text("pyproject.toml"))["project"]["optional-dependencies"]
    declared = {requirement for names in extras.values() for requirement in names}
    files = [*PACKAGE.rglob("*.py"), *ROOT.glob("docs/*.md"), *EXAMPLES.glob("*.py")]
    for file in files:
        for names in re.findall(r'pip install ((?:"[\w-]+>=[\d.]+" ?)+)', file.read_text(encoding="utf-8")):
            assert set(shlex.split(names)) <= declared, file


def test_every_extra_that_is_named_exists() -> None:
    extras = tomllib.loads(text("pyproject.toml"))["project"]["optional-dependencies"]
    for document in (*DOCUMENTS, ".ci/run"):
        for names in re.findall(r'pip install [^`\n]*"?\.\[([\w,]+)\]', text(document)):
            assert set(names.split(",")) <= set(extras), document


def test_the_lower_bounds_are_the_versions_that_are_tested() -> None:
    project = tomllib.loads(text("pyproject.toml"))["project"]
    extras = project["optional-dependencies"]
    declared = set(project["dependencies"]).union(*(extras[name] for name in ("onnxruntime", "export", "test")))
    pinned = {line for line in text(".ci/oldest.txt").splitlines() if line and not line.startswith("#")}
    assert {line.replace(">=", "==") for line in declared} == pinned


def test_the_chinese_guide_has_the_commands_of_the_english_one() -> None:
    assert set(commands("README.md")) | set(commands("docs/usage.md")) <= set(commands("README.zh.md"))
    assert set(commands("docs/tutorial.md")) == set(commands("docs/tutorial.zh.md"))


def test_the_tutorial_has_every_old_program_beside_its_modern_form() -> None:
    old = {file.relative_to(ROOT).as_posix() for file in OLD_PROGRAMS.glob("**/*.py")}
    for page in TUTORIALS:
        for line in commands(page):
            for file in re.findall(r"examples/\S+?\.py", line):
                assert (ROOT / file).exists(), line
        named = set(re.findall(r"\]\(\.\./(examples/tutorial/old/\S+?\.py)\)", text(page)))
        assert named == old - {"examples/tutorial/old/my_add/setup.py"}
        modern = re.findall(r"^\| \d\. .*\]\(\.\./examples/tutorial/(\w+\.py)\)", text(page), re.MULTILINE)
        assert sorted(modern) == sorted(file.name for file in TUTORIAL.glob("*.py")), "one row for each program"
        exported = re.findall(r"^opbridge export examples/tutorial/(\w+\.py)", text(page), re.MULTILINE)
        assert exported == modern, "the sections are in the order of the table"


# Commands and code, run.


LONG = ("test-op", "migrate", "sweep", "conformance")
"""Commands that take half a minute each; their own tests run them on less, and `.ci/run sweep` as they are shown."""


@pytest.mark.quick(every=2)
@pytest.mark.newest
@pytest.mark.parametrize("long", [False, True])
def test_the_commands_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], long: bool
) -> None:
    """Those of the English guide, then what the Chinese one has beyond them."""
    pytest.importorskip("torch")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    not_run = []
    printed = ""
    for command in dict.fromkeys(command for guide in GUIDES for command in commands(guide)):
        missing = [need for file, need in NEEDS.items() if file in command and not importlib.util.find_spec(need)]
        if missing:
            not_run.append(f"{command} (needs {missing[0]})")
            continue
        if command.startswith(("opbridge view ", "opbridge build-kernels vision ")):
            continue  # test_view.py and test_kernel_libraries.py run them: one never ends, one compiles for a minute.
        argv = shlex.split(command.replace("build/", f"{tmp_path}/"))
        if argv[0] == "opbridge" and argv[1] in LONG and not long:
            build_parser().parse_args(argv[1:])
        elif argv[0] == "opbridge":
            assert main(argv[1:]) == 0, command
        else:
            done = subprocess.run([sys.executable, *argv[1:]], capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
        printed += capsys.readouterr().out
    assert np.load(tmp_path / "outputs.npz")["best_score"].shape == (5,)
    for guide in GUIDES:
        for row in table_rows("\n".join(blocks(guide, ""))):
            assert row in table_rows(printed), f"{guide} shows {row}"
    if not_run:
        pytest.skip(f"all but these ran: {'; '.join(not_run)}")


def test_the_output_that_is_shown_has_the_headings_that_are_printed() -> None:
    from opbridge.report import rungs, verification

    lines = [line for guide in GUIDES for block in blocks(guide, "") for line in block.splitlines()]
    shown = [line.split("  ") for line in lines if line.startswith(("operator ", "output "))]
    assert len(shown) == 2
    sources = "".join(Path(module.__file__).read_text() for module in (rungs, verification))
    for heading in (part.strip() for line in shown for part in line if part.strip()):
        assert f'"{heading}"' in sources


def test_the_picture_of_the_terminal_is_what_the_readme_shows() -> None:
    picture = html.unescape(re.sub("<[^>]*>", " ", text("docs/pictures/export.svg"))).split()
    (shown,) = (block for block in blocks("README.md", "") if block.startswith("8 of "))
    seconds = re.search(r"([\d.]+) s\)", shown)
    assert seconds is not None
    assert {word for word in shown.split() if word != seconds[1]} <= set(picture)


@pytest.mark.quick(every=2)
@pytest.mark.newest
@pytest.mark.parametrize("guide", ["README.md", "docs/usage.md", *TUTORIALS])
def test_the_python_code_runs(guide: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "guide.py"
    program.write_text("\n".join(blocks(guide, "python")), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, program.name]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.quick(every=2)
@pytest.mark.newest
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebook_runs(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    # As a notebook does, so that the page of a bundle is made too.
    shown = f"\nassert '<iframe' in bundle._repr_html_()\n{NOTEBOOKS[name]}\n"
    code[-1] = code[-1].replace("    print(error)", "    error_shown = error")
    (tmp_path / "notebook.py").write_text("\n".join(code) + shown, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "notebook.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_notebooks_are_listed_and_stored_without_outputs() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.ipynb")} == set(NOTEBOOKS)
    for name in NOTEBOOKS:
        assert f"(../examples/{name}.ipynb)" in text("docs/examples.md")
        cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.sweep
def test_the_code_about_old_scripts_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "old.py"
    program.write_text("\n".join(blocks("docs/legacy.md", "python")), encoding="utf-8")
    command = [sys.executable, program.name]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.sweep
@pytest.mark.xfail(
    importlib.metadata.version("torch") < "2.14",
    reason="torch 2.13 folds the batch size into a Reshape that set-dimension does not free yet",
    strict=True,
)
def test_the_surgery_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(ROOT)
    for command in commands("docs/surgery.md"):
        assert main(shlex.split(command.replace("build/", f"{tmp_path}/"))[1:]) == 0, command
    program = tmp_path / "surgery_of_the_guide.py"
    program.write_text("\n".join(blocks("docs/surgery.md", "python")), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, program.name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.sweep
def test_the_kernels_of_the_guide_compile_and_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from opbridge.kernels.compiler import build
    from opbridge.kernels.library import KernelLibrary

    headers = {}
    for block in blocks("docs/kernels.md", "cpp"):
        if name := re.match(r"// (\w+\.h)\n", block):
            headers[name[1]] = tmp_path / name[1]
            headers[name[1]].write_text(block, encoding="utf-8")
    declared = KernelLibrary(build(list(headers.values()))).operators
    assert sorted(operator.name for operator in declared) == ["choose", "rms_norm", "total"]
    program = tmp_path / "rms_norm.py"
    program.write_text("\n".join(blocks("docs/kernels.md", "python")), encoding="utf-8")
    command = [sys.executable, program.name]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr


# The examples in CONTRIBUTING.md, one per kind of thing that can be added.


def example(kind: str, tmp_path: Path) -> types.ModuleType:
    """The example whose file lies in src/opbridge/``kind``, imported under the name it would have there."""
    (code,) = [block for block in blocks("CONTRIBUTING.md", "python") if block.startswith(f"# src/opbridge/{kind}/")]
    place = Path(code.splitlines()[0].removeprefix("# src/"))
    assert not (ROOT / "src" / place).exists(), f"{place} is no example any more"
    assert ast.get_docstring(ast.parse(code))
    file = tmp_path / place.name
    file.write_text(code, encoding="utf-8")
    name = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
    specification = importlib.util.spec_from_file_location(name, file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_operator_of_the_guide(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from opbridge.catalog.declare.spec import specs_of

    lerp = example("catalog/ops", tmp_path).lerp
    (spec,) = specs_of(lerp)
    assert (spec.target, spec.rung) == ("aten::lerp.Tensor", "decompose")
    assert spec.summary.startswith("`self` for a weight of 0")
    start, end = torch.tensor([-2.0, 0.0, 3.0, torch.nan]), torch.tensor([5.0, 1e30, 0.1, 1.0])
    for weight in torch.tensor([0.0, 0.3, 0.5, 1.0, -2.0]):
        torch.testing.assert_close(lerp(start, end, weight), torch.lerp(start, end, weight), equal_nan=True)


def test_the_finding_of_the_guide(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module = example("findings", tmp_path)
    for heading in ("What it means:", "Why it is a problem:", "Example", "Fix:"):
        assert f"\n\n{heading}" in module.__doc__
    program = torch.export.export(torch.nn.Identity(), (torch.zeros(2, dtype=torch.float64),))
    (found,) = module.detect(program)
    assert found.code == "double-precision"
    assert found.message == "The input 'input' is float64, for which engines have few kernels."
    assert list(module.detect(torch.export.export(torch.nn.Identity(), (torch.zeros(2),)))) == []


def test_the_pass_of_the_guide(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from one_node import make_model, to_ir

    nodes = [onnx.helper.make_node("Identity", ["x"], ["z"], "same"), onnx.helper.make_node("Relu", ["z"], ["y"])]
    model = to_ir(make_model(nodes, {"x": ("FLOAT", [2])}, {"y": ("FLOAT", [2])}))
    result = example("engines/passes", tmp_path).DropIdentitiesPass()(model)
    assert [node.op_type for node in result.model.graph] == ["Relu"]
    assert [item.to_dict()["what"] for item in result.adaptations] == ["Identity is removed"]


def test_the_subcommand_of_the_guide(tmp_path: Path) -> None:
    import argparse

    parser = argparse.ArgumentParser()
    example("cli", tmp_path).register(parser.add_subparsers())
    outcome = parser.parse_args(["passes"]).run(None, print)
    assert "inline_functions" in outcome.data["passes"]
    assert list(outcome.view(outcome.data)) == outcome.data["passes"]
