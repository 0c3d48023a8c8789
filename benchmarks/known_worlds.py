"""Environments whose every chance is known, and play that leaves some of their (state, action) pairs untried."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.encoding import Encoding
from e3rl.envs.four_rooms import FourRooms
from e3rl.envs.lock import DEAD, NUM_STATES, CombinationLock
from e3rl.envs.playing.rollout import rollout
from e3rl.types import Key, Keys, Trajectory, key_for

FATAL = 0.1
"""How often play takes an action of the lock that ends in the dead state, beside one that does not: uniform play would
not see the deeper levels."""


class World(NamedTuple):
    """An environment with S states, of which an observation tells which one it is, coins aside."""

    env: AbstractEnvironment
    shown: Float[np.ndarray, "S *obs"]
    """The encoded observation of every state, a half where a coin is thrown."""
    coins: Bool[np.ndarray, "*obs"]
    level: Int[np.ndarray, " S"] | None
    """The time step at which a state is met, None where that is any."""
    chance: Float[np.ndarray, "S A S"]
    reward: Float[np.ndarray, "S A"]
    """In the mean."""
    live: Bool[np.ndarray, " S"]
    """States in which one can act."""
    play: Float[np.ndarray, "S A"]
    """The chances with which episodes are played; some are 0."""

    def state_of(self, obs: Float[Array, "*obs"], time: Int[Array, ""]) -> Int[Array, ""]:
        apart = jnp.where(self.coins, 0.0, (self.shown - obs.astype(jnp.float32)) ** 2)
        far = jnp.sum(apart.reshape(len(self.shown), -1), axis=1)
        if self.level is not None:
            far = jnp.where(jnp.asarray(self.level) == time, far, jnp.inf)
        return jnp.argmin(far).astype(jnp.int32)

    def episodes(self, key: Key, count: int) -> Trajectory:
        """[count, H], the same for everyone who learns from them."""
        return _played(self, jax.random.split(key, count))

    def tried(self, episodes: Trajectory) -> Int[np.ndarray, "S A"]:
        """How often every action was taken in every state."""
        states, valid = np.asarray(_states(self, episodes)), np.asarray(episodes.valid)
        count = np.zeros(self.play.shape, int)
        np.add.at(count, (states[valid], np.asarray(episodes.action)[valid]), 1)
        return count


@eqx.filter_jit
def _played(world: World, keys: Keys) -> Trajectory:
    encoding = Encoding(world.env.observation_space)

    def act(key: Key, obs: Array, time: Array) -> Array:
        chances = jnp.asarray(world.play)[world.state_of(obs, time)]
        return jax.random.categorical(key, jnp.log(chances)).astype(jnp.int32)

    return jax.vmap(lambda key: rollout(world.env, act, key, encoding.encode))(keys)


@eqx.filter_jit
def _states(world: World, episodes: Trajectory) -> Int[Array, "n H"]:
    steps = jnp.broadcast_to(jnp.arange(world.env.time_limit), episodes.action.shape)
    return jax.vmap(jax.vmap(world.state_of))(episodes.obs, steps)


def withholding(weights: Float[np.ndarray, "S A"], seed: int) -> Float[np.ndarray, "S A"]:
    """Play by these weights from which one action is withheld in every state."""
    states, actions = weights.shape
    withheld = np.random.default_rng(seed).integers(actions, size=states)
    left = np.where(np.arange(actions) == withheld[:, None], 0.0, weights)
    return left / left.sum(axis=1, keepdims=True)


def lock(seed: int, horizon: int, coins: int) -> World:
    """State 3h + s is s of level h; those of level H are where episodes end."""
    env = CombinationLock(horizon, noise_bits=coins, seed=key_for(jax.random.key(seed), "lock"))
    moves, rewards = env.transition_table()
    states = NUM_STATES * (horizon + 1)
    level, latent = np.divmod(np.arange(states), NUM_STATES)
    chance = np.zeros((states, env.num_actions, states))
    reward = np.zeros((states, env.num_actions))
    for h in range(horizon):
        here, there = (slice(NUM_STATES * at, NUM_STATES * (at + 1)) for at in (h, h + 1))
        chance[here, :, there] = moves[h]
        reward[here] = np.sum(moves[h] * rewards[h], axis=-1)
    dies = chance[:, :, latent == DEAD].sum(axis=-1) * (latent != DEAD)[:, None]
    shown = np.full((states, NUM_STATES + coins), 0.5)
    shown[:, :NUM_STATES] = np.eye(NUM_STATES)[latent]
    return World(
        env,
        shown,
        np.arange(NUM_STATES + coins) >= NUM_STATES,
        level,
        chance,
        reward,
        (level < horizon) & ~((level == 0) & (latent == DEAD)),
        withholding(np.where(dies > 0.0, FATAL, 1.0), seed),
    )


def rooms(seed: int, size: int, steps: int, slip: float, observation: str) -> World:
    """State n is the n-th cell, walls included."""
    env = FourRooms(size, slip, observation, steps)
    chance, reward = env.transition_table()
    cells = np.stack(np.divmod(np.arange(size**2), size), axis=1)
    encode = Encoding(env.observation_space).encode
    shown = np.stack([np.asarray(encode(env._observe(jnp.asarray(cell, jnp.int32)))) for cell in cells])
    live = ~env.walls.reshape(-1)
    live[env.goal[0] * size + env.goal[1]] = False
    nothing = np.zeros(shown.shape[1:], bool)
    return World(env, shown, nothing, None, chance, reward, live, withholding(np.ones(reward.shape), seed))
