"""One round of DREEM: the argmax over all policies and pairs of models, drawing the counts, eliminating models.

The classes have S=8, A=2, H=4; the models are independent, each row uniform over the simplex, which leaves the bounds
the least to prune, and the policies random. The yardstick goes over every pair and policy, in vectorised NumPy, at a
size where that takes seconds. Growth is measured in |M| and in |Π|.
"""

import resource
import time
from collections.abc import Iterator

import numpy as np
from timing import seconds

from e3rl.dreem.distributions import per_step, v_explore
from e3rl.dreem.eliminate import update_model_set
from e3rl.dreem.explore import best_policy
from e3rl.dreem.sampling import sample_counts

CONFIG = {
    "unit": "seconds per round of DREEM, on one CPU",
    "states": 8,
    "actions": 2,
    "horizon": 4,
    "brute_force": {"models": 40, "policies": 512, "repeats": 3},
    "models": [100, 300, 1000],
    "policies": [1024, 4096, 16384],
    "fixed": {"models": 300, "policies": 4096},
    "trajectories": 10**12,
    "phi": 1e-3,
    "seed": 0,
}
QUICK = {"models": [100], "policies": [1024], "fixed": {"models": 100, "policies": 1024}}
S, A, H = CONFIG["states"], CONFIG["actions"], CONFIG["horizon"]


def classes(models: int, policies: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(CONFIG["seed"])
    tables = per_step(rng.dirichlet(np.ones(S), size=(models, S, A)), H)
    return tables, rng.dirichlet(np.ones(S)), rng.integers(A, size=(policies, H, S)).astype(np.int8)


def one_round(tables: np.ndarray, start: np.ndarray, policies: np.ndarray) -> dict:
    """The true model is number 0. Returns what it did and how long each part took."""
    began = time.perf_counter()
    found = best_policy(tables, start, policies)
    planned = time.perf_counter()
    counts = sample_counts(
        np.random.default_rng(0), tables[0], start, policies[found.policy], CONFIG["trajectories"]
    )
    left, _ = update_model_set(np.arange(len(tables)), tables, counts, CONFIG["phi"])
    ended = time.perf_counter()
    pairs = len(tables) * (len(tables) - 1) // 2
    return {
        "ours_s": ended - began,
        "explore_s": planned - began,
        "eliminate_s": ended - planned,
        "v_explore": found.value,
        "evaluated_share": found.evaluated / (pairs * len(policies)),
        "models_left": len(left),
    }


def growth() -> Iterator[dict]:
    fixed = CONFIG["fixed"]
    sizes = [(models, fixed["policies"]) for models in CONFIG["models"]]
    sizes += [(fixed["models"], policies) for policies in CONFIG["policies"] if policies != fixed["policies"]]
    for models, policies in sizes:
        row = {
            "name": f"dreem/round/M{models}-P{policies}",
            "yardstick": None,
            "yardstick_s": None,
            "ratio": None,
        }
        yield row | one_round(*classes(models, policies))


def rows() -> list[dict]:
    small = CONFIG["brute_force"]
    tables, start, policies = classes(small["models"], small["policies"])
    timed = seconds(
        {
            "ours": lambda: best_policy(tables, start, policies),
            "all": lambda: v_explore(tables, start, policies),
        },
        small["repeats"],
    )
    ours, theirs = timed["ours"]["median"], timed["all"]["median"]
    first = {
        "name": f"dreem/explore/M{small['models']}-P{small['policies']}",
        "ours_s": ours,
        "yardstick": "every pair and policy",
        "yardstick_s": theirs,
        "ratio": theirs / ours,
    }
    measured = [first, *growth()]
    CONFIG["peak_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    return measured
