"""Runs every program of docs/tutorial.md, old, migrated and modern, and prints the table of both pages.

    python site/tutorial_table.py            prints the tables
    python site/tutorial_table.py --write    writes them into docs/tutorial.md and docs/tutorial.zh.md

Each program is run as the page says, in a process of its own. my_add builds its C++ extension, which takes a minute.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

ROOT = Path(__file__).parents[1]
PAGES = {"en": ROOT / "docs" / "tutorial.md", "zh": ROOT / "docs" / "tutorial.zh.md"}
OLD, MODERN = "examples/tutorial/old", "examples/tutorial"


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of the page.

    Attributes:
        modern: The file in examples/tutorial.
        title: The first column, by language.
        old: The file in examples/tutorial/old; empty if there is none.
        build: The command that the old program needs first, in its folder.
        notes: The second and third column if there is no old program, and a remark on the modern one, by language.
    """

    modern: str
    title: Mapping[str, str]
    old: str = ""
    build: tuple[str, ...] = ()
    notes: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


PROGRAMS = {
    "super_resolution": Program(
        "super_resolution.py",
        {"en": "1. super resolution, the factor is an input", "zh": "1. 超分辨率，放大倍数是输入"},
        "super_resolution.py",
    ),
    "loop": Program(
        "loop.py",
        {"en": "2. a loop, traced and scripted", "zh": "2. 循环，trace 与 script"},
        "loop.py",
        notes={"en": ("", "", "keeps the `Loop`"), "zh": ("", "", "保留为 `Loop`")},
    ),
    "asinh": Program(
        "asinh.py", {"en": "3. a symbolic function for asinh", "zh": "3. asinh 的 symbolic 函数"}, "asinh.py"
    ),
    "deform_conv": Program(
        "deform_conv.py",
        {"en": "4. a custom node for deform_conv2d", "zh": "4. deform_conv2d 的自定义节点"},
        "deform_conv.py",
        notes={"en": ("", "", "a standard operator"), "zh": ("", "", "标准算子")},
    ),
    "my_add": Program(
        "my_add.py",
        {"en": "5. my_add, a C++ extension", "zh": "5. my_add：C++ 扩展"},
        "my_add/export.py",
        ("setup.py", "--quiet", "build_ext", "--inplace"),
    ),
    "clamp_swish": Program(
        "clamp_swish.py", {"en": "6. clamp_swish, a custom node", "zh": "6. clamp_swish：自定义节点"}, "clamp_swish.py"
    ),
    "swin_roll": Program(
        "swin_roll.py",
        {"en": "7. Swin's roll", "zh": "7. Swin 的 roll"},
        notes={"en": ("not needed", "not needed"), "zh": ("无需旧写法", "无需迁移")},
    ),
    "shift": Program(
        "shift.py",
        {"en": "8. exercise: shifts of uint8", "zh": "8. 练习：uint8 的移位"},
        notes={
            "en": ("not needed", "not needed", "torch.onnx alone gives int8"),
            "zh": ("无需旧写法", "无需迁移", "单用 torch.onnx 得到 int8"),
        },
    ),
}

WORDS = {
    "en": {
        "runs": "runs",
        "needs": "is exported; needs a body to run",
        "same": "runs, the same outputs",
        "nodes": "is exported, the same nodes",
        "passed": "passed, {} cases",
        "glue": "; ",
    },
    "zh": {
        "runs": "可以运行",
        "needs": "可以导出，运行需要函数体",
        "same": "可以运行，输出相同",
        "nodes": "可以导出，节点相同",
        "passed": "通过，{} 组输入",
        "glue": "，",
    },
}


@dataclasses.dataclass(frozen=True)
class Found:
    """What was seen when a program was run.

    Attributes:
        needs: The custom operators of the old program's files that no engine has a kernel for.
        migrated: "same" if the migrated program's files give the same outputs, "nodes" if they have the same nodes but
            can't be run; empty if there is no old program.
        verdict: The verdict on the modern form.
        cases: The number of cases of its verification.
    """

    needs: tuple[str, ...]
    migrated: str
    verdict: str
    cases: int


def run(*command: str, folder: Path = ROOT) -> str:
    """What a Python command prints. Ends this program if the command fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def opbridge(*arguments: str, folder: Path = ROOT) -> Any:
    """The JSON that an opbridge command prints."""
    printed = run("-m", "opbridge", *arguments, "--json", "-q", folder=folder)
    return json.loads(printed[printed.index("{") :])


def found(program: Program, folder: Path) -> Found:
    """Run a program in all forms. ``folder`` is an empty one."""
    needs, migrated = old_forms(program, folder) if program.old else ((), "")
    bundle = opbridge("export", f"{MODERN}/{program.modern}:model", "-o", str(folder / "bundle"))
    verification = bundle["verification"]
    return Found(needs, migrated, verification["verdict"], len(verification["cases"]))


def old_forms(program: Program, folder: Path) -> tuple[tuple[str, ...], str]:
    """Run the old program, and the one that migrate makes of it."""
    script = folder / "programs" / Path(program.old).name
    source = (ROOT / OLD / program.old).parent
    shutil.copytree(source, script.parent, ignore=shutil.ignore_patterns("build", "*.so", "__pycache__"))
    if program.build:
        run(*program.build, folder=script.parent)
    # The options of run-script come before the script.
    printed = run("-m", "opbridge", "run-script", "--json", script.name, str(folder / "old"), folder=script.parent)
    ran = json.loads(printed[printed.index("{") :])
    shutil.copy(script, script.with_name("migrated.py"))
    migration = opbridge("migrate", "--write", "migrated.py", folder=script.parent)
    if migration["left"] or migration["not_run"] or migration["problem"]:
        sys.exit(f"{program.old}: {migration}")
    run("migrated.py", str(folder / "new"), folder=script.parent)
    needs = tuple(dict.fromkeys(node["operator"] for node in ran["custom_nodes"]))
    pairs = list(zip(models(folder / "old"), models(folder / "new"), strict=True))
    same = all(map(same_nodes if needs else same_outputs, *zip(*pairs, strict=True)))
    if not same:
        sys.exit(f"{program.old}: the migrated program writes another model")
    return needs, "nodes" if needs else "same"


def models(written: Path) -> list[Path]:
    """The file that a program wrote, or the files in the folder that it wrote."""
    return sorted(written.glob("*.onnx")) if written.is_dir() else [written]


def same_nodes(old: Path, new: Path) -> bool:
    """Whether two models have the same custom nodes, after the same number of nodes."""
    one, other = ([(node.domain, node.op_type) for node in onnx.load(file).graph.node] for file in (old, new))
    return [name for name in one if name[0]] == [name for name in other if name[0]]


def same_outputs(old: Path, new: Path) -> bool:
    """Whether ONNX Runtime gives the same outputs for random inputs."""
    sessions = [onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]) for file in (old, new)]
    arrays = list(inputs(sessions[0]))
    results = [
        session.run(None, dict(zip((value.name for value in session.get_inputs()), arrays, strict=True)))
        for session in sessions
    ]
    return all(np.allclose(*pair, rtol=1e-4, atol=1e-5) for pair in zip(*results, strict=True))


def inputs(session: Any) -> Iterator[np.ndarray]:
    """Random arrays; a factor for super resolution is 2."""
    generator = np.random.default_rng(0)
    for value in session.get_inputs():
        sizes = [size if isinstance(size, int) else 2 for size in value.shape]
        yield np.array([1, 1, 2, 2], np.float32) if value.name == "factor" else generator.random(sizes, np.float32)


def row(program: Program, seen: Found, language: str) -> str:
    """The row of the table."""
    words = WORDS[language]
    notes = program.notes.get(language, ())
    old, migrated = notes[:2] or ("", "")
    if program.old:
        text = words["needs"] if seen.needs else words["runs"]
        old, migrated = f"[{text}](../{OLD}/{program.old})", words[seen.migrated]
    verdict = words["passed"].format(seen.cases) if seen.verdict == "passed" else seen.verdict
    modern = words["glue"].join([f"[{verdict}](../{MODERN}/{program.modern})", *notes[2:]])
    return f"| {program.title[language]} | {old} | {migrated} | {modern} |"


def main() -> None:
    """Print or write the tables."""
    seen = {}
    for name, program in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as folder:
            seen[name] = found(program, Path(folder))
    for language, page in PAGES.items():
        rows = [row(program, seen[name], language) for name, program in PROGRAMS.items()]
        print("\n".join(rows))
        if "--write" in sys.argv:
            lines = page.read_text(encoding="utf-8").splitlines()
            start = next(i for i, line in enumerate(lines) if line.startswith("|---")) + 1
            end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
            page.write_text("\n".join([*lines[:start], *rows, *lines[end:]]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
