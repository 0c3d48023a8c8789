"""The model set of tabular E³: a posterior over the transitions and rewards of the states discovered so far.

Members are samples of it. Of an action tried n times, a member gives the outcomes seen a Dirichlet draw, and the
unknown a mass of its own: how often, over all states and actions, a visit after n others still brought something new.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8

NOTHING = -1
"""No successor in this slot."""
END = -2
"""The successor of a step that terminated its episode, and every number below it: ends that were paid differently are
different outcomes."""
KINDS_OF_END = 32
"""Rewards at the end of an episode that are told apart; the last stands for all others."""
DIGEST = 16
"""Bytes that stand for an observation."""
LONG = 10_000
"""Entries from which on zeros are left out of what stands for an observation."""
VISITS = 64
"""Visits up to which novelty is counted apart."""
SHRINKAGE = 2.0
"""First tries that the common rate counts for beside those after one certain action."""


class TableFull(Exception):
    """There are more states than the table holds."""


class News(NamedTuple):
    """What a step brought that was not known."""

    state: bool
    outcome: bool

    def __bool__(self) -> bool:
        return self.state or self.outcome


class Table:
    """Everything seen, in arrays that grow. Row s belongs to the s-th state discovered; `states` rows are in use."""

    def __init__(self, actions: int, members: int, seed: int, capacity: int):
        self.actions, self.members, self.seed, self.capacity = actions, members, seed, capacity
        self.states = 0
        self.index: dict[bytes, int] = {}
        self.keys = np.zeros((0, DIGEST), np.uint8)
        self.successor = np.full((0, actions, 1), NOTHING, np.int32)
        self.count = np.zeros((0, actions, 1), np.int32)
        self.reward = np.zeros((0, actions, 1))
        """Summed, by outcome."""
        self.reward_squared = np.zeros((0, actions, 1))
        self.ends: list[float] = []
        """Rewards with which episodes have ended."""
        self.disagreement = np.zeros((0, actions), np.float32)
        """max_{e,e'} δ between the members, those of the last visit; 2, the most there is, of actions never tried."""
        self.novelty = np.zeros((3, VISITS))
        """Visits, those with an outcome never seen there, those that led to a state never seen at all; by the number of
        visits before."""
        self.since = np.zeros(0, np.int32)
        """The episode that discovered each state."""
        self.arrival = np.zeros(0, np.int32)
        """The action by which each state was discovered; `actions` where an episode began in it."""
        self.first = np.zeros((3, actions + 1, actions))
        """First tries of actions, those that led to a state never seen, those that ended their episode; by the action
        that discovered the state in which they were tried."""
        self.lowest, self.highest = 0.0, 0.0
        self.worst = -math.inf
        """The least that any episode still brought from any of its steps on, and at most nothing; not known before one
        has ended."""
        """Of the rewards."""
        self.episode, self.last_discovery = 0, 0
        """The episode under way, and the one that last found a new state."""

    @property
    def tried(self) -> Int[np.ndarray, "S A"]:
        return self.count[: self.states].sum(axis=-1)

    @property
    def crowded(self) -> bool:
        return 2 * self.states > self.capacity

    def discovered_in(self, episode: int) -> bool:
        return self.last_discovery >= episode

    def find(self, obs: Float[np.ndarray, "*obs"]) -> int:
        """The row of an observation, a new one if it was never seen."""
        key = digest(obs)
        row = self.index.get(key)
        return self._discover(key) if row is None else row

    def _discover(self, key: bytes) -> int:
        if self.states == self.capacity:
            raise TableFull(f"more than {self.capacity:,} different observations")
        if self.states == len(self.keys):
            self._grow(max(64, 2 * self.states))
        row = self.index[key] = self.states
        self.last_discovery = self.episode
        self.keys[row] = np.frombuffer(key, np.uint8)
        self.since[row] = self.episode
        self.states += 1
        return row

    def _grow(self, rows: int) -> None:
        more = rows - len(self.keys)
        for name, fill in (
            ("keys", 0), ("successor", NOTHING), ("count", 0), ("reward", 0), ("reward_squared", 0),
            ("disagreement", 2), ("arrival", self.actions), ("since", 0),
        ):  # fmt: skip
            old = getattr(self, name)
            new = np.full((more, *old.shape[1:]), fill, old.dtype)
            setattr(self, name, np.concatenate([old, new]))

    def observe(self, state: int, action: int, reward: float, obs: Any, terminated: bool) -> tuple[int, News]:
        """One step; the row it led to, or a kind of `END`, and what was new about it."""
        before = self.states
        outcome = self._end(reward) if terminated else self.find(obs)
        slots = self.successor[state, action]
        visits = int(self.count[state, action].sum())
        seen = np.flatnonzero(slots == outcome)
        if seen.size:
            slot = int(seen[0])
        else:
            slot = int(np.count_nonzero(slots != NOTHING))
            if slot == len(slots):
                self._widen()
            self.successor[state, action, slot] = outcome
        if visits == 0:
            self.first[:, self.arrival[state], action] += (1, self.states > before, terminated)
        if self.states > before:
            self.arrival[outcome] = action
        self.count[state, action, slot] += 1
        self.reward[state, action, slot] += reward
        self.reward_squared[state, action, slot] += reward**2
        self.lowest, self.highest = min(self.lowest, reward), max(self.highest, reward)
        news = News(self.states > before, not seen.size)
        self.novelty[:, min(visits, VISITS - 1)] += (1, news.outcome, news.state)
        self.disagreement[state, action] = self._disagree(state, action)
        return outcome, news

    def ended(self, rewards: Sequence[float]) -> None:
        """What an episode was paid, step by step."""
        still_to_come = np.cumsum(rewards[::-1])
        worst = min(0.0, float(still_to_come.min(initial=0.0)))
        self.worst = worst if self.worst == -math.inf else min(self.worst, worst)

    def _end(self, reward: float) -> int:
        if reward not in self.ends and len(self.ends) < KINDS_OF_END:
            self.ends.append(reward)
        return END - (self.ends.index(reward) if reward in self.ends else KINDS_OF_END - 1)

    def _widen(self) -> None:
        """Room for twice as many outcomes of an action."""
        self.successor = np.concatenate([self.successor, np.full_like(self.successor, NOTHING)], axis=-1)
        for name in ("count", "reward", "reward_squared"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros_like(old)], axis=-1))

    def missing_mass(self) -> Float[np.ndarray, " n"]:
        """The chance that an action tried n times has an outcome never seen there, by n. It falls with n, starts from
        1/(n + 1) where nothing is known, and comes from all states and actions together: after many repetitions without
        a surprise, one visit tells everything."""
        return self._rate(1)

    def first_tries(self) -> tuple[Float[np.ndarray, "S A"], float]:
        """What actions never tried do: the chance that one leads to a state never seen, for every state and action, and
        that it ends the episode. What an action does depends on the one that discovered the state: after a step to the
        right another may lead on, and one to the left leads back. That much is learned from the tries so far."""
        tries, new, ends = self.first
        common = (new.sum() + 0.5) / (tries.sum() + 1.0)
        chance = (new + SHRINKAGE * common) / (tries + SHRINKAGE)
        return chance[self.arrival[: self.states]], float((ends.sum() + 0.5) / (tries.sum() + 10.0))

    def leap_mass(self) -> Float[np.ndarray, " n"]:
        """The chance that an action tried n times leads to a state never seen, by n."""
        return self._rate(2)

    def _rate(self, kind: int) -> Float[np.ndarray, " n"]:
        visits, prior = self.novelty[0], 1.0 / (np.arange(VISITS) + 1.0)
        weight = np.where(
            visits > 0, 1.0, 1e-6
        )  # where there were no visits, what is known of others goes before
        return falling(self.novelty[kind] + weight * prior, visits + weight)

    def unknown(self) -> Float[np.ndarray, "S A"]:
        """The missing mass of every state and action; 1 where an action was never tried."""
        return self.missing_mass()[np.minimum(self.tried, VISITS - 1)]

    def leaps(self) -> Float[np.ndarray, "S A"]:
        """The chance of a state never seen, for every state and action."""
        return self.leap_mass()[np.minimum(self.tried, VISITS - 1)]

    def _disagree(self, state: int, action: int) -> float:
        """max_{e,e'} Σ|P_e − P_e'| between the members for one state and action, rewards included (section 2). What two
        members do not know are two different things: their unknown masses count in full."""
        counts = self.count[state, action]
        counts = counts[counts > 0]
        tried = int(counts.sum())
        rng = np.random.default_rng((self.seed, state, action, tried))
        mass = self.missing_mass()[min(tried, VISITS - 1)]
        draws = rng.standard_gamma(counts, (self.members, len(counts)))
        chances = (1.0 - mass) * draws / draws.sum(axis=1, keepdims=True)
        apart = np.abs(chances[:, None] - chances[None]).sum(axis=-1)
        span = self.highest - self.lowest
        if span > 0 and tried > 1:
            mean = self.reward[state, action].sum() / tried
            variance = max(self.reward_squared[state, action].sum() / tried - mean**2, 0.0)
            guesses = rng.standard_normal(self.members) * (variance / tried) ** 0.5 / span
            apart = apart + np.abs(guesses[:, None] - guesses[None])
        return float(min(apart.max() + 2.0 * mass, 2.0))

    def mean_reward(self) -> Float[np.ndarray, "S A"]:
        return self.reward[: self.states].sum(axis=-1) / np.maximum(self.tried, 1)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that goes on from here, copied."""
        rows = {
            name: getattr(self, name)[: self.states].copy()
            for name in (
                "keys",
                "successor",
                "count",
                "reward",
                "reward_squared",
                "disagreement",
                "arrival",
                "since",
            )
        }
        about = np.array([self.lowest, self.highest, self.last_discovery, self.worst])
        shared = {"novelty": self.novelty.copy(), "first": self.first.copy(), "ends": np.array(self.ends)}
        return {**rows, **shared, "about": about}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            if name not in ("about", "ends"):
                setattr(self, name, array.copy())
        self.ends = arrays["ends"].tolist()
        self.lowest, self.highest, self.last_discovery, *worst = arrays["about"].tolist()
        self.worst = worst[0] if worst else -math.inf  # older checkpoints do not say
        self.states = len(self.keys)
        self.index = {key.tobytes(): row for row, key in enumerate(self.keys)}


def falling(some: Float[np.ndarray, " n"], of: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The rates some / of that never grow with n and fit best (isotonic regression): where a rate would grow, it is
    taken from all of those visits together. min over a ≤ n of max over b ≥ n of the rate of a … b."""
    sums, counts = np.append(0.0, np.cumsum(some)), np.append(0.0, np.cumsum(of))
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = (sums[None, 1:] - sums[:-1, None]) / (counts[None, 1:] - counts[:-1, None])  # [a, b]
    size = len(some)
    rates[np.tril_indices(size, -1)] = -np.inf
    highest = np.maximum.accumulate(rates[:, ::-1], axis=1)[:, ::-1]  # over b ≥ n
    highest[np.tril_indices(size, -1)] = np.inf
    return np.min(highest, axis=0)


def digest(obs: Float[np.ndarray, "*obs"]) -> bytes:
    positive = np.ascontiguousarray(
        obs + np.float32(0.0)
    )  # of the two zeros, which are equal but not in their bytes
    data = positive.tobytes() if positive.size < LONG else _without_zeros(positive.reshape(-1))
    return hashlib.blake2b(data, digest_size=DIGEST).digest()


def _without_zeros(values: Float[np.ndarray, " n"]) -> bytes:
    """Where a long observation is not zero, and what it is there."""
    places = np.flatnonzero(values)
    return places.tobytes() + values[places].tobytes()


def index_of(keys: UInt8[np.ndarray, "S n"]) -> dict[bytes, int]:
    return {key.tobytes(): row for row, key in enumerate(keys)}
