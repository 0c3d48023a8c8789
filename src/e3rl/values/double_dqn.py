"""Offline double DQN on the replay buffer (section 4.3): no further episodes, one `lax.scan`."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from e3rl.models.qnetwork import QSettings, QState, update_q
from e3rl.replay import Replay, Transitions
from e3rl.types import Key


class DqnSettings(NamedTuple):
    updates: int
    batch: int
    discount: float
    ending_share: float
    """Chance that a row is one on which an episode terminated."""
    clipped: bool
    """Bootstrap by the lesser of the two networks' values."""
    q: QSettings


def double_q_targets(
    state: QState, rows: Transitions, discount: float, clipped: bool = False
) -> Float[Array, " B"]:
    """r + γ (1 − end) Q_target(s', argmax_a Q_online(s', a)), the double DQN target; `clipped`, the lesser of Q_target
    and Q_online there. Offline nothing corrects what an action never tried is thought to be worth, and the maximum
    spreads it: the lesser value holds it down."""
    after = rows.time + 1
    online = jax.vmap(state.online)(rows.next_obs, after)
    values = jax.vmap(state.target)(rows.next_obs, after)
    chosen = jnp.argmax(online, axis=-1)
    values = jnp.minimum(values, online) if clipped else values
    bootstrap = jnp.take_along_axis(values, chosen[:, None], axis=-1)[:, 0]
    return rows.reward + discount * jnp.where(rows.terminated, 0.0, bootstrap)


def fit_dqn(
    state: QState, replay: Replay, key: Key, settings: DqnSettings
) -> tuple[QState, Float[Array, ""]]:
    """`settings.updates` double DQN steps; the mean loss of the last ones."""

    def update(state: QState, key: Key) -> tuple[QState, Float[Array, ""]]:
        rows = replay.sample(key, settings.batch, ending_share=settings.ending_share)
        taken = jax.nn.one_hot(rows.action, state.online.actions)
        targets = double_q_targets(state, rows, settings.discount, settings.clipped)[:, None] * taken
        return update_q(state, rows.obs, rows.time, targets, taken, settings.q)

    state, losses = jax.lax.scan(update, state, jax.random.split(key, settings.updates))
    return state, jnp.mean(losses[-100:])
