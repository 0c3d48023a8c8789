"""`python -m e3rl.cli`, where the `e3rl` script is not on the path."""

from e3rl.cli import run

run()
