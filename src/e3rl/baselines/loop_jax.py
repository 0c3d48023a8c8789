"""Baselines on JAX environments: acting, stepping and learning of several seeds as one program."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from e3rl.baselines.base import AbstractBaseline, Metrics, Rollout, State
from e3rl.baselines.observer import Observer, horizon_of
from e3rl.envs.base import AbstractEnvironment, Observation
from e3rl.envs.playing.rollout import episode_return, rollout
from e3rl.runs.lanes import as_lane, lane_of, seed_keys, side_by_side
from e3rl.types import Action, Key, key_for

STEPS_PER_CALL = 10_000
"""Environment steps of a seed between two words from the program."""
LARGEST_COPY = 2**25
"""Bytes of a state that is copied at every word, lest an interruption find none that is whole."""


class Carry(NamedTuple):
    """Everything that training goes on from."""

    state: State
    env_state: Any
    obs: Shaped[Array, "n *obs"]
    time: Int[Array, " n"]
    """Steps since the reset, of every environment."""
    returns: Float[Array, " n"]
    iteration: Int[Array, ""]


class Ended(NamedTuple):
    """Which steps ended an episode, with its return and length there."""

    ended: Bool[Array, "T n"]
    returns: Float[Array, "T n"]
    lengths: Int[Array, "T n"]


def begin(algorithm: AbstractBaseline, env: AbstractEnvironment, key: Key, clock: bool) -> Carry:
    n = algorithm.copies
    observer = Observer(env.observation_space, horizon_of(env.time_limit, clock))
    env_state, obs = jax.vmap(env.reset)(jax.random.split(key_for(key, "start"), n))
    time = jnp.zeros(n, jnp.int32)
    state = algorithm.init(key_for(key, "init"), observer.shape, env.num_actions)
    return Carry(state, env_state, jax.vmap(observer)(obs, time), time, jnp.zeros(n), jnp.array(0, jnp.int32))


def iterate(
    algorithm: AbstractBaseline, env: AbstractEnvironment, key: Key, clock: bool, carry: Carry
) -> tuple[Carry, Ended, Metrics]:
    """T steps of n environments, each starting over where its episode ended, then `learn`."""
    observe = jax.vmap(Observer(env.observation_space, horizon_of(env.time_limit, clock)))
    n = algorithm.copies

    def step(world: tuple, key: Key) -> tuple[tuple, tuple[Rollout, Ended]]:
        env_state, obs, time, returns = world
        key_act, key_env, key_reset = jax.random.split(key, 3)
        action, extra = algorithm.act(carry.state, key_act, obs)
        env_state, seen, reward, terminated, truncated = jax.vmap(env.step)(
            jax.random.split(key_env, n), env_state, action
        )
        time, returns, ended = time + 1, returns + reward, terminated | truncated
        next_obs = observe(seen, time)
        rows = Rollout(obs, action, reward, next_obs, terminated, truncated, extra)
        fresh_state, fresh_seen = jax.vmap(env.reset)(jax.random.split(key_reset, n))
        start = jnp.zeros_like(time)
        fresh = fresh_state, observe(fresh_seen, start), start, jnp.zeros_like(returns)

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(ended.reshape(-1, *[1] * (old.ndim - 1)), new, old)

        world = jax.tree.map(choose, fresh, (env_state, next_obs, time, returns))
        return world, (rows, Ended(ended, returns, time))

    key_steps, key_learn = jax.random.split(key_for(key, "train", carry.iteration))
    world, (rollout, ended) = jax.lax.scan(step, carry[1:5], jax.random.split(key_steps, algorithm.steps))
    state, metrics = algorithm.learn(carry.state, key_learn, rollout)
    return Carry(state, *world, carry.iteration + 1), ended, metrics


class Fixed(NamedTuple):
    """What a program does not change: never donated to it."""

    algorithm: AbstractBaseline
    env: AbstractEnvironment
    """A lane for every seed, on the first axis of every array."""
    keys: Shaped[Array, " lanes"]
    clock: bool


@eqx.filter_jit
def _begin(fixed: Fixed) -> Carry:
    return jax.vmap(lambda env, key: begin(fixed.algorithm, env, key, fixed.clock))(fixed.env, fixed.keys)


@eqx.filter_jit(donate="all-except-first")
def _advance(call: tuple[Fixed, Int[Array, ""], int], carry: Carry) -> tuple[Carry, Ended, Metrics]:
    """`count` iterations of every lane; what they report has the axes [size, lanes], the first `count` filled."""
    fixed, count, size = call

    def one(env: AbstractEnvironment, key: Key, carry: Carry) -> tuple[Carry, tuple[Ended, Metrics]]:
        carry, ended, metrics = iterate(fixed.algorithm, env, key, fixed.clock, carry)
        return carry, (ended, metrics)

    alone = fixed.keys.shape[0] == 1  # then without the lane axis, whose scatters are slower
    step = one if alone else jax.vmap(one)
    env, keys, carry = (lane_of if alone else lambda tree: tree)((fixed.env, fixed.keys, carry))

    def body(i: Int[Array, ""], carried: tuple) -> tuple:
        carry, reports = carried
        carry, report = step(env, keys, carry)
        return carry, jax.tree.map(lambda held, new: held.at[i].set(new), reports, report)

    shapes = jax.eval_shape(step, env, keys, carry)[1]
    reports = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), shapes)
    carry, reports = jax.lax.fori_loop(jnp.array(0, jnp.int32), count, body, (carry, reports))
    if alone:
        carry, reports = as_lane(carry), jax.tree.map(lambda leaf: leaf[:, None], reports)
    return carry, *reports


@eqx.filter_jit
def _evaluate(
    fixed: Fixed, policy: State, episodes: int
) -> tuple[Float[Array, "lanes n"], Int[Array, "lanes n"]]:
    def play(env: AbstractEnvironment, policy: State, key: Key) -> tuple[Float[Array, ""], Int[Array, ""]]:
        observer = Observer(env.observation_space, horizon_of(env.time_limit, fixed.clock))

        def act(key: Key, obs: Observation, time: Array) -> Action:
            return fixed.algorithm.greedy(policy, key, observer(obs, time), time)

        episode = rollout(env, act, key)
        return episode_return(episode), jnp.sum(episode.valid)

    def lane(env: AbstractEnvironment, policy: State, key: Key) -> tuple:
        keys = jax.random.split(key_for(key, "evaluate"), episodes)
        return jax.vmap(play, (None, None, 0))(env, policy, keys)

    return jax.vmap(lane)(fixed.env, policy, fixed.keys)


class JaxLoop:
    """Trains one agent per seed, each on its own functional environment."""

    broken: BaseException | None = None
    """A compiled program does not break off."""

    def __init__(
        self,
        algorithm: AbstractBaseline,
        envs: Sequence[AbstractEnvironment],
        seeds: Sequence[int],
        clock: bool,
    ):
        self.fixed = Fixed(algorithm, side_by_side(envs), seed_keys(seeds), clock)
        self.size = max(1, STEPS_PER_CALL // (algorithm.steps * algorithm.copies))
        """Iterations per call."""

    def begin(self) -> Carry:
        return _begin(self.fixed)

    def advance(
        self, carry: Carry, count: int, until: float = math.inf
    ) -> tuple[Carry, Ended, dict[str, np.ndarray]]:
        """`count` more iterations, whatever the clock says meanwhile; reports have the axes [count, lanes]."""
        carry, *reports = _advance((self.fixed, jnp.array(count, jnp.int32), self.size), carry)
        ended, metrics = jax.tree.map(lambda leaf: np.asarray(leaf)[:count], tuple(reports))
        return carry, ended, metrics

    def kept(self, carry: Carry) -> Carry:
        """A state that stays when the loop goes on. It works in the memory of the one it is given, so this is a copy,
        or where that would take long the state itself, which is gone then."""
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(carry))
        return jax.tree.map(jnp.copy, carry) if size <= LARGEST_COPY else carry

    def evaluate(self, policy: State, episodes: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths [lanes, episodes] of greedy episodes."""
        returns, lengths = _evaluate(self.fixed, policy, episodes)
        return np.asarray(returns), np.asarray(lengths)

    def under_way(self) -> dict[str, Any]:
        """What a checkpoint must know beside the carry: nothing."""
        return {}

    def restore(self, about: dict[str, Any]) -> None:
        """Nothing to restore beside the carry."""
