"""`python -m e3rl.cli`, where the `e3rl` script is not on the path."""

import sys

from e3rl.cli import main

sys.exit(main())
