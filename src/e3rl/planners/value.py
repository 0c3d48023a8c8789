"""Planning by value: section 2's exploration MDP, or its exploitation twin, solved by fitted Q-iteration in
imagination.

States come from the replay buffer, every action is imagined by the ensemble, the next state is drawn from a random
member, and the reward is the planner's utility. The value is warm-started from one epoch to the next.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from e3rl.models.base import Prediction, within_bounds
from e3rl.models.ensemble import Ensemble, predict
from e3rl.models.qnetwork import QSettings, QState, update_q
from e3rl.planners.utility import Distance, Mode, max_disagreement, mean_reward
from e3rl.replay import Replay
from e3rl.types import Action, Key


class ValueSettings(NamedTuple):
    updates: int
    batch: int
    discount: float
    distance: Distance
    reward_scale: float
    caution: float
    """Exploit only: disagreement times this is taken off the predicted reward."""
    q: QSettings


def utility(predicted: Prediction, mode: Mode, settings: ValueSettings) -> Float[Array, ""]:
    disagreement = max_disagreement(predicted, settings.distance, settings.reward_scale)
    if mode == "explore":
        return disagreement
    return mean_reward(predicted) - settings.caution * disagreement


def fit_value(
    value: QState,
    ensemble: Ensemble,
    replay: Replay,
    key: Key,
    mode: Mode,
    settings: ValueSettings,
    actions: int,
) -> tuple[QState, Float[Array, ""]]:
    """`settings.updates` steps of fitted Q-iteration on imagined transitions; the mean loss of the last ones."""
    members = jax.tree.leaves(ensemble)[0].shape[0]
    everything = jnp.arange(actions, dtype=jnp.int32)

    def backup(
        target: QState, obs: Shaped[Array, "*obs"], time: Int[Array, ""], action: Int[Array, ""], key: Key
    ) -> Float[Array, ""]:
        """u(s, a) + γ (1 − end) max_a' Q(s', a'), with s' drawn from a random member."""
        key_member, key_noise = jax.random.split(key)
        predicted = predict(ensemble, obs, action, time)
        chosen = jax.random.randint(key_member, (), 0, members)
        own = jax.tree.map(lambda leaf: leaf[chosen], predicted)
        next_obs = within_bounds(ensemble.draw(own, jax.random.uniform(key_noise, ensemble.noise_shape)))
        alive = 1.0 - own.termination
        return utility(predicted, mode, settings) + settings.discount * alive * jnp.max(
            target.target(next_obs, time + 1)
        )

    def update(state: QState, key: Key) -> tuple[QState, Float[Array, ""]]:
        key_rows, key_backup = jax.random.split(key)
        rows = replay.sample(key_rows, settings.batch)
        keys = jax.random.split(key_backup, (settings.batch, actions))
        each_action = jax.vmap(backup, in_axes=(None, None, None, 0, 0))
        targets = jax.vmap(each_action, in_axes=(None, 0, 0, None, 0))(
            state, rows.obs, rows.time, everything, keys
        )
        return update_q(state, rows.obs, rows.time, targets, jnp.ones_like(targets), settings.q)

    value, losses = jax.lax.scan(update, value, jax.random.split(key, settings.updates))
    return value, jnp.mean(losses[-20:])


def greedy(value: QState, obs: Shaped[Array, "*obs"], time: Int[Array, ""]) -> Action:
    return jnp.argmax(value.online(obs, time)).astype(jnp.int32)


def start_value(value: QState, replay: Replay) -> Float[Array, ""]:
    """The planned policy's value at the start of the newest episode: the estimate of v_explore for line 6."""
    best = jnp.max(value.online(replay.take(replay.recent).obs, jnp.array(0, jnp.int32)))
    return jnp.where(replay.size > 0, best, jnp.inf)
