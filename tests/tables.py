"""A problem small enough to know everything about: dynamics that are tables, and utilities in plain Python."""

import itertools
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float

from e3rl.envs.encoding import Encoding
from e3rl.envs.spec import Spec
from e3rl.models.base import AbstractDynamics, Prediction, Problem
from e3rl.planners.utility import Hellinger, Joint, Marginal, Mean, Squared
from e3rl.replay import Replay, Transitions
from e3rl.values.network import QNetwork

BITS, ACTIONS, HORIZON, MEMBERS = 2, 2, 3, 2
STATES = 2**BITS
PROBLEM = Problem(Spec("tables", Encoding(spaces.MultiBinary(BITS)), ACTIONS, HORIZON), clock=True)


class TableDynamics(AbstractDynamics):
    """Predictions looked up by (time, state, action); a state is its bits read as a number, lowest first."""

    draws_bits: ClassVar[bool] = True
    obs: Float[Array, "H S A D"]
    reward: Float[Array, "H S A"]
    termination: Float[Array, "H S A"]
    noise_shape: tuple[int, ...] = eqx.field(static=True, default=(BITS,))

    def __call__(self, obs, action, time):
        state = jnp.sum(obs.astype(jnp.int32) * 2 ** jnp.arange(BITS, dtype=jnp.int32))
        at = (time, state, action)
        return Prediction(self.obs[at], self.reward[at], self.termination[at])

    def draw(self, prediction, uniform):
        return (uniform < prediction.obs).astype(jnp.float32)

    def loss(self, obs, row, key):
        raise NotImplementedError

    def prior_deviation(self):
        raise NotImplementedError


class CertainTables(TableDynamics):
    """The same, whose predictions are taken as they are: deterministic dynamics."""

    draws_bits: ClassVar[bool] = False
    noise_shape: tuple[int, ...] = eqx.field(static=True, default=(0,))

    def draw(self, prediction, uniform):
        return prediction.obs


def tables(obs, reward, termination, kind=TableDynamics):
    return kind(*(jnp.array(leaf, jnp.float32) for leaf in (obs, reward, termination)))


def bits_of(state):
    return [(state >> i) & 1 for i in range(BITS)]


def everywhere():
    """A replay buffer with every state at every time step; what happened there is no business of the planner's."""
    cases = list(itertools.product(range(HORIZON), range(STATES)))
    n = len(cases)
    nothing = jnp.zeros(n, jnp.int32)
    obs = jnp.array([bits_of(s) for _, s in cases], jnp.int8)
    rows = Transitions(
        obs, nothing, jnp.array([t for t, _ in cases]), jnp.full(n, 99.0), 1 - obs, jnp.ones(n, bool)
    )
    return Replay.empty(n, obs[0])._replace(rows=rows, size=jnp.array(n, jnp.int32))


def drawn_by_numpy(make, deviation=0.5, seed=0):
    """What `make(key)` makes, its weights from numpy, which costs no compilation."""
    rng = np.random.default_rng(seed)
    shapes = eqx.filter_eval_shape(make, jax.random.key(0))
    return jax.tree.map(lambda leaf: jnp.array(rng.normal(0.0, deviation, leaf.shape), jnp.float32), shapes)


def numpy_network(width, heads=True, deviation=0.25, seed=0):
    """An action value of the problem."""
    return drawn_by_numpy(
        lambda key: QNetwork((BITS,), ACTIONS, HORIZON, width, heads, key=key), deviation, seed
    )


def one_of(which, utilities):
    """One of several utilities, chosen while the program runs: it is compiled once for all of them."""
    return lambda predicted: jax.lax.switch(which, utilities, predicted)


def plain_disagreement(utility, obs, reward):
    """max_{e,e'} δ in plain Python, of what members predict: entries `obs` [E][D] and `reward` [E]."""

    def between(p, q, gap):
        pairs = list(zip(p, q, strict=True))
        match utility:
            case Squared():
                return sum((a - b) ** 2 for a, b in pairs) + utility.reward_scale * gap**2
            case Marginal():
                # TV without the ½ of (p, 1−p) and (q, 1−q), added up.
                return sum(abs(a - b) + abs((1 - a) - (1 - b)) for a, b in pairs) + utility.reward_scale * gap
            case Mean():
                return (sum(abs(a - b) for a, b in pairs) + utility.reward_scale * gap) / (len(pairs) + 1)
            case Joint():
                alike = math.prod(1 - abs(a - b) for a, b in pairs)
                return 2 * (1 - alike) + utility.reward_scale * gap
            case Hellinger():
                affinity = math.exp(-((utility.reward_scale * gap) ** 2))
                for a, b in pairs:
                    affinity *= math.sqrt(a * b) + math.sqrt((1 - a) * (1 - b))
                return 1 - affinity

    members = range(len(reward))
    return max(between(obs[i], obs[j], abs(reward[i] - reward[j])) for i in members for j in members)


def plain_utility(utility, exploits, obs, reward):
    """What `utility.explore` or `utility.exploit` says, in plain Python."""
    disagreement = plain_disagreement(utility, obs, reward)
    return sum(reward) / len(reward) - utility.caution * disagreement if exploits else disagreement


def some_tables(kind=TableDynamics):
    """Members that disagree about everything; where they are deterministic, their next states are states."""
    rng = np.random.default_rng(4)
    shape = (MEMBERS, HORIZON, STATES, ACTIONS)
    obs = rng.uniform(size=(*shape, BITS))
    reward, end = rng.uniform(-0.5, 0.5, shape), rng.choice([0.0, 0.5], shape)
    return tables(np.round(obs) if kind is CertainTables else obs, reward, end, kind)


def backward_induction(members, utility, exploits, discount):
    """Q[t, s, a] = u + γ E_e[(1 − end_e) Σ_s' P_e(s') max_a' Q[t+1, s', a']]."""
    obs, reward, end = (np.asarray(leaf, float) for leaf in jax.tree.leaves(members))
    q = np.zeros((HORIZON + 1, STATES, ACTIONS))
    for t in reversed(range(HORIZON)):
        for s, a in itertools.product(range(STATES), range(ACTIONS)):
            after = 0.0
            for e, other in itertools.product(range(MEMBERS), range(STATES)):
                p = obs[e, t, s, a]
                chance = np.prod([c if x else 1 - c for c, x in zip(p, bits_of(other), strict=True)])
                after += (1 - end[e, t, s, a]) * chance * q[t + 1, other].max() / MEMBERS
            gained = plain_utility(utility, exploits, obs[:, t, s, a], reward[:, t, s, a])
            q[t, s, a] = gained + discount * after
    return q
