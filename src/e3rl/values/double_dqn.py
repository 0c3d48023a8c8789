"""Offline double DQN on the replay buffer (section 4.3): no further episodes, one `lax.scan`."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from e3rl.models.base import Problem
from e3rl.replay import Replay, Transitions
from e3rl.runs.settings import Settings, setting
from e3rl.types import Key
from e3rl.values.update import QState, QStep, fresh_value, update_q


@dataclass(frozen=True)
class DqnFit(Settings):
    """How the offline DQN is trained."""

    updates: int = setting(
        15_000,
        "Gradient steps (200,000 on the lock in the paper's code; App. C.3: 750,000)",
        at_least=1,
        in_turn=True,
    )
    batch: int = setting(100, "Transitions per gradient step", at_least=1)
    learning_rate: float = setting(1e-3, 'Adam\'s step ("Learning Rate" in the tables)', above=0)
    decay: bool = setting(False, "Let the learning rate fall to a tenth over the updates")
    gradient_clip: float = setting(10.0, "Largest global norm of a gradient", above=0)
    discount: float = setting(0.99, "γ of section 4.3", at_most=1)
    target_period: int = setting(
        1_000, "Updates between copies of the online network to the target network", at_least=1
    )
    huber: float = setting(
        1.0,
        "Errors beyond this count linearly. Where values are large, endings are rare and a small threshold hardly lets "
        "them count",
        above=0,
    )
    clipped: bool = setting(
        False, "Bootstrap by the lesser of the online and the target network's values of the action chosen"
    )
    ending_share: float = setting(
        0.0,
        "Chance that a row of a batch is one on which an episode terminated; 0 draws uniformly",
        at_most=1,
    )
    heads: bool = setting(True, "A last layer of its own for every time step")
    hidden: int = setting(
        64, 'Width of the two hidden layers ("Hidden Layer Size" in the tables)', at_least=1
    )

    def step(self) -> QStep:
        return QStep(
            learning_rate=self.learning_rate,
            gradient_clip=self.gradient_clip,
            target_period=self.target_period,
            huber=self.huber,
            decay=self.updates if self.decay else 0,
        )

    def fresh(self, problem: Problem, key: Key) -> QState:
        """The value before any training."""
        return fresh_value(problem, self.hidden, self.heads, self.step(), key)


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
    state: QState, replay: Replay, key: Key, settings: DqnFit, updates: int
) -> tuple[QState, Float[Array, ""]]:
    """`updates` double DQN steps; the mean loss of the last ones."""
    step = settings.step()

    def update(state: QState, key: Key) -> tuple[QState, Float[Array, ""]]:
        rows = replay.sample(key, settings.batch, ending_share=settings.ending_share)
        taken = jax.nn.one_hot(rows.action, state.online.actions)
        targets = double_q_targets(state, rows, settings.discount, settings.clipped)[:, None] * taken
        return update_q(state, rows.obs, rows.time, targets, taken, step)

    state, losses = jax.lax.scan(update, state, jax.random.split(key, updates))
    return state, jnp.mean(losses[-100:])
