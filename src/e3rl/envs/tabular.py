"""Finite MDPs given by their tables: the setting of section 2 and of Propositions 1 to 3."""

import math
from functools import cached_property
from typing import NamedTuple, TypeAlias

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8
from numpy.typing import ArrayLike

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.drawing import draw_strip
from e3rl.envs.lock import DEAD, DEATH_BONUS, GOAL_REWARD, NUM_ACTIONS, NUM_STATES, CombinationLock
from e3rl.memory import refuse_too_large
from e3rl.types import Action, Flag, Key, Reward, UserError

ROW_TOLERANCE = 1e-9
MAX_STATES = 4096
"""Of a factored MDP, whose states multiply; 4096² float64 entries per action are 134 MB."""

StationaryTable: TypeAlias = Float[np.ndarray, "S A S"]
Table: TypeAlias = Float[np.ndarray, "S A S"] | Float[np.ndarray, "H S A S"]


class TabularState(NamedTuple):
    time: Int[Array, ""]
    """Number of actions taken in this episode."""
    state: Int[Array, ""]


class TabularMDP(AbstractEnvironment):
    """A finite-horizon MDP (S, A, P, R, H) with reward R(s) of a state, as in section 2.

    s_0 is drawn from `start`; H actions lead to s_1 … s_H, and the action that leads to s_h is paid R(s_h):
    the return is v = Σ_{h=1..H} R(s_h), the paper's v_exploit. The tables are float64 NumPy arrays for exact
    computations; inside a compiled function JAX reads them as float32.
    """

    transitions: Table | Float[Array, "..."]
    """P[s, a, s'], or P[h, s, a, s'] where the dynamics depend on the time h = 0 … H−1 of the action."""
    rewards: Float[np.ndarray, " S"] | Float[Array, "..."]
    """R(s), in [0, 1]."""
    start: Float[np.ndarray, " S"] | Float[Array, "..."]
    """The distribution of s_0."""
    time_limit: int = eqx.field(static=True)

    def __init__(self, transitions: ArrayLike, rewards: ArrayLike, start: ArrayLike, horizon: int):
        if horizon < 1:
            raise UserError(f"horizon must be at least 1, got {horizon}")
        self.transitions = _as_float64("transitions", transitions)
        self.rewards = _as_float64("rewards", rewards)
        self.start = _as_float64("start", start)
        self.time_limit = horizon
        _check_shapes(self.transitions, self.rewards, self.start, horizon)
        _check_rows("transitions", self.transitions)
        _check_rows("start", self.start)
        for s, reward in enumerate(self.rewards):
            if not 0.0 <= reward <= 1.0:
                raise UserError(f"rewards[{s}] must lie in [0, 1], got {reward}")

    @property
    def horizon(self) -> int:
        return self.time_limit

    @property
    def num_states(self) -> int:
        return self.transitions.shape[-1]

    @property
    def stationary(self) -> bool:
        return self.transitions.ndim == 3

    @property
    def transitions_per_step(self) -> Float[np.ndarray, "H S A S"]:
        """P[h, s, a, s'] for every h, a read-only view where the dynamics are stationary."""
        return np.broadcast_to(self.transitions, (self.horizon, *self.transitions.shape[-3:]))

    @property
    def observation_space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(self.num_states)

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(self.transitions.shape[-2])

    def reset(self, key: Key) -> tuple[TabularState, Int[Array, ""]]:
        state = _draw(key, jnp.asarray(self.start))
        return TabularState(jnp.array(0, jnp.int32), state), state

    def step(
        self, key: Key, state: TabularState, action: Action
    ) -> tuple[TabularState, Int[Array, ""], Reward, Flag, Flag]:
        table = jnp.asarray(self.transitions)
        table = table if self.stationary else table[state.time]
        reached = _draw(key, table[state.state, action])
        time = state.time + 1
        reward = jnp.asarray(self.rewards)[reached]
        # The horizon belongs to the problem, so its end is an end and not a cut.
        return TabularState(time, reached), reached, reward, time >= self.horizon, jnp.array(False)

    @cached_property
    def optimal_values(self) -> Float[np.ndarray, "H_plus_1 S"]:
        """V[h, s], the best expected sum of R(s_{h+1}) … R(s_H) from s_h = s, by backward induction."""
        values = np.zeros((self.horizon + 1, self.num_states))
        for h in reversed(range(self.horizon)):
            q = self.transitions_per_step[h] @ (np.asarray(self.rewards) + values[h + 1])
            values[h] = q.max(axis=-1)
        return values

    @cached_property
    def optimal_return(self) -> float:
        return float(np.asarray(self.start) @ self.optimal_values[0])

    def render(self, state: TabularState) -> UInt8[np.ndarray, "h w 3"]:
        """A strip with a square per state, the brighter the better paid; blue marks where the agent is."""
        return draw_strip(np.asarray(self.rewards), int(state.state))


def _draw(key: Key, probabilities: Float[Array, " S"]) -> Int[Array, ""]:
    return jax.random.categorical(key, jnp.log(probabilities)).astype(jnp.int32)


def _as_float64(name: str, table: ArrayLike) -> Float[np.ndarray, "..."]:
    try:
        return np.array(table, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} must be an array of numbers: {error}") from error


def _check_shapes(transitions: np.ndarray, rewards: np.ndarray, start: np.ndarray, horizon: int) -> None:
    shape = transitions.shape
    if len(shape) not in (3, 4) or shape[-1] != shape[-3] or 0 in shape:
        raise UserError(f"transitions must have shape [S, A, S] or [H, S, A, S], got {list(shape)}")
    if len(shape) == 4 and shape[0] != horizon:
        raise UserError(f"transitions hold {shape[0]} time steps, the horizon is {horizon}")
    for name, vector in (("rewards", rewards), ("start", start)):
        if vector.shape != shape[-1:]:
            raise UserError(f"{name} must have shape [{shape[-1]}], got {list(vector.shape)}")


def _check_rows(name: str, table: np.ndarray) -> None:
    sums = table.sum(axis=-1)
    # Written so that NaN counts as bad.
    bad = ~np.all(table >= 0.0, axis=-1) | ~(np.abs(sums - 1.0) <= ROW_TOLERANCE)
    if not bad.any():
        return
    row = tuple(int(i) for i in np.argwhere(bad)[0])
    place = f"{name}[{', '.join(map(str, row))}]" if row else name
    lowest = np.min(table[row])
    if not lowest >= 0.0:
        raise UserError(f"{place} holds an entry that is not a probability: {lowest}")
    raise UserError(f"{place} sums to {sums[row]}, not to 1")


def _random_rows(key: Key, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """Rows uniform over the simplex (normalised exponentials), normalised in float64."""
    refuse_too_large(
        "the table", {"entries": 32 * math.prod(shape)}, lambda: "the number of states or actions"
    )
    rows = np.asarray(jax.random.exponential(key, shape), dtype=np.float64)
    return rows / rows.sum(axis=-1, keepdims=True)


def _require_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise UserError(f"{name} must be at least 1, got {size}")


def _with_random_rewards_and_start(transitions: StationaryTable, horizon: int, key: Key) -> TabularMDP:
    key_rewards, key_start = jax.random.split(key)
    num_states = transitions.shape[-1]
    rewards = np.asarray(jax.random.uniform(key_rewards, (num_states,)), dtype=np.float64)
    return TabularMDP(transitions, rewards, _random_rows(key_start, (num_states,)), horizon)


def random_mdp(num_states: int = 5, num_actions: int = 2, horizon: int = 4, seed: int = 0) -> TabularMDP:
    """Stationary; every row and the start uniform over the simplex, rewards uniform in [0, 1]."""
    _require_positive(num_states=num_states, num_actions=num_actions, horizon=horizon)
    key_rows, key_rest = jax.random.split(jax.random.key(seed))
    transitions = _random_rows(key_rows, (num_states, num_actions, num_states))
    return _with_random_rewards_and_start(transitions, horizon, key_rest)


def low_rank_mdp(
    num_states: int = 8, num_actions: int = 2, horizon: int = 4, rank: int = 2, seed: int = 0
) -> TabularMDP:
    """Γ = Γ1 Γ2 with inner dimension K = `rank`, the setting of Proposition 2.

    P(s'|s, a) = Σ_k Γ1(s', k) Γ2(k, (s, a)), both factors stochastic: a latent k is drawn given (s, a),
    then s' given k.
    """
    _require_positive(num_states=num_states, num_actions=num_actions, horizon=horizon, rank=rank)
    if rank > num_states:
        raise UserError(f"rank must be at most num_states={num_states}, got {rank}")
    key_latent, key_emit, key_rest = jax.random.split(jax.random.key(seed), 3)
    latent = _random_rows(key_latent, (num_states, num_actions, rank))  # Γ2
    emit = _random_rows(key_emit, (rank, num_states))  # Γ1
    return _with_random_rewards_and_start(latent @ emit, horizon, key_rest)


def factored_mdp(
    num_values: int = 2,
    num_factors: int = 3,
    num_parents: int = 1,
    num_actions: int = 2,
    horizon: int = 4,
    seed: int = 0,
) -> TabularMDP:
    """S = O^d, each next factor depending on the action and its own parents: the setting of Proposition 3.

    State s has the digits of s in base |O| as factors, the first the most significant. The parents of each of
    the d factors are drawn without repetition, so the table has L = d·|A|·|O|^parents·|O| parameters.
    """
    _require_positive(
        num_values=num_values, num_factors=num_factors, num_actions=num_actions, horizon=horizon
    )
    if not 0 <= num_parents <= num_factors:
        raise UserError(f"num_parents must be from 0 to num_factors={num_factors}, got {num_parents}")
    if num_values**num_factors > MAX_STATES:
        raise UserError(f"{num_values}^{num_factors} states are too many for a table, at most {MAX_STATES}")
    key_parents, key_rows, key_rest = jax.random.split(jax.random.key(seed), 3)
    order = jnp.broadcast_to(jnp.arange(num_factors), (num_factors, num_factors))
    order = jax.random.permutation(key_parents, order, axis=1, independent=True)
    parents = np.asarray(order)[:, :num_parents]
    # Axes: factor, action, each parent's value, next value of the factor.
    local = _random_rows(key_rows, (num_factors, num_actions, *(num_values,) * num_parents, num_values))
    digits = np.stack(np.unravel_index(np.arange(num_values**num_factors), (num_values,) * num_factors))
    num_states = digits.shape[1]
    transitions = np.ones((num_states, num_actions, num_states))
    for factor in range(num_factors):
        seen = tuple(digits[parents[factor]])  # the parents' values in every state
        for a in range(num_actions):
            chance = np.broadcast_to(local[factor, a][seen], (num_states, num_values))
            transitions[:, a] *= chance[:, digits[factor]]
    return _with_random_rewards_and_start(transitions, horizon, key_rest)


def lock_reward_range(lock: CombinationLock) -> tuple[float, float]:
    """(low, high) of the lock's rewards; `lock_chain` maps them affinely onto [0, 1].

    Every episode has H steps, so a return v of the chain is H·low + (high − low)·v in the lock's units, and
    both put policies in the same order.
    """
    return (-1.0 / lock.horizon if lock.antishaped else 0.0), GOAL_REWARD


def lock_chain(lock: CombinationLock) -> TabularMDP:
    """The lock's latent chain, paid by the state reached, with rewards in [0, 1] (`lock_reward_range`).

    State 3h + i is latent i of level h = 0 … H−1; the last action leads to 3H if it is paid, else to 3H + 1.
    Antishaping pays the move from good to dead but not staying dead, so each level h then has a fourth state
    3H + 2 + h: "has just died".
    """
    horizon = lock.horizon
    chance, _ = lock.transition_table()
    pays = np.asarray(lock.pays)
    paid, unpaid = NUM_STATES * horizon, NUM_STATES * horizon + 1
    num_states = unpaid + 1 + (horizon if lock.antishaped else 0)
    transitions = np.zeros((num_states, NUM_ACTIONS, num_states))
    transitions[[paid, unpaid], :, [paid, unpaid]] = 1.0
    for h, s, a in np.ndindex(horizon, NUM_STATES, NUM_ACTIONS):
        row = transitions[NUM_STATES * h + s, a]
        if h == horizon - 1:
            row[paid if s != DEAD and pays[s, a] else unpaid] = 1.0
            continue
        level = NUM_STATES * (h + 1)
        row[level : level + NUM_STATES] = chance[h, s, a]
        if lock.antishaped and s != DEAD:
            row[unpaid + 1 + h + 1] = row[level + DEAD]
            row[level + DEAD] = 0.0
    low, high = lock_reward_range(lock)
    rewards = np.zeros(num_states)
    rewards[paid] = high
    if lock.antishaped:
        for h in range(horizon):
            # One who has just died goes on as the dead do.
            transitions[unpaid + 1 + h] = transitions[NUM_STATES * h + DEAD]
        rewards[unpaid + 1 :] = DEATH_BONUS
        good = np.arange(NUM_STATES * horizon).reshape(horizon, NUM_STATES)[1:, :DEAD]
        rewards[good] = low
    start = np.zeros(num_states)
    start[:DEAD] = 0.5
    return TabularMDP(transitions, (rewards - low) / (high - low), start, horizon)


def latent_lock(
    horizon: int = 10, antishaped: bool = False, switch: float = 0.1, rewarded_actions: int = 1, seed: int = 0
) -> TabularMDP:
    """`lock_chain` of the CombinationLock with these arguments."""
    lock = CombinationLock(horizon, antishaped, switch, rewarded_actions=rewarded_actions, seed=seed)
    return lock_chain(lock)
