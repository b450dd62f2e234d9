"""`python -m fluidtool`: the same as the command `fluidtool`."""

import sys

from fluidtool.cli import main

if __name__ == "__main__":
    sys.exit(main())
