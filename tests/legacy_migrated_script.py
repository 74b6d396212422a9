"""Exports the cases of a migrated copy of the table, each by itself, with plain torch.onnx.export and no bridge.

Its argument is the folder that holds the copy (``legacy_cases``); the models go into the same folder.
"""

import sys
from pathlib import Path

folder = Path(sys.argv[1])
sys.path[:0] = [str(folder), str(Path(__file__).parent)]

from legacy_batches import batches, with_torch  # noqa: E402

import opbridge  # noqa: E402


def main():
    # An override of a whole operator counts from its declaration on, for every model: those come last.
    for batch in sorted(
        batches(dynamic=False, only=lambda case: case.migrates), key=lambda b: "add" in str(b.cases[0].undo)
    ):
        for case in batch.cases:
            if case.setup is not None:
                case.setup()
        with_torch(batch, folder, custom_translation_table=opbridge.translation_table())


main()
