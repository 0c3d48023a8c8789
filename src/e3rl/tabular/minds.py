"""What tabular E³ plans on: the table seen as an explorer, as a doubter and as an exploiter sees it."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from e3rl.tabular.dice import MOST_FACES, Dice, infer_dice
from e3rl.tabular.planning import Model, Planned, backward_induction, padded, policy_value
from e3rl.tabular.posterior import NOTHING, Table

MOST = 2.0
"""The largest disagreement of a step: what the unknown is worth, for every step spent in it."""
KNOWN = 0.01
"""An action whose outcomes are as good as all known has at most this missing mass."""
PATIENCE = 1.0 - 1e-6
"""What waiting a step leaves of a reward, so that of two equal ones the earlier is taken."""
LAST = np.iinfo(np.int32).max
"""Sorted behind all rows."""
DOUBT = 0.3
"""What it counts for that any outcome of a state might be that of any action, in actions that were tried often."""
MOST_ALIKE = 50.0
"""The largest weight that other actions have."""
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
    return _plan(explore_model(table), steps, keep, MOST)


def plan_of_member(table: Table, outcomes: "Outcomes", member: int, steps: int, key: int) -> Planned:
    """The best policy of one member, among actions that were tried."""
    return _plan(member_model(table, outcomes, member, key), steps, _rows(table, steps), table=table)


def plan_to_exploit(table: Table, outcomes: "Outcomes", steps: int) -> Planned:
    """The best policy of the posterior's mean, among actions that were tried."""
    return _plan(exploit_model(table, outcomes), steps, _rows(table, steps), table=table)


def _rows(table: Table, steps: int) -> int:
    return max(1, min(steps, LARGEST_POLICY // max(table.states, 1)))


class Outcomes(NamedTuple):
    """What every action may lead to: the outcomes of all actions in the same state, with weights as counts."""

    successor: Int[np.ndarray, "S A J"]
    weight: Float[np.ndarray, "S A J"]
    reward: Float[np.ndarray, "S A J"]
    """In the mean."""
    spread: Float[np.ndarray, "S A J"]
    """The standard error of that mean."""
    dice: Dice | None
    thrown: Bool[np.ndarray, "S A"]
    """The states and actions that the dice are about."""

    @property
    def certain(self) -> bool:
        """Whether nothing is left to chance: then all members are the same."""
        return (
            self.dice is None
            and not self.spread.any()
            and bool(np.all(np.sum(self.weight > 0, axis=-1) <= 1))
        )

    def mean(self) -> tuple[Float[np.ndarray, "S A J"], Float[np.ndarray, "S A J"]]:
        """Chances and rewards."""
        chance = chances(self.weight)
        if self.dice is not None:
            chance = self._thrown(chance, self.dice.mean(self._faces(chance)))
        return chance, self.reward

    def sample(
        self, rng: np.random.Generator
    ) -> tuple[Float[np.ndarray, "S A J"], Float[np.ndarray, "S A J"]]:
        chance = chances(rng.standard_gamma(self.weight))
        if self.dice is not None:
            chance = self._thrown(chance, self.dice.sample(self._faces(chance), rng))
        return chance, self.reward + self.spread * rng.standard_normal(self.reward.shape)

    def _faces(self, chance: Float[np.ndarray, "S A J"]) -> Float[np.ndarray, "N F"]:
        return chance[self.thrown][:, :MOST_FACES]

    def _thrown(self, chance: Float[np.ndarray, "S A J"], faces: Float[np.ndarray, "N F"]) -> np.ndarray:
        """With the dice's chances, of which what belongs to no outcome that was seen is spread over the others."""
        some = np.zeros((len(faces), chance.shape[-1]))
        some[:, : faces.shape[1]] = faces
        chance[self.thrown] = some
        return chances(np.where(self.successor == NOTHING, 0.0, chance))


def smoothed(table: Table) -> Outcomes:
    """Counts, to which the outcomes of all actions in the same state add `likeness` of weight: two tries of a slippery
    step do not tell it from a sure one, its neighbours do. Where repetitions hold no surprises, counts are left as they
    are; elsewhere dice are looked for that are thrown in many places."""
    states = table.states
    sums = tuple(array[:states].astype(float) for array in (table.count, table.reward, table.reward_squared))
    successor, (count, rewards, squares) = table.successor[:states], sums
    nowhere = np.zeros(count.shape[:2], bool)
    if table.missing_mass()[1] <= KNOWN or count.size * table.actions > LARGEST_SMOOTHED:
        mean, variance = _moments(*sums)
        return Outcomes(successor, count, mean, (variance / np.maximum(count, 1.0)) ** 0.5, None, nowhere)
    successor, (count, rewards, squares) = _by_outcome(successor, sums)
    mean, variance = _moments(count, rewards, squares)
    # What an action never did is paid as it was paid to the others.
    shared, shared_variance = _moments(*(np.sum(x, axis=1, keepdims=True) for x in (count, rewards, squares)))
    mean = np.where(count > 0, mean, shared)
    spread = (np.where(count > 1, variance, shared_variance) / np.maximum(count, 1.0)) ** 0.5
    alike, tried = likeness(count), count.sum(axis=-1, keepdims=True)
    worth = tried / (tried + alike)  # the less often it was tried, the less an action says about the others
    known = (successor != NOTHING)[:, None] / np.maximum(np.sum(successor != NOTHING, axis=1), 1)[
        :, None, None
    ]
    others = np.sum(each := worth * chances(count), axis=1, keepdims=True) - each + DOUBT * known
    prior = alike * others / np.maximum(others.sum(axis=-1, keepdims=True), 1e-12)
    few = np.sum(successor != NOTHING, axis=1) <= MOST_FACES
    thrown = (tried[..., 0] > 0) & few[:, None]
    dice = infer_dice(count[thrown][:, :MOST_FACES], prior[thrown][:, :MOST_FACES])
    successor = np.broadcast_to(successor[:, None], count.shape)
    return Outcomes(successor, count + prior, mean, spread, dice, thrown if dice is not None else nowhere)


def _by_outcome(
    successor: Int[np.ndarray, "S A K"], each: Sequence[Float[np.ndarray, "S A K"]]
) -> tuple[Int[np.ndarray, "S J"], list[Float[np.ndarray, "S A J"]]]:
    """The outcomes of all actions in a state as one list, and what is known of each by action."""
    states, actions, _ = successor.shape
    flat = successor.reshape(states, -1)
    flat = np.where(flat == NOTHING, LAST, flat)
    order = np.argsort(flat, axis=1, kind="stable")
    ranked = np.take_along_axis(flat, order, axis=1)
    rank = np.cumsum(np.diff(ranked, axis=1, prepend=ranked[:, :1]) != 0, axis=1)
    place = np.empty_like(rank)
    np.put_along_axis(place, order, rank, axis=1)
    size = int(place.max()) + 1
    together = np.full((states, size), LAST, flat.dtype)
    np.put_along_axis(together, place, flat, axis=1)
    together[together == LAST] = NOTHING
    where = np.arange(states)[:, None, None], np.arange(actions)[:, None], place.reshape(successor.shape)
    sums = [np.zeros((states, actions, size)) for _ in each]
    for total, values in zip(sums, each, strict=True):
        np.add.at(total, where, values)
    return together, sums


def _moments(count: np.ndarray, total: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance."""
    mean = total / np.maximum(count, 1.0)
    return mean, np.maximum(squares / np.maximum(count, 1.0) - mean**2, 0.0)


def likeness(count: Float[np.ndarray, "S A J"]) -> float:
    """How alike the actions of a state are: the concentration α of the Dirichlet that their outcomes are drawn from.

    Two steps with the same action agree with chance (1 + α·Σb²) / (1 + α), with different ones with chance Σb², where b
    is what actions do in the mean. Both are counted, over all states; one pair of steps is added that has α = 1.
    """
    tried = count.sum(axis=-1)
    again = np.sum(count * (count - 1.0), axis=-1)[tried > 1] / (tried * (tried - 1.0))[tried > 1]
    same = (np.sum(again) + 0.5) / (len(again) + 1.0)
    share = chances(count)
    pairs = (several := np.sum(tried > 0, axis=1)) * (several - 1.0)
    apart = np.sum(share.sum(axis=1) ** 2) - np.sum(share**2)
    different = apart / (np.sum(pairs) + 1.0)
    return float(min((1.0 - same) / max(same - different, 1e-9), MOST_ALIKE))


def exploit_model(table: Table, outcomes: Outcomes) -> Model:
    """The posterior's mean, among actions that were tried."""
    return _among_tried(table, outcomes, *outcomes.mean())


def member_model(table: Table, outcomes: Outcomes, member: int, key: int) -> Model:
    """A sample of the posterior, among actions that were tried."""
    rng = np.random.default_rng((table.seed, member, key))
    return _among_tried(table, outcomes, *outcomes.sample(rng))


def _among_tried(table: Table, outcomes: Outcomes, chance: np.ndarray, reward: np.ndarray) -> Model:
    """A reward sooner is worth a little more."""
    gain = np.where(table.tried > 0, np.sum(chance * reward, axis=-1), -np.inf)
    return padded(table, PATIENCE * chance, gain, np.zeros_like(gain), outcomes.successor)


def unknown_share(table: Table, starts: Sequence[int], steps: int, untried_only: bool = False) -> float:
    """The chance that the best explorer meets something never seen, in so many steps from one of these states, in the
    mean; or, `untried_only`, an action never tried or a state never seen."""
    missing = np.where(table.tried == 0, 1.0, table.leaps()) if untried_only else table.unknown()
    mass = np.where(missing > KNOWN, missing, 0.0)
    known = (1.0 - mass)[..., None] * chances(table.count[: table.states])
    model = padded(table, known, mass, np.zeros_like(mass))
    value = np.asarray(_plan(model, steps, 1).value, float)
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


def judge_policy(
    table: Table, outcomes: Outcomes, starts: Int[np.ndarray, " n"], steps: int, key: int
) -> Policy:
    planned = plan_to_exploit(table, outcomes, steps)
    policy, regrets = planned.policy, []
    count, floor = jnp.array(steps, jnp.int32), _floor(table)
    for member in range(1 if outcomes.certain else table.members):
        model = member_model(table, outcomes, member, key)
        best = float(_plan(model, steps, 1, table=table).value[starts].mean())
        ours = float(policy_value(model, policy, count, *floor)[starts].mean())
        regrets.append((best - ours) / max(abs(best), abs(ours), 1e-9))
    mass = np.where((missing := table.unknown()) > KNOWN, missing, 0.0)
    known = (1.0 - mass)[..., None] * chances(table.count[: table.states])
    pays = padded(table, known, (table.mean_reward() > 0.0) * (1.0 - mass), np.zeros_like(mass))
    paid = policy_value(pays, policy, count, jnp.array(0.0))[starts]
    worst = int(np.argmax(regrets))
    return Policy(float(planned.value[starts].mean()), regrets[worst], worst, float(jnp.min(paid)))


def _plan(model: Model, steps: int, keep: int, worth: float = 0.0, table: Table | None = None) -> Planned:
    """Where nothing may be done, as little is to be had as the table says; nothing without one."""
    floor, worst = (jnp.array(0.0), jnp.array(-jnp.inf)) if table is None else _floor(table)
    count, each = jnp.array(steps, jnp.int32), jnp.array(worth, jnp.float32)
    return backward_induction(model, count, each, floor, keep, worst)


def _floor(table: Table) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The least that a step was paid, and the least that episodes brought to their ends."""
    return jnp.array(table.lowest, jnp.float32), jnp.array(table.worst, jnp.float32)
