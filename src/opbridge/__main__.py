"""`python -m opbridge`: the command line."""

import sys

from opbridge.cli import main

if __name__ == "__main__":
    sys.exit(main())
