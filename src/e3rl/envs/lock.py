"""The stochastic combination lock of section 5.1 and appendix C.1."""

from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, UInt8

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.drawing import draw_lock
from e3rl.types import Action, Flag, Key, Reward, UserError

GOOD_1, GOOD_2, DEAD = 0, 1, 2
NUM_STATES, NUM_ACTIONS = 3, 4
STIRRING = NUM_ACTIONS - 1
"""The action that stirs up noise where only one does."""
NOISE = ("always", "stirred", "by_state")
GOAL_REWARD = 5.0
DEATH_BONUS = 0.1


class LockState(NamedTuple):
    level: Int[Array, ""]
    """0 … H−1; H once the last action has been taken."""
    latent: Int[Array, ""]
    """GOOD_1, GOOD_2 or DEAD."""


class CombinationLock(AbstractEnvironment):
    """H levels of two good states and a dead one; the key to each level is drawn once per environment.

    `seed` draws the lock, the keys given to `reset` and `step` draw the episode. An episode starts in one of the two
    good states of the first level, with equal chance, and lasts exactly H steps.

    `noise` says when the noise bits are coins: "always"; "stirred", after the last of the actions only; or "by_state",
    all of them in the first good state, half in the second, none in the dead one. Otherwise they are 0.
    """

    successor: Int[Array, "H 2 4"]
    """Where an action leads from a good state when nothing is swapped: GOOD_1, GOOD_2 or DEAD."""
    pays: Bool[Array, "2 4"]
    """Which actions pay at the last level's good states."""
    shaping: Float[Array, "2"]
    """Reward for moving to the dead state and to a good one before the last level; an array, so that locks with
    standard and antishaped rewards stack into one batch."""
    time_limit: int = eqx.field(static=True)
    switch: float = eqx.field(static=True)
    noise_bits: int = eqx.field(static=True)
    observe_level: bool = eqx.field(static=True)
    noise: str = eqx.field(static=True)

    def __init__(
        self,
        horizon: int = 10,
        antishaped: bool = False,
        switch: float = 0.1,
        noise_bits: int | None = None,
        observe_level: bool = False,
        rewarded_actions: int = 1,
        seed: int | Key = 0,
        noise: str = "always",
    ):
        if horizon < 1:
            raise UserError(f"horizon must be at least 1, got {horizon}")
        if not 0.0 <= switch <= 1.0:
            raise UserError(f"switch must be a probability, got {switch}")
        if noise_bits is not None and noise_bits < 0:
            raise UserError(f"noise_bits must not be negative, got {noise_bits}")
        if noise not in NOISE:
            raise UserError(f"noise must be one of {', '.join(NOISE)}, got {noise!r}")
        if rewarded_actions not in (1, 2):
            raise UserError(
                f"rewarded_actions must be 1 (the paper's text) or 2 (its code), got {rewarded_actions}"
            )
        self.time_limit = horizon
        self.shaping = jnp.array([DEATH_BONUS, -1.0 / horizon] if antishaped else [0.0, 0.0])
        self.switch = switch
        self.noise_bits = horizon if noise_bits is None else noise_bits
        self.observe_level = observe_level
        self.noise = noise
        key = jax.random.key(seed) if isinstance(seed, int | np.integer) else seed
        # Among the four actions of a good state one leads to each good state and two to the dead one.
        outcomes = jnp.broadcast_to(jnp.array([GOOD_1, GOOD_2, DEAD, DEAD]), (horizon, 2, NUM_ACTIONS))
        key_order, key_pays = jax.random.split(key)
        self.successor = jax.random.permutation(key_order, outcomes, axis=-1, independent=True)
        # The actions that pay are among the two that stay alive, so that paid play never looks like dying.
        paid = jax.random.bernoulli(key_pays, shape=(2, 1)).astype(outcomes.dtype)
        self.pays = (self.successor[-1] == paid) if rewarded_actions == 1 else (self.successor[-1] != DEAD)

    @property
    def horizon(self) -> int:
        return self.time_limit

    @property
    def antishaped(self) -> bool:
        return bool(np.any(np.asarray(self.shaping)))

    @property
    def observation_space(self) -> gymnasium.spaces.MultiBinary:
        return gymnasium.spaces.MultiBinary(
            NUM_STATES + self.noise_bits + (self.horizon if self.observe_level else 0)
        )

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(NUM_ACTIONS)

    def _observe(self, key: Key, state: LockState, stirred: Flag) -> Int8[Array, " D"]:
        coins = jax.random.bernoulli(key, shape=(self.noise_bits,))
        match self.noise:
            case "stirred":
                coins &= stirred
            case "by_state":
                amount = jnp.array([self.noise_bits, self.noise_bits // 2, 0])[state.latent]
                coins &= jnp.arange(self.noise_bits) < amount
        parts = [jax.nn.one_hot(state.latent, NUM_STATES, dtype=jnp.int8), coins.astype(jnp.int8)]
        if self.observe_level:
            parts.append(jax.nn.one_hot(state.level, self.horizon, dtype=jnp.int8))
        return jnp.concatenate(parts)

    def reset(self, key: Key) -> tuple[LockState, Int8[Array, " D"]]:
        key_start, key_noise = jax.random.split(key)
        latent = jax.random.bernoulli(key_start).astype(jnp.int32)
        state = LockState(jnp.array(0, jnp.int32), latent)
        return state, self._observe(key_noise, state, jnp.array(False))

    def step(
        self, key: Key, state: LockState, action: Action
    ) -> tuple[LockState, Int8[Array, " D"], Reward, Flag, Flag]:
        key_switch, key_noise = jax.random.split(key)
        level, latent = state
        last = level == self.horizon - 1
        good = jnp.minimum(latent, GOOD_2)  # a legal row to look up for the dead state too
        outcome = self.successor[level, good, action]
        swapped = jax.random.bernoulli(key_switch, self.switch) & ~last & (outcome != DEAD)
        outcome = jnp.where(swapped, 1 - outcome, outcome)
        alive = latent != DEAD
        next_latent = jnp.where(alive, outcome, DEAD)
        paid = alive & last & self.pays[good, action]
        shaping = jnp.where(next_latent == DEAD, self.shaping[0], self.shaping[1])
        reward = jnp.where(paid, GOAL_REWARD, 0.0) + jnp.where(alive & ~last, shaping, 0.0)
        next_state = LockState(level + 1, next_latent)
        return (
            next_state,
            self._observe(key_noise, next_state, action == STIRRING),
            reward,
            last,
            jnp.array(False),
        )

    def transition_table(self) -> tuple[Float[np.ndarray, "H 3 4 3"], Float[np.ndarray, "H 3 4 3"]]:
        """The latent chain: P[h, s, a, s'] and the reward R[h, s, a, s'] of that move."""
        H = self.horizon
        chance = np.zeros((H, NUM_STATES, NUM_ACTIONS, NUM_STATES))
        reward = np.zeros_like(chance)
        successor, pays = np.asarray(self.successor), np.asarray(self.pays)
        for h, s, a in np.ndindex(H, 2, NUM_ACTIONS):
            outcome = successor[h, s, a]
            swap = self.switch if h < H - 1 and outcome != DEAD else 0.0
            chance[h, s, a, outcome] += 1.0 - swap
            if outcome != DEAD:
                chance[h, s, a, 1 - outcome] += swap
        chance[:, DEAD, :, DEAD] = 1.0
        if self.antishaped:
            reward[:-1, :DEAD, :, DEAD] = DEATH_BONUS
            reward[:-1, :DEAD, :, :DEAD] = -1.0 / H
        reward[-1, :DEAD] = GOAL_REWARD * pays[:, :, None]
        return chance, reward

    def _value(self, reward: Float[np.ndarray, "H 3 4 3"], best: bool) -> float:
        """Backward induction from the uniform start over the two good states; best or uniform actions."""
        chance, _ = self.transition_table()
        value = np.zeros(NUM_STATES)
        for h in reversed(range(self.horizon)):
            q = np.sum(chance[h] * (reward[h] + value), axis=-1)
            value = q.max(axis=-1) if best else q.mean(axis=-1)
        return float(value[:DEAD].mean())

    @cached_property
    def optimal_return(self) -> float:
        return self._value(self.transition_table()[1], best=True)

    @cached_property
    def uniform_success_probability(self) -> float:
        """The chance that uniformly random play is paid at the last level."""
        paid = np.zeros((self.horizon, NUM_STATES, NUM_ACTIONS, NUM_STATES))
        paid[-1, :DEAD] = np.asarray(self.pays)[:, :, None]
        return self._value(paid, best=False)

    def render(self, state: LockState) -> UInt8[np.ndarray, "h w 3"]:
        return draw_lock(self.horizon, int(state.level), int(state.latent))
