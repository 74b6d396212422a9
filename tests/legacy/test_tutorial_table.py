"""The table of docs/tutorial.md: what it says about each program is seen when the program is run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from places import ROOT

pytestmark = pytest.mark.newest


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tutorial_table", ROOT / "site" / "tutorial_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Its dataclasses look there.
    spec.loader.exec_module(module)
    return module


def rows(page: Path) -> list[str]:
    return [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]


TABLE = load()


def test_the_tables_have_a_row_for_each_program() -> None:
    for language, page in TABLE.PAGES.items():
        titles = [row.split(" | ")[0] for row in rows(page)]
        assert titles == [f"| {program.title[language]}" for program in TABLE.PROGRAMS.values()]


SLOW = ("shift",)
"""It shows that the tables are what is printed. The others run more programs, build an extension, or are large."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.sweep, pytest.mark.slow][name in SLOW]) for name in TABLE.PROGRAMS]
)
def test_a_program_does_what_the_tables_say(name: str, tmp_path: Path) -> None:
    program = TABLE.PROGRAMS[name]
    if program.old:
        pytest.importorskip("libcst")
        pytest.importorskip("torchvision")
    seen = TABLE.found(program, tmp_path)
    for language, page in TABLE.PAGES.items():
        assert TABLE.row(program, seen, language) in rows(page)
