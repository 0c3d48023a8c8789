"""Tiny runs of every planner, exploiter, family and baseline, frozen: `python tests/golden/runs.py` writes runs.json.

A change that is meant to leave results alone leaves these alone. Exact digests are of one kind of machine, because
compilers round differently elsewhere; the numbers beside them hold everywhere to a few digits.
"""

import contextlib
import hashlib
import io
import json
import platform
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

from e3rl import cli

PLACE = Path(__file__).with_name("runs.json")
LOCK = ["lock", "--horizon", "3", "--antishaped", "--env", "noise_bits=1", "--set"]
SMALL = ["model.hidden=8", "fit.members=2", "fit.updates=3", "fit.batch=4", "evaluation_episodes=3"]
PLANNED = [f"planner.value.{name}" for name in ("updates=3", "batch=4", "hidden=8")]
EXPLOITED = [f"exploit.value.{name}" for name in ("updates=8", "hidden=8")]
STATIONARY = [f"planner.value.{name}" for name in ("discount=0.99", "target_rate=0.05", "heads=false")]
CAR = [
    "mountaincar",
    "--env",
    "time_limit=12",
    "--config",
    "e3rl-control",
    "--set",
    *SMALL,
    *EXPLOITED,
    "explore.episodes=6",
    "explore.per_epoch=2",
]
CAR_GRAPH = [*CAR, "planner.nodes=20", "exploit.snapshots=2", "exploit.value.batch=4"]
TREE = ["planner=mcts", "planner.playouts=8", "planner.particles=3"]
BASELINE = ["total_steps=96", "evaluation_episodes=3", "copies=2", "steps=4", "hidden=8"]
DQN = [*BASELINE, "updates=2", "batch=4", "capacity=64", "learning_starts=12"]
PPO = [*BASELINE, "epochs=2", "minibatches=2"]

RUNS = {
    # The shared configuration of tests/tiny.py, so that the quick suite compiles nothing for it.
    "tiny": [*LOCK, "explore.ratio=2", "explore.episodes=7", "fit.members=2", "fit.updates=2", "fit.batch=4",
             "model.hidden=8", *(f"planner.value.{name}" for name in ("updates=2", "batch=4", "hidden=8")),
             *(f"exploit.value.{name}" for name in ("updates=20", "batch=4", "hidden=8")), "rounds.episodes=3",
             "rounds.updates=2", "evaluation_episodes=5"],
    "value": [*LOCK, *SMALL, *PLANNED, *EXPLOITED, "exploit.value.batch=4", "explore.episodes=5"],
    "two-seeds": [*LOCK, *SMALL, *PLANNED, *EXPLOITED, "exploit.value.batch=4", "explore.episodes=3", "--seeds", "2"],
    "rounds": [*LOCK, *SMALL, *PLANNED, *EXPLOITED, "exploit.value.batch=4", "explore.episodes=3", "rounds.count=2",
               "rounds.episodes=2", "rounds.updates=2"],
    "practice": [*LOCK, *SMALL, *PLANNED, *EXPLOITED, "exploit.value.batch=4", "explore.episodes=3", "rounds.count=2",
                 "rounds.episodes=2", "rounds.updates=0", "rounds.stop_on_drop=false", "--seeds", "2"],
    "mcts": [*LOCK, *SMALL, *TREE, *PLANNED, *EXPLOITED, "exploit.value.batch=4", "explore.episodes=4"],
    "mcts-paper": [*LOCK, *SMALL, *EXPLOITED, "explore.episodes=4", "planner.playouts=8", "planner.particles=3",
                   "explore.uniform_transitions=4", "model.reward_weight=0.5", "--config", "paper-lock-h5"],
    "ue2": [*LOCK, *SMALL, *EXPLOITED, "exploit.value.batch=4", "explore.episodes=5", "--algo", "ue2"],
    "graph": CAR_GRAPH,
    "graph-paper": [*CAR_GRAPH, "fit.unroll=3", "--config", "steadied-control"],
    "maze": ["maze", "--size", "5", "--env", "time_limit=12", "--set", *SMALL, "explore.episodes=4",
             "explore.per_epoch=2", "planner.nodes=20", "exploit.nodes=20", "fit.unroll=2"],
    "mdn": [*CAR, "model=mdn", "planner=mcts", *PLANNED, *STATIONARY, "planner.playouts=4", "planner.particles=2",
            "explore.episodes=2", "exploit=dqn", "exploit.value.updates=4", "exploit.value.decay=true",
            "exploit.value.batch=4", "exploit.value.heads=false", "exploit.value.ending_share=0.1"],
    "vae": [*CAR_GRAPH, "model=vae", "explore.episodes=4"],
    "python": ["CartPole-v1", "--config", "e3rl-control", "--set", *SMALL, *EXPLOITED, "exploit.value.batch=4",
               "exploit.snapshots=2", "explore.episodes=4", "explore.per_epoch=2", "planner.nodes=20"],
    "factored": ["FrozenLake-v1", "--algo", "neural-e3", "--set", *SMALL, *PLANNED, *EXPLOITED,
                 "exploit.value.batch=4", "exploit.snapshots=2", "explore.episodes=4", "explore.per_epoch=2",
                 "planner.playouts=4", "planner.particles=2", "fit.finishing=0",
                 "rounds.count=0"],
    "tiles": ["e3rl/KeyDoor-v0", "--algo", "neural-e3", "--config", "e3rl-tiles", "--env", "time_limit=10", "--set",
              *SMALL, "model.maps=4", "explore.episodes=3", "explore.update_every=4", "planner.nodes=12",
              "exploit.nodes=12"],
    "categories": ["FrozenLake-v1", "--algo", "neural-e3", "--config", "e3rl-categories", "--env",
                   "is_slippery=false", "--set", *SMALL, "explore.episodes=4", "explore.update_every=3",
                   "planner.nodes=12", "exploit.nodes=12"],
    "dqn": [*LOCK, *DQN, "--algo", "dqn"],
    "ppo": [*LOCK, *PPO, "--algo", "ppo"],
    "ppo-rnd": [*LOCK, *PPO, "--algo", "ppo-rnd"],
    "dqn-python": ["CartPole-v1", "--set", *DQN, "--algo", "dqn"],
    "ppo-python": ["CartPole-v1", "--set", *PPO, "--algo", "ppo"],
}  # fmt: skip
SEEDED = ["--seed", "203"]


def machine() -> str:
    """What decides how a compiled program rounds, as far as it can be told."""
    flags = ""
    if Path("/proc/cpuinfo").exists():
        lines = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")]
        flags = " ".join(sorted(lines[0].partition(":")[2].split())) if lines else ""
    kind = hashlib.sha256(flags.encode()).hexdigest()[:12]
    return f"{platform.machine()} {kind} jax {jax.__version__} numpy {np.__version__}"


def frozen(name: str, out: Path) -> dict:
    """Run it; the digests of its tables and weights, and some numbers to compare elsewhere."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert cli.main(["train", *RUNS[name], *SEEDED, "--out", str(out), "--json"]) == 0
    folders = sorted(path.parent for path in out.rglob("metrics.csv"))
    return {folder.name if len(folders) > 1 else "run": _folder(folder) for folder in folders}


def _folder(folder: Path) -> dict:
    from safetensors.numpy import load_file

    header, *rows = [line.split(",") for line in (folder / "metrics.csv").read_text().splitlines()]
    rows = [dict(zip(header, row, strict=True)) for row in rows]
    for row in rows:
        row.pop("seconds")
    arrays = load_file(folder / "checkpoint" / "policy.safetensors")
    # Models and everything else apart, whatever the arrays are called: a planner without a network has only models.
    groups: dict[str, list[np.ndarray]] = {"models": [], "rest": []}
    for path, array in arrays.items():
        groups["models" if path.startswith((".models", ".scale")) else "rest"].append(array)
    return {
        "table": hashlib.sha256(json.dumps(rows).encode()).hexdigest(),
        "weights": {group: _digest(found) for group, found in groups.items()},
        "numbers": {
            "returns": [float(row["return"]) for row in rows],
            "disagreement": [float(row["disagreement"]) for row in rows],
            "norms": {group: _norm(found) for group, found in groups.items()},
        },
    }


def _digest(arrays: list[np.ndarray]) -> str:
    each = sorted(hashlib.sha256(f"{a.dtype}{a.shape}".encode() + a.tobytes()).hexdigest() for a in arrays)
    return hashlib.sha256("".join(each).encode()).hexdigest()


def _norm(arrays: list[np.ndarray]) -> float:
    finite = [np.where(np.isfinite(a), a, 0.0).astype(np.float64) for a in arrays]
    return float(np.sqrt(sum(np.sum(a**2) for a in finite)))


def main(names: list[str]) -> None:
    known = json.loads(PLACE.read_text()) if PLACE.exists() else {"runs": {}}
    for name in names or RUNS:
        with tempfile.TemporaryDirectory() as folder:
            found = frozen(name, Path(folder) / name)
        same = known["runs"].get(name) == found
        print(f"{name}: {'the same' if same else 'changed'}", file=sys.stderr, flush=True)
        known["runs"][name] = found
        known["machine"] = machine()
        PLACE.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
