"""What tabular E³ plans on: the table seen as an explorer, as a doubter and as an exploiter sees it."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from e3rl.tabular.planning import Model, Planned, backward_induction, padded, policy_value
from e3rl.tabular.posterior import Table

MOST = 2.0
"""The largest disagreement of a step: what the unknown is worth, for every step spent in it."""
KNOWN = 0.01
"""An action whose outcomes are as good as all known has at most this missing mass."""
LARGEST_SMOOTHED = 20_000_000
"""Entries of a smoothed table that are worth their memory."""
LARGEST_POLICY = 50_000_000
"""Entries of a policy with a row for every time step; larger ones have fewer, and the last serves from there on."""


class Doubt(NamedTuple):
    """Line 6 for tables: what is not known, in two numbers, and how long nothing of importance was learned."""

    unknown: float
    """The share of its episodes in which the best explorer would meet something never seen."""
    regret: float
    """By how much a member's own best policy is worth more than the one to be returned, as a share of its value."""
    untried: float
    """The same for actions never tried and states never seen."""
    stale: bool
    """Whether the policy to be returned is sure to be paid, and episodes have long stopped to bring new states or
    better policies."""

    def settled(self, epsilon: float) -> bool:
        return self.regret <= epsilon and (self.unknown <= epsilon or self.stale)

    def __str__(self) -> str:
        return f"something new in {self.unknown:.1%} of episodes at most, {self.regret:.1%} of the value in doubt"


def chances(counts: Float[np.ndarray, "S A K"] | Int[np.ndarray, "S A K"]) -> Float[np.ndarray, "S A K"]:
    return counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1e-12)


def explore_model(table: Table) -> Model:
    """Section 2's exploration MDP, with what a visit takes off the disagreement in place of the disagreement itself: it
    falls as 1/√n, so a visit after n takes off its share 1 − √(n/(n + 1)), all of it where nothing was tried. The sum
    of disagreements would rather linger where it is safe than go where little is known and episodes end."""
    mass, tried = table.unknown(), table.tried
    known = (1.0 - mass)[..., None] * chances(table.count[: table.states])
    share = 1.0 - np.sqrt(tried / (tried + 1.0))
    # An action never tried: a new state, the end, or else one is about where one was.
    new, end = table.first_tries()
    untried = tried == 0
    leap = np.where(untried, np.minimum(new, 1.0 - end), table.leaps())
    successor = table.successor[: table.states].copy()
    successor[..., 0] = np.where(untried, np.arange(table.states)[:, None], successor[..., 0])
    known[..., 0] = np.where(untried, 1.0 - leap - end, known[..., 0])
    return padded(table, known, table.disagreement[: table.states] * share, leap, successor)


def plan_to_explore(table: Table, steps: int, keep: int) -> Planned:
    return _plan(explore_model(table), steps, keep, MOST, 0.0)


def plan_of_member(table: Table, member: int, steps: int, key: int) -> Planned:
    """The best policy of one member, among actions that were tried."""
    return _plan(member_model(table, member, key), steps, _rows(table, steps), 0.0, table.lowest)


def plan_to_exploit(table: Table, steps: int, keep: int | None = None) -> Planned:
    """The best policy of the posterior's mean among actions that were tried: all of it, or its first `keep` steps."""
    return _plan(exploit_model(table), steps, keep or _rows(table, steps), 0.0, table.lowest)


def _rows(table: Table, steps: int) -> int:
    return max(1, min(steps, LARGEST_POLICY // max(table.states, 1)))


def smoothed(table: Table) -> tuple[Int[np.ndarray, "S A J"], Float[np.ndarray, "S A J"]]:
    """Outcomes and their weights, as counts. What is missing of an action tried n times is spread over the outcomes of
    all actions in the same state: two tries of a slippery step do not tell it from a sure one, its neighbours do. Where
    repetitions hold no surprises nothing is missing, and counts are left as they are."""
    states, count = table.states, table.count[: table.states].astype(float)
    if table.missing_mass()[1] <= KNOWN or count.size * table.actions > LARGEST_SMOOTHED:
        return table.successor[:states], count
    tried = table.tried
    mass = np.where((missing := table.unknown()) > KNOWN, missing, 0.0)
    flat = count.reshape(states, -1)
    base = flat / np.maximum(flat.sum(axis=1, keepdims=True), 1.0)
    prior = np.where(tried > 0, tried * mass / np.maximum(1.0 - mass, KNOWN), 0.0)
    weights = prior[..., None] * base[:, None]
    for action in range(table.actions):
        own = slice(action * count.shape[-1], (action + 1) * count.shape[-1])
        weights[:, action, own] += count[:, action]
    outcomes = np.broadcast_to(table.successor[:states].reshape(states, 1, -1), weights.shape)
    return outcomes, weights


def exploit_model(table: Table) -> Model:
    """The posterior's mean, among actions that were tried."""
    outcomes, weights = smoothed(table)
    gain = np.where(table.tried > 0, table.mean_reward(), -np.inf)
    return padded(table, chances(weights), gain, np.zeros_like(gain), outcomes)


def member_model(table: Table, member: int, key: int) -> Model:
    """A sample of the posterior, among actions that were tried."""
    rng = np.random.default_rng((table.seed, member, key))
    outcomes, weights = smoothed(table)
    tried, mean = table.tried, table.mean_reward()
    variance = table.reward_squared[: table.states] / np.maximum(tried, 1) - mean**2
    spread = (np.maximum(variance, 0.0) / np.maximum(tried, 1)) ** 0.5
    gain = np.where(tried > 0, mean + spread * rng.standard_normal(mean.shape), -np.inf)
    return padded(table, chances(rng.standard_gamma(weights)), gain, np.zeros_like(mean), outcomes)


def unknown_share(table: Table, starts: Sequence[int], steps: int, untried_only: bool = False) -> float:
    """The chance that the best explorer meets something never seen, in so many steps from one of these states, in the
    mean; or, `untried_only`, an action never tried or a state never seen."""
    missing = np.where(table.tried == 0, 1.0, table.leaps()) if untried_only else table.unknown()
    mass = np.where(missing > KNOWN, missing, 0.0)
    known = (1.0 - mass)[..., None] * chances(table.count[: table.states])
    model = padded(table, known, mass, np.zeros_like(mass))
    value = np.asarray(_plan(model, steps, 1, 0.0, 0.0).value, float)
    return float(value[list(starts)].mean())


class Policy(NamedTuple):
    """The policy that would be returned now, judged."""

    worth: float
    """By the mean of the posterior, from where episodes start."""
    regret: float
    """max_e V_e(π_e) − V_e(π), as a share of the larger."""
    challenger: int
    """The member of which that is so."""
    paid: float
    """Positive rewards that an episode is sure to bring, in the mean, from the start where they are fewest."""


def judge_policy(table: Table, starts: Int[np.ndarray, " n"], steps: int, key: int) -> Policy:
    planned = plan_to_exploit(table, steps)
    policy, regrets = planned.policy, []
    count, floor = jnp.array(steps, jnp.int32), jnp.array(table.lowest, jnp.float32)
    for member in range(table.members):
        model = member_model(table, member, key)
        best = float(_plan(model, steps, 1, 0.0, table.lowest).value[starts].mean())
        ours = float(policy_value(model, policy, count, floor)[starts].mean())
        regrets.append((best - ours) / max(abs(best), abs(ours), 1e-9))
    mass = np.where((missing := table.unknown()) > KNOWN, missing, 0.0)
    known = (1.0 - mass)[..., None] * chances(table.count[: table.states])
    pays = padded(table, known, (table.mean_reward() > 0.0) * (1.0 - mass), np.zeros_like(mass))
    paid = policy_value(pays, policy, count, jnp.array(0.0))[starts]
    worst = int(np.argmax(regrets))
    return Policy(float(planned.value[starts].mean()), regrets[worst], worst, float(jnp.min(paid)))


def _plan(model: Model, steps: int, keep: int, worth: float, floor: float) -> Planned:
    return backward_induction(
        model,
        jnp.array(steps, jnp.int32),
        jnp.array(worth, jnp.float32),
        jnp.array(floor, jnp.float32),
        keep,
    )
