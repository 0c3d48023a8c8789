"""The constants of Theorem 1: φ, T, n and what they add up to (section 3.3, appendix A)."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from e3rl.types import UserError

SHRINK = math.log(5 / 3)
"""Each round shrinks an ellipsoid's volume to at most 3/5 (Lemma 3)."""


@dataclass(frozen=True)
class Constants:
    """What DREEM is run with."""

    phi: float
    """φ = ε / (24 H² |A|² √d): models with a larger empirical misfit go."""
    rounds: float
    """T = H d log(β / 2φ) / log(5/3)."""
    n: int
    """Trajectories per step h and round: 36864 H⁴ |A|⁴ d L / ε², L = log(2 T H |M| |F| / δ)."""
    paper_n: int
    """The paper's n, with log(4 T H |M| |Π| / δ), whose test functions need the true model."""
    test_functions: int
    """|F|, at most |M|² for one h: ± sign(P_M − P_M') over pairs."""
    paper_total: int
    """n T: the paper counts n trajectories a round."""
    total: int
    """n T H: each h needs n trajectories of its own, since the uniform last action leaves the policy."""
    terms: dict[str, float]
    """The factors of n."""
    dominant: str
    """The largest of them."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def phi(horizon: int, actions: int, rank: int, epsilon: float) -> float:
    """φ = ε / (24 H² |A|² √d)."""
    return epsilon / (24 * horizon**2 * actions**2 * math.sqrt(rank))


def default_beta(rank: int) -> float:
    """2√d ≥ ‖u‖ ‖v‖ in the proofs of Propositions 1 and 2: u is a distribution, the d entries of v are at most 2.

    In Proposition 2 this takes a stochastic Γ1 and Γ2.
    """
    return 2 * math.sqrt(rank)


def max_rounds(horizon: int, actions: int, rank: int, epsilon: float, beta: float) -> float:
    """T of Lemma 3."""
    return horizon * rank * math.log(beta / (2 * phi(horizon, actions, rank, epsilon))) / SHRINK


def deviation(n: int, log_term: float) -> float:
    """The proof's bound on |W̃ − W| for all M, f, h and rounds at once: 8 √(L / n).

    The paper gets there by Bernstein with Var(z) ≤ 2, which can fail (z ranges over [−2, 2], so 4 is possible).
    Hoeffding needs no variance and gives √(8 L / n), below this: the theorem's n stands.
    """
    return 8.0 * math.sqrt(log_term / n)


def constants(
    horizon: int,
    actions: int,
    rank: int,
    epsilon: float,
    delta: float,
    models: int,
    policies: int,
    beta: float | None = None,
) -> Constants:
    """Theorem 1 for a class of `models` models and `policies` policies whose misfit matrices have rank ≤ `rank`."""
    try:
        return _constants(horizon, actions, rank, epsilon, delta, models, policies, beta)
    except (OverflowError, ZeroDivisionError) as error:
        raise UserError(
            "the constants of Theorem 1 are beyond 1e308 for these: lower the sizes, or raise epsilon and delta"
        ) from error


def _constants(
    horizon: int,
    actions: int,
    rank: int,
    epsilon: float,
    delta: float,
    models: int,
    policies: int,
    beta: float | None,
) -> Constants:
    sizes = {"horizon": horizon, "actions": actions, "rank": rank, "models": models, "policies": policies}
    for name, size in sizes.items():
        if size < 1:
            raise UserError(f"{name} must be at least 1, got {size}")
    check_fraction("epsilon", epsilon)
    check_fraction("delta", delta)
    beta = default_beta(rank) if beta is None else beta
    threshold = phi(horizon, actions, rank, epsilon)
    if not math.isfinite(beta):
        raise UserError(f"beta must be a finite number, got {beta}")
    if not beta > 2 * threshold:
        raise UserError(f"beta must be above 2φ = {2 * threshold:.3g}, got {beta}")
    rounds = max_rounds(horizon, actions, rank, epsilon, beta)
    functions = max(1, models * models)
    log_term = math.log(2) + math.log(rounds) + math.log(horizon * models) + math.log(functions / delta)
    paper_log = math.log(4) + math.log(rounds) + math.log(horizon * models) + math.log(policies / delta)
    terms = {
        "36864": 36864.0,
        "H^4": float(horizon**4),
        "|A|^4": float(actions**4),
        "d": float(rank),
        "log": log_term,
        "1/epsilon^2": epsilon**-2,
    }
    n, paper_n = (
        math.ceil(36864 * horizon**4 * actions**4 * rank * log / epsilon**2) for log in (log_term, paper_log)
    )
    whole = math.floor(rounds)
    float(max(n, paper_n) * whole * horizon)  # or it is too large to be written down
    dominant = max(terms, key=lambda name: terms[name])
    return Constants(
        threshold, rounds, n, paper_n, functions, paper_n * whole, n * whole * horizon, terms, dominant
    )


def check_fraction(name: str, value: float) -> None:
    if not 0.0 < value <= 1.0:
        raise UserError(f"{name} must lie in (0, 1], got {value}")
