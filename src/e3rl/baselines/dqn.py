"""Double DQN with prioritised replay, the paper's first baseline (sections 5.1 to 5.3)."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from e3rl.baselines.base import AbstractBaseline, BaselineConfig, Metrics, Rollout
from e3rl.baselines.prioritised import PrioritisedReplay
from e3rl.baselines.weight_noise import WeightNoise, adapted, first_noise
from e3rl.replay import Transitions
from e3rl.runs.settings import setting
from e3rl.types import Action, Key, UserError, key_for
from e3rl.values.double_dqn import double_q_targets
from e3rl.values.network import QNetwork
from e3rl.values.update import QState, QStep, make_q_state, update_q_rows

NOISE = "weight noise"
"""The name of its keys."""


class DQNState(NamedTuple):
    q: QState
    averaged: QNetwork
    """The online network's weights in the mean over the last part of training; its own until then."""
    env_steps: Int[Array, ""]
    replay: PrioritisedReplay | None
    """None in a policy that is only to act."""
    noise: WeightNoise | None = None
    """None where the ε-greedy policy explores, and in a policy that is only to act."""


@dataclass(frozen=True)
class DQNConfig(BaselineConfig):
    """Double DQN with prioritised replay (sections 5.1 to 5.3). What a table of appendix C has, the field says."""

    copies: int = setting(4, "Environments in parallel", at_least=1)
    steps: int = setting(4, "Steps of each environment between two rounds of updates", at_least=1)
    updates: int = setting(8, "Gradient steps per round", at_least=1)
    hidden: int = setting(
        128,
        'Width of the two hidden layers ("Hidden Layer Size" in the DQN tables of C.1, C.2, C.3)',
        at_least=1,
    )
    maps: int = setting(
        8,
        'Feature maps of the one convolution that images pass first (C.2: "Feature Maps", "Convolutional '
        'Layers")',
        at_least=1,
    )
    learning_rate: float = setting(2e-3, 'Adam\'s step ("Learning Rate" in the tables)', above=0)
    anneal: bool = setting(True, "Let the learning rate fall to 0, in a straight line over the training")
    gradient_clip: float = setting(10.0, "Largest global norm of a gradient", above=0)
    huber: float = setting(
        20.0,
        "Errors beyond this count linearly instead of squared: small beside the values, rare ends hardly "
        "count",
        above=0,
    )
    discount: float = setting(0.99, 'γ ("Discount Factor" in the tables)', at_most=1)
    batch: int = setting(64, "Transitions per gradient step", at_least=1)
    capacity: int = setting(
        100_000, "Transitions the buffer holds before the oldest are overwritten", at_least=1
    )
    learning_starts: int = setting(1_000, "Transitions before the first gradient step", at_least=1)
    target_period: int = setting(
        128,
        "Gradient steps between copies of the online network to the target network; ignored with a "
        "`target_rate`",
        at_least=1,
    )
    target_rate: float = setting(
        0.0,
        "Polyak step of the target network towards the online one, after every gradient step; 0 for copies",
        at_most=1,
    )
    exploration_fraction: float = setting(
        0.1,
        'Share of the training over which ε falls from 1 to its final value (C.1: "Exploration Fraction")',
        above=0,
        at_most=1,
    )
    final_epsilon: float = setting(0.02, "ε from then on", at_most=1)
    optimism: float = setting(
        0.0,
        "What every action is worth before any training. With as much as there is to win, acting greedily"
        " explores: what was tried in vain loses its promise.",
    )
    average_share: float = setting(
        0.2,
        "The greedy policy has the mean of the weights over the last part of training, this share; 0: the"
        " last weights",
        at_most=1,
    )
    alpha: float = setting(
        0.6,
        'Exponent of the priorities; 0 draws uniformly ("Prioritized Replay" in the tables: true)',
        at_most=1,
    )
    beta: float = setting(
        0.4,
        "Exponent of the importance weights at the start; it rises to 1 by the end of training",
        at_most=1,
    )
    weight_noise: bool = setting(
        False,
        "Explore by acting greedily with perturbed weights in place of ε-greedily; ε then says how far they may "
        'change the policy ("Parameter Noise" in the tables of C.2, C.3)',
        before=False,
    )

    def check(self) -> None:
        if self.capacity < max(self.learning_starts, self.copies * self.steps):
            raise UserError(
                f"capacity must hold learning_starts and a round of copies × steps, got {self.capacity}"
            )

    def baseline(self) -> "DoubleDQN":
        return DoubleDQN(self)

    def step(self) -> QStep:
        updates = max(1, self.total_steps // (self.copies * self.steps)) * self.updates
        return QStep(
            learning_rate=self.learning_rate,
            gradient_clip=self.gradient_clip,
            target_rate=self.target_rate,
            target_period=self.target_period,
            huber=self.huber,
            decay=updates if self.anneal else 0,
            left=0.0,
        )


class DoubleDQN(AbstractBaseline):
    """Double Q-learning, ε-greedy or, with `weight_noise`, greedy by perturbed weights."""

    config: DQNConfig = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    copies: int = eqx.field(static=True)

    def __init__(self, config: DQNConfig):
        self.config, self.steps, self.copies = config, config.steps, config.copies

    def init(self, key: Key, shape: tuple[int, ...], actions: int) -> DQNState:
        network = QNetwork(
            shape,
            actions,
            None,
            self.config.hidden,
            maps=self.config.maps,
            optimism=self.config.optimism,
            key=key,
        )
        replay = PrioritisedReplay.empty(self.config.capacity, shape)
        noise = first_noise(network, key_for(key, NOISE)) if self.config.weight_noise else None
        q = make_q_state(network, self.config.step())
        return DQNState(q, network, jnp.array(0, jnp.int32), replay, noise)

    def epsilon(self, env_steps: Int[Array, ""]) -> Float[Array, ""]:
        """From 1 to its final value in a straight line over the first part of training."""
        share = jnp.minimum(self._done(env_steps) / self.config.exploration_fraction, 1.0)
        return 1.0 + share * (self.config.final_epsilon - 1.0)

    def _done(self, env_steps: Int[Array, ""]) -> Float[Array, ""]:
        """The share of training that is over."""
        return jnp.minimum(env_steps.astype(jnp.float32) / self.config.total_steps, 1.0)

    def act(self, state: DQNState, key: Key, obs: Shaped[Array, "n *obs"]) -> tuple[Int[Array, " n"], None]:
        if state.noise is not None:
            return self._best(state.noise.acting, obs), None
        key_explore, key_action = jax.random.split(key)
        n = obs.shape[0]
        best = self._best(state.q.online, obs)
        explore = jax.random.bernoulli(key_explore, self.epsilon(state.env_steps), (n,))
        other = jax.random.randint(key_action, (n,), 0, state.q.online.actions, best.dtype)
        return jnp.where(explore, other, best), None

    def _best(self, network: QNetwork, obs: Shaped[Array, "n *obs"]) -> Int[Array, " n"]:
        values = jax.vmap(lambda one: network(one, jnp.array(0)))(obs)
        return jnp.argmax(values, axis=-1).astype(jnp.int32)

    def greedy(self, state: DQNState, key: Key, obs: Shaped[Array, "*obs"], time: Int[Array, ""]) -> Action:
        return jnp.argmax(state.q.online(obs, time)).astype(jnp.int32)

    def policy(self, state: DQNState) -> DQNState:
        """Greedy by the averaged weights: the last ones alone swing from update to update."""
        return state._replace(q=state.q._replace(online=state.averaged), replay=None, noise=None)

    def _average(self, state: DQNState, online: QNetwork, env_steps: Int[Array, ""]) -> QNetwork:
        """The mean over the rounds so far of the last part of training."""
        before = env_steps - round((1.0 - self.config.average_share) * self.config.total_steps)
        rounds = jnp.maximum(before // (self.steps * self.copies), 1).astype(jnp.float32)
        return jax.tree.map(lambda old, new: old + (new - old) / rounds, state.averaged, online)

    def learn(self, state: DQNState, key: Key, rollout: Rollout) -> tuple[DQNState, Metrics]:
        """Remember the steps, then `updates` gradient steps once there is enough to learn from. An episode that was cut
        short bootstraps from its last observation, one that terminated does not."""
        assert state.replay is not None
        env_steps = state.env_steps + self.steps * self.copies
        replay = state.replay.append(self._transitions(rollout))
        ready = replay.size >= self.config.learning_starts
        beta = self.config.beta + (1.0 - self.config.beta) * self._done(env_steps)

        def update(carry: tuple, key: Key) -> tuple:
            q, replay = carry
            rows, index, importance = replay.sample(key, self.config.batch, beta)
            taken = jax.nn.one_hot(rows.action, q.online.actions)
            targets = double_q_targets(q, rows, self.config.discount)
            q, loss, values = update_q_rows(
                q, rows.obs, rows.time, targets[:, None] * taken, taken, self.config.step(), importance
            )
            value = jnp.sum(taken * values, axis=-1)
            error = jnp.where(ready, targets - value, 1.0)  # everything alike until learning starts
            return (q, replay.prioritise(index, error, self.config.alpha)), (loss, jnp.mean(value))

        keys = jax.random.split(key, self.config.updates)
        scanned: tuple = jax.lax.scan(update, (state.q, replay), keys)
        (q, replay), seen = scanned
        # Discarded rather than skipped: a branch would cost a copy of the buffer under `vmap` over seeds.
        q = jax.tree.map(lambda new, old: jnp.where(ready, new, old), q, state.q)
        loss, value = jax.tree.map(jnp.mean, seen)
        epsilon, noise = self.epsilon(env_steps), state.noise
        metrics = {"loss": loss, "value": value, "epsilon": epsilon}
        if noise is not None:
            key_rows, key_noise = jax.random.split(key_for(key, NOISE))
            rows, _, _ = replay.sample(key_rows, self.config.batch, beta)
            ended = jnp.any(rollout.terminated | rollout.truncated)
            noise = adapted(noise, q.online, rows.obs, epsilon, ended, key_noise)
            metrics["sigma"] = noise.sigma
        return DQNState(q, self._average(state, q.online, env_steps), env_steps, replay, noise), metrics

    def _transitions(self, rollout: Rollout) -> Transitions:
        """One row a step. The network is stationary: a clock, where there is one, is part of the observation."""
        rows = Transitions(
            rollout.obs, rollout.action, jnp.zeros_like(rollout.action), rollout.reward, rollout.next_obs,
            rollout.terminated,
        )  # fmt: skip
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)
