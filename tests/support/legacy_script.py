"""An old export script: exports every case of the table into the folder that is its argument."""

import pathlib
import sys

from legacy_batches import batches, with_torch
from legacy_graphs import registered

folder = pathlib.Path(sys.argv[1])


def main():
    for dynamic in (False, True):
        for batch in batches(dynamic=dynamic):
            with registered(*batch.cases):
                with_torch(batch, folder)


if __name__ == "__main__":
    main()
