"""What somebody waits for who has just installed e3rl: whole runs of the command, as a process each, on all CPUs.

Cold runs have no compiled programs to take from a cache, warm ones those of the cold run before. Seeds that run side by
side are timed warm: by how many times sooner they are there than by a command for each, one after the other, and than
by the same command on one CPU.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CONFIG = {
    "unit": "seconds from the command to its end, and to the first episode; one run each",
    "runs": {
        "demo": "lock --horizon 5 --antishaped",
        "lock-h10": "lock --horizon 10 --antishaped",
        "lock-h10-300": "lock --horizon 10 --antishaped --set explore.epsilon_share=0",
        "mountain-car": "mountaincar",
    },
    "seeds": {"demo": [2], "lock-h10-300": [2]},
    "seed": 200,
}
QUICK = {"runs": {}, "seeds": {}}
"""A cold run alone would take half of its time."""


def waited(
    words: str, cache: Path, seeds: int = 1, seed: int = CONFIG["seed"], cpus: int = os.cpu_count() or 1
) -> dict:
    """A run of the command: seconds to its first and its last word about episodes, and how many these were."""
    with tempfile.TemporaryDirectory() as folder:
        out, first = Path(folder) / "run", 0.0
        command = [sys.executable, "-m", "e3rl", "train", *words.split(), "--out", str(out)]
        command += ["--seed", str(seed), "--seeds", str(seeds)]
        begun = time.perf_counter()
        with subprocess.Popen(
            command,
            env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: bind(cpus),
        ) as run:
            for line in run.stdout:
                if line.startswith("explore:") and not first:
                    first = time.perf_counter() - begun
        took = time.perf_counter() - begun
        episodes = sum(len(path.read_text().splitlines()) - 1 for path in out.rglob("metrics.csv"))
    if run.returncode:
        raise RuntimeError(f"{' '.join(command)} failed")
    return {"took": took, "first": first, "episodes": episodes}


def bind(cpus: int) -> None:
    """This process to the first so many CPUs, whatever it was bound to before."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(cpus))


def row(name: str, run: dict, **more: float) -> dict:
    nothing = {"yardstick": None, "yardstick_s": None, "ratio": None}
    own = {"first_episode_s": run["first"], "episodes": run["episodes"]}
    return {"name": f"start/{name}", "ours_s": run["took"], **nothing, **own, **more}


def rows() -> list[dict]:
    return list(timed())


def timed() -> Iterator[dict]:
    for name, words in CONFIG["runs"].items():
        with tempfile.TemporaryDirectory() as cache:
            yield row(f"{name}/cold", waited(words, Path(cache)))
            warm = waited(words, Path(cache))
            yield row(f"{name}/warm", warm)
            for seeds in CONFIG["seeds"].get(name, []):
                others = range(CONFIG["seed"] + 1, CONFIG["seed"] + seeds)
                in_turn = warm["took"] + sum(waited(words, Path(cache), seed=seed)["took"] for seed in others)
                run = waited(words, Path(cache), seeds)
                alone = waited(words, Path(cache), seeds, cpus=1)["took"]
                more = {"sooner": in_turn / run["took"], "over_one_cpu": alone / run["took"]}
                yield row(f"{name}/seeds/x{seeds}", run, **more)
