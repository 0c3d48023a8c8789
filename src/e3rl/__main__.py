"""`python -m e3rl`, the command where its script is not on the path."""

import sys

from e3rl.cli import main

if __name__ == "__main__":  # and not when a process of an environment imports it
    sys.exit(main())
