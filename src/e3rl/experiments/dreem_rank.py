"""Propositions 1 to 3, measured: ranks of the model misfit matrices of tabular, low-rank and factored MDPs."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from e3rl.dreem.distributions import per_step
from e3rl.dreem.rank import (
    factored_misfit_matrices,
    factorise,
    misfit_matrices,
    numerical_rank,
    rounded,
)

Family = Literal["tabular", "low-rank", "factored"]
HORIZON = 4


@dataclass(frozen=True)
class RankSetting:
    family: Family
    size: int
    """States, or factors of a factored MDP."""
    inner: int
    """K of Proposition 2, or parents per factor; unused for tabular MDPs."""
    actions: int = 2
    values: int = 2
    """|O| of Proposition 3."""
    models: int = 200
    policies: int = 200

    @property
    def states(self) -> int:
        return self.values**self.size if self.family == "factored" else self.size

    @property
    def bound(self) -> int:
        """What the proposition allows: |S|, K, or the number L of entries of the factors' tables."""
        if self.family == "factored":
            return self.size * self.actions * self.values**self.inner * self.values
        return self.inner if self.family == "low-rank" else self.size


SETTINGS = (
    RankSetting("tabular", 4, 0),
    RankSetting("tabular", 12, 0),
    RankSetting("low-rank", 12, 2),
    RankSetting("low-rank", 40, 3),
    RankSetting("factored", 3, 1),
    RankSetting("factored", 4, 1),
    RankSetting("factored", 5, 1),
    RankSetting("factored", 6, 1),
    RankSetting("factored", 7, 1),
)


def random_rows(rng: np.random.Generator, *shape: int) -> Float[np.ndarray, "..."]:
    """Distributions uniform over the simplex, along the last axis."""
    return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])


def factored_tables(
    local: Float[np.ndarray, "M d A C O"], parents: Int[np.ndarray, "d p"]
) -> Float[np.ndarray, "M S A S"]:
    """Joint tables of factored models: entry [m, i, a, c, o] is the chance that factor i becomes o given action a and
    its parents' values, which are the digits of c in base |O|."""
    models, factors, actions, _, values = local.shape
    digits = np.stack(np.unravel_index(np.arange(values**factors), (values,) * factors))
    tables = np.ones((models, digits.shape[1], actions, digits.shape[1]))
    for i in range(factors):
        seen = np.zeros(digits.shape[1], int)
        for parent in parents[i]:
            seen = seen * values + digits[parent]
        chance = local[:, i][:, :, seen]  # [M, A, S, O]
        tables *= np.moveaxis(chance, 1, 2)[:, :, :, digits[i]]
    return tables


def model_class(setting: RankSetting, rng: np.random.Generator) -> Float[np.ndarray, "M S A S"]:
    """Random models; the first is the true one. The models of a factored class share its graph, which is known; the
    others of a low-rank class need not have low rank, for Proposition 2 asks it of the true model only."""
    tables = random_rows(rng, setting.models, setting.states, setting.actions, setting.states)
    if setting.family == "low-rank":
        latent = random_rows(rng, setting.states, setting.actions, setting.inner)
        tables[0] = latent @ random_rows(rng, setting.inner, setting.states)
    if setting.family == "factored":
        # Each factor has a parent of its own, so that no two of them see the same.
        order = rng.permutation(setting.size)
        parents = np.stack([np.roll(order, -k) for k in range(setting.inner)], axis=1)
        shape = (setting.size, setting.actions, setting.values**setting.inner, setting.values)
        tables = factored_tables(random_rows(rng, setting.models, *shape), parents)
    return tables


def measure(setting: RankSetting, seed: int = 0) -> dict[str, Any]:
    """Ranks of A_1 … A_H of one random instance, the proposition's bound, and β of the factorisations."""
    rng = np.random.default_rng(seed)
    tables = per_step(model_class(setting, rng), HORIZON)
    start = random_rows(rng, setting.states)
    policies = rng.integers(0, setting.actions, (setting.policies, HORIZON, setting.states))
    matrices = misfit_matrices(tables, tables[0], start, policies)
    row: dict[str, Any] = {
        "family": setting.family,
        "states": setting.states,
        "bound": setting.bound,
        "ranks": [numerical_rank(matrix) for matrix in matrices],
        "smallest_counted": min(_last_counted(matrix) for matrix in matrices[1:]),
        "beta_balanced": max(factorise(matrix).beta for matrix in matrices),
        "beta_rounded": max(rounded(factorise(matrix)).beta for matrix in matrices),
        "largest_misfit": float(matrices.max()),
    }
    if setting.family == "factored":
        per_factor = factored_misfit_matrices(
            tables, tables[0], start, policies, setting.values, setting.size
        )
        row["ranks_per_factor"] = [numerical_rank(matrix) for matrix in per_factor]
    return row


def _last_counted(matrix: Float[np.ndarray, "P M"]) -> float:
    """The smallest singular value that counts, relative to the largest: far above rounding, or the rank is in doubt."""
    scales = np.linalg.svd(matrix, compute_uv=False)
    return float(scales[numerical_rank(matrix) - 1] / scales[0])


def run(seed: int = 0) -> list[dict[str, Any]]:
    return [measure(setting, seed) for setting in SETTINGS]
