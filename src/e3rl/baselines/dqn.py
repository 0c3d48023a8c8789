"""Double DQN with prioritised replay, the paper's first baseline (sections 5.1 to 5.3)."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from e3rl.baselines.base import AbstractBaseline, Metrics, Rollout
from e3rl.baselines.prioritised import PrioritisedReplay
from e3rl.exploit.dqn import double_q_targets
from e3rl.models.qnetwork import QNetwork, QSettings, QState, make_q_state, update_q_rows
from e3rl.replay import Transitions
from e3rl.types import Action, Key


class DQNState(NamedTuple):
    q: QState
    averaged: QNetwork
    """The online network's weights in the mean over the last part of training; its own until then."""
    env_steps: Int[Array, ""]
    replay: PrioritisedReplay | None
    """None in a policy that is only to act."""


class DoubleDQN(AbstractBaseline):
    """ε-greedy double Q-learning; the fields are those of `DQNConfig`."""

    steps: int = eqx.field(static=True)
    copies: int = eqx.field(static=True)
    updates: int = eqx.field(static=True)
    hidden: int = eqx.field(static=True)
    maps: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    learning_starts: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    alpha: float = eqx.field(static=True)
    beta: float = eqx.field(static=True)
    final_epsilon: float = eqx.field(static=True)
    exploration_fraction: float = eqx.field(static=True)
    optimism: float = eqx.field(static=True)
    average_share: float = eqx.field(static=True)
    total_steps: int = eqx.field(static=True)
    settings: QSettings = eqx.field(static=True)

    def init(self, key: Key, shape: tuple[int, ...], actions: int) -> DQNState:
        network = QNetwork(shape, actions, None, self.hidden, maps=self.maps, optimism=self.optimism, key=key)
        replay = PrioritisedReplay.empty(self.capacity, shape)
        return DQNState(make_q_state(network, self.settings), network, jnp.array(0, jnp.int32), replay)

    def epsilon(self, env_steps: Int[Array, ""]) -> Float[Array, ""]:
        """From 1 to its final value in a straight line over the first part of training."""
        share = jnp.minimum(self._done(env_steps) / self.exploration_fraction, 1.0)
        return 1.0 + share * (self.final_epsilon - 1.0)

    def _done(self, env_steps: Int[Array, ""]) -> Float[Array, ""]:
        """The share of training that is over."""
        return jnp.minimum(env_steps.astype(jnp.float32) / self.total_steps, 1.0)

    def act(self, state: DQNState, key: Key, obs: Shaped[Array, "n *obs"]) -> tuple[Int[Array, " n"], None]:
        key_explore, key_action = jax.random.split(key)
        n = obs.shape[0]
        best = jax.vmap(lambda one: self.greedy(state, key, one, jnp.array(0)))(obs)
        explore = jax.random.bernoulli(key_explore, self.epsilon(state.env_steps), (n,))
        other = jax.random.randint(key_action, (n,), 0, state.q.online.actions, best.dtype)
        return jnp.where(explore, other, best), None

    def greedy(self, state: DQNState, key: Key, obs: Shaped[Array, "*obs"], time: Int[Array, ""]) -> Action:
        return jnp.argmax(state.q.online(obs, time)).astype(jnp.int32)

    def policy(self, state: DQNState) -> DQNState:
        """Greedy by the averaged weights: the last ones alone swing from update to update."""
        return state._replace(q=state.q._replace(online=state.averaged), replay=None)

    def _average(self, state: DQNState, online: QNetwork, env_steps: Int[Array, ""]) -> QNetwork:
        """The mean over the rounds so far of the last part of training."""
        before = env_steps - round((1.0 - self.average_share) * self.total_steps)
        rounds = jnp.maximum(before // (self.steps * self.copies), 1).astype(jnp.float32)
        return jax.tree.map(lambda old, new: old + (new - old) / rounds, state.averaged, online)

    def learn(self, state: DQNState, key: Key, rollout: Rollout) -> tuple[DQNState, Metrics]:
        """Remember the steps, then `updates` gradient steps once there is enough to learn from. An episode that was cut
        short bootstraps from its last observation, one that terminated does not."""
        assert state.replay is not None
        env_steps = state.env_steps + self.steps * self.copies
        replay = state.replay.append(self._transitions(rollout))
        ready = replay.size >= self.learning_starts
        beta = self.beta + (1.0 - self.beta) * self._done(env_steps)

        def update(carry: tuple, key: Key) -> tuple:
            q, replay = carry
            rows, index, importance = replay.sample(key, self.batch, beta)
            taken = jax.nn.one_hot(rows.action, q.online.actions)
            targets = double_q_targets(q, rows, self.discount)
            q, loss, values = update_q_rows(
                q, rows.obs, rows.time, targets[:, None] * taken, taken, self.settings, importance
            )
            value = jnp.sum(taken * values, axis=-1)
            error = jnp.where(ready, targets - value, 1.0)  # everything alike until learning starts
            return (q, replay.prioritise(index, error, self.alpha)), (loss, jnp.mean(value))

        keys = jax.random.split(key, self.updates)
        scanned: tuple = jax.lax.scan(update, (state.q, replay), keys)
        (q, replay), seen = scanned
        # Discarded rather than skipped: a branch would cost a copy of the buffer under `vmap` over seeds.
        q = jax.tree.map(lambda new, old: jnp.where(ready, new, old), q, state.q)
        loss, value = jax.tree.map(jnp.mean, seen)
        metrics = {"loss": loss, "value": value, "epsilon": self.epsilon(env_steps)}
        return DQNState(q, self._average(state, q.online, env_steps), env_steps, replay), metrics

    def _transitions(self, rollout: Rollout) -> Transitions:
        """One row a step. The network is stationary: a clock, where there is one, is part of the observation."""
        rows = Transitions(
            rollout.obs, rollout.action, jnp.zeros_like(rollout.action), rollout.reward, rollout.next_obs,
            rollout.terminated,
        )  # fmt: skip
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)
