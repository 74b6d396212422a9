"""Exports what migrated copies of the table and of the examples hold: without the bridge; then what was left, with it.

Its arguments are the folder that holds the copies (``legacy_cases``, ``examples``) and the folder of the examples as
they were; the models go into the first: ``NAME.onnx`` of migrated scripts, ``NAME.old.onnx`` of the others.
"""

import contextlib
import dataclasses
import runpy
import sys
from pathlib import Path

folder, originals = map(Path, sys.argv[1:3])
sys.path[:0] = [str(folder), str(Path(__file__).parent)]

from legacy_batches import migrated_batches, with_torch  # noqa: E402
from legacy_cases.table import CASES, all_cases  # noqa: E402
from legacy_graphs import registered  # noqa: E402

import opbridge  # noqa: E402
from opbridge import legacy  # noqa: E402
from opbridge.catalog.declare import spec  # noqa: E402
from opbridge.legacy.run_script import run_script  # noqa: E402

EXAMPLES = {"asinh": [], "clamp_swish": [], "deform_conv": [], "deform_conv-all": ["--all"], "super_resolution": []}


@contextlib.contextmanager
def declared_here():
    """An override of a whole operator counts from its declaration on, for every model: it is taken back."""
    specs = list(spec._declared)
    try:
        yield
    finally:
        spec._declared[:] = specs


def export(batch):
    with declared_here(), registered(*batch.cases):
        with_torch(batch, folder, custom_translation_table=opbridge.translation_table())


def without_undo(case):
    """Nothing is registered with torch by what was converted."""
    return dataclasses.replace(case, undo=()) if case.migrates else case


def examples(*, migrated):
    for name, options in EXAMPLES.items():
        script = f"{name.partition('-')[0]}.py"
        if not (folder / "examples" / script).exists():
            continue
        if migrated:
            arguments = [str(folder / f"{name}.onnx"), *options]
            sys.argv = [script, *arguments]
            with declared_here():
                runpy.run_path(str(folder / "examples" / script), run_name="__main__")
        else:
            run_script(originals / script, [str(folder / f"{name}.old.onnx"), *options])


def main():
    CASES.update({name: without_undo(case) for name, case in all_cases().items()})
    for batch in migrated_batches(bridge=False):
        export(batch)
    examples(migrated=True)
    with legacy.enable():
        for batch in migrated_batches(bridge=True):
            export(batch)
    examples(migrated=False)


main()
