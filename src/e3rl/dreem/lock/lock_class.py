"""A model class for the latent combination lock that is a product over its levels, and elimination inside it.

At every level each of the two good states has one of K candidate key arrangements: 12 ways to put the outcomes (good 1,
good 2, dead, dead) on four actions, and at the last level the 4 (or 6) choices of which action pays. Everything
else (the chance of a swap, that dead stays dead, the start) is known. The class M holds every combination,
12^(2(H−1))·16 models. Three facts keep DREEM exact in it, without a list of models:

1. W(π, M, h) compares rows of level h − 1 only and is a sum over its two good states.
2. The test functions sign(P_M − P_M') of appendix A.1 are, at level h − 1, all pairs of functions of the one and of the
   other good state; so the maximum over them is a sum of two maxima, and the empirical misfit is a sum too.
3. Algorithm 2 asks for "misfit ≤ φ at every h". By 1 and 2 each h restricts level h − 1 alone: a product over levels
   stays one. Within a level it restricts the pair of arrangements: survivors are a mask [K, K] per level.
"""

from itertools import permutations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from e3rl.envs.lock import DEAD, DEATH_BONUS, GOAL_REWARD, GOOD_1, GOOD_2, NUM_ACTIONS, CombinationLock

Survivors = list[Bool[np.ndarray, "_ _"]]
"""Per level, which arrangements (of good 1, of good 2) are left together."""
PAID, UNPAID = 0, 1


class Level(NamedTuple):
    """The candidates of one level."""

    outcomes: Int[np.ndarray, "K A"]
    """What each action does in each arrangement: an index into `rows`."""
    rows: Float[np.ndarray, "O T"]
    """The distribution over the next level's states that an outcome stands for."""
    gains: Float[np.ndarray, " T"]
    """Reward for arriving, in the lock's units."""

    @property
    def tables(self) -> Float[np.ndarray, "K A T"]:
        """P(s' | s, a) of a good state s in each arrangement."""
        return self.rows[self.outcomes]


class LockClass(NamedTuple):
    levels: list[Level]
    start: Float[np.ndarray, " T"]
    truth: Int[np.ndarray, "H 2"]
    """The true arrangement of each good state; used to draw data and to judge, never to plan or to eliminate."""

    @property
    def horizon(self) -> int:
        return len(self.levels)

    def everything(self) -> Survivors:
        return [np.ones((len(level.outcomes),) * 2, bool) for level in self.levels]


def lock_class(lock: CombinationLock) -> LockClass:
    """Every lock that `lock` could be, given its horizon, its swap probability and its rewards.

    With antishaped rewards dying is paid and being dead is not, and rewards belong to states (section 2): so a state
    "has just died" stands beside "dead", as in `lock_chain`.
    """
    swap = lock.switch
    arrangements = np.array(sorted(set(permutations([GOOD_1, GOOD_2, DEAD, DEAD]))))
    rows = np.array([[1 - swap, swap, 0.0], [swap, 1 - swap, 0.0], [0.0, 0.0, 1.0]])
    gains = np.zeros(3)
    if lock.antishaped:
        rows = np.insert(
            rows, DEAD, 0.0, axis=1
        )  # the outcome "dead" now leads to a fourth state, "has just died"
        gains = np.array([-1.0 / lock.horizon, -1.0 / lock.horizon, 0.0, DEATH_BONUS])
    paying = int(np.asarray(lock.pays)[0].sum())
    paid = np.array(sorted(set(permutations([PAID] * paying + [UNPAID] * (NUM_ACTIONS - paying)))))
    inner = Level(arrangements, rows, gains)
    last = Level(paid, np.eye(2), np.array([GOAL_REWARD, 0.0]))
    levels = [inner] * (lock.horizon - 1) + [last]
    keys = [*np.asarray(lock.successor)[:-1], np.where(np.asarray(lock.pays), PAID, UNPAID)]
    truth = [
        [int(np.flatnonzero((level.outcomes == row).all(axis=1))[0]) for row in key]
        for level, key in zip(levels, keys, strict=True)
    ]
    return LockClass(levels, np.array([0.5, 0.5, *[0.0] * (rows.shape[1] - 2)]), np.array(truth))


def models_left(survivors: Survivors) -> int:
    """|M_t|, exactly: a Python integer, for it passes 2^63 at H = 10."""
    left = 1
    for mask in survivors:
        left *= int(mask.sum())
    return left


def advance(
    level: Level,
    arrangement: Int[np.ndarray, " 2"],
    mass: Float[np.ndarray, " T"],
    actions: Int[np.ndarray, " 2"],
) -> Float[np.ndarray, " T"]:
    """The distribution one inner level on: from good states by their arrangement, from dead ones to dead."""
    reached = mass[:2] @ level.tables[arrangement, actions]
    reached[DEAD] += mass[2:].sum()
    return reached


def roll_ins(lock: LockClass, policy: Int[np.ndarray, "H 2"]) -> Float[np.ndarray, "H T"]:
    """P_{M*}^{π,h−1} for h = 1 … H."""
    masses = [lock.start]
    for level, arrangement, actions in zip(lock.levels[:-1], lock.truth[:-1], policy[:-1], strict=True):
        masses.append(advance(level, arrangement, masses[-1], actions))
    return np.stack(masses)


def sample_counts(
    lock: LockClass, policy: Int[np.ndarray, "H 2"], n: int, rng: np.random.Generator
) -> list[Int[np.ndarray, "2 A _"]]:
    """For each h, how often n roll-ins saw (s, a, s'), s a good state: π up to h − 1, then a uniform action.

    The n trajectories of one step are independent of those of another (H·n in all), so their triples are independent
    draws and the counts one multinomial: the same distribution as n simulated trajectories, at a cost free of n.
    """
    counts = []
    for level, arrangement, mass in zip(lock.levels, lock.truth, roll_ins(lock, policy), strict=True):
        chance = mass[:2, None, None] * level.tables[arrangement] / NUM_ACTIONS
        cells = np.append(chance.ravel(), max(0.0, 1.0 - chance.sum()))
        counts.append(rng.multinomial(n, cells / cells.sum())[:-1].reshape(chance.shape))
    return counts


def misfits(level: Level, shares: Float[np.ndarray, "2 A T"]) -> Float[np.ndarray, "2 K"]:
    """What each good state adds to the misfit of each arrangement, by the IPM form of appendix A.1.

    `shares` are counts divided by n. With shares equal to the true probabilities this is the exact W.
    """
    tables = level.tables
    tests = np.sign(tables[:, None] - tables[None]).reshape(
        -1, tables[0].size
    )  # both signs: (τ, τ') and (τ', τ)
    visited = shares.sum(axis=-1, keepdims=True)
    gaps = visited[:, None] * tables[None] - shares[:, None]  # [2, K, A, T]
    return (gaps.reshape(2, len(tables), -1) @ tests.T).max(axis=-1)


def eliminate(
    lock: LockClass, survivors: Survivors, counts: list[Int[np.ndarray, "2 A _"]], n: int, phi: float
) -> tuple[Survivors, Float[np.ndarray, " H"]]:
    """Algorithm 2: the models whose empirical misfit is at most φ at every h, and the smallest misfit per h."""
    kept, smallest = [], []
    for level, mask, count in zip(lock.levels, survivors, counts, strict=True):
        first, second = misfits(level, count / n)
        total = first[:, None] + second[None]
        kept.append(mask & (total <= phi))
        smallest.append(total[mask].min())
    return kept, np.array(smallest)
