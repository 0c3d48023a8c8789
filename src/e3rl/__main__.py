"""`python -m e3rl`, the command where its script is not on the path."""

from e3rl.cli import run

if __name__ == "__main__":  # and not when a process of an environment imports it
    run()
