"""Proximal policy optimisation (Schulman et al. 2017), with or without a second stream of intrinsic rewards.

PPO+RND is this same algorithm with a bonus: the critic has one value per reward stream, and the policy follows the
weighted sum of their advantages.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Shaped

from e3rl.baselines.base import AbstractBaseline, BaselineConfig, Metrics, Rollout
from e3rl.baselines.bonus import AbstractBonus, AbstractStream, NoBonus
from e3rl.baselines.gae import advantages, continuing_values
from e3rl.baselines.networks import ActorCritic
from e3rl.baselines.rnd import Rnd
from e3rl.registry import Registry
from e3rl.runs.settings import part, setting
from e3rl.types import Action, Key, UserError

BONUSES: Registry[type[AbstractBonus]] = Registry(
    "bonus",
    "e3rl.bonuses",
    {
        "none": NoBonus,
        "rnd": Rnd,
    },
)


class Choice(NamedTuple):
    """What the policy thought when it acted."""

    log_probability: Float[Array, "*B"]
    value: Float[Array, "*B S"]


class Learned(NamedTuple):
    """Everything gradients reach."""

    network: ActorCritic
    predictor: Any
    """The bonus's trained network, None where there is no bonus."""


class PPOState(NamedTuple):
    learned: Learned
    optimiser: optax.OptState | None
    """None in a policy that is only to act."""
    novelty: Any
    """What the bonus keeps beside it."""


class Samples(NamedTuple):
    """A rollout as PPO learns from it, one step a row."""

    obs: Float[Array, "N *obs"]
    next_obs: Float[Array, "N *obs"]
    action: Int[Array, " N"]
    before: Choice
    advantage: Float[Array, " N"]
    target: Float[Array, "N S"]


def surrogate(
    log_probability: Float[Array, " N"],
    before: Float[Array, " N"],
    advantage: Float[Array, " N"],
    clip: float,
) -> Float[Array, ""]:
    """L^CLIP: −mean min(r Â, clip(r, 1 ± ε) Â), with r the ratio of new to old probability."""
    ratio = jnp.exp(log_probability - before)
    return -jnp.mean(jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage))


def value_error(
    value: Float[Array, "N S"], before: Float[Array, "N S"], target: Float[Array, "N S"], clip: float
) -> Float[Array, ""]:
    """Mean over samples of Σ_streams (V − target)²; with a `clip` above 0 the larger of that and the error of V held
    within ± clip of what it was."""
    error = jnp.square(value - target)
    if clip > 0.0:
        held = before + jnp.clip(value - before, -clip, clip)
        error = jnp.maximum(error, jnp.square(held - target))
    return jnp.mean(jnp.sum(error, axis=-1))


def entropy(logits: Float[Array, "N A"]) -> Float[Array, ""]:
    log_probability = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.sum(jnp.exp(log_probability) * log_probability, axis=-1))


def log_probability(logits: Float[Array, "N A"], action: Int[Array, " N"]) -> Float[Array, " N"]:
    chosen = action[:, None] == jnp.arange(logits.shape[-1])
    return jnp.sum(jnp.where(chosen, jax.nn.log_softmax(logits), 0.0), axis=-1)


@dataclass(frozen=True)
class PPOConfig(BaselineConfig):
    """Every choice of a run. Where the paper has a symbol or a table for it, the field says so."""

    total_steps: int = setting(200_000, "Environment steps of a run, all copies together", at_least=1)
    copies: int = setting(8, "n, environments in parallel", at_least=1)
    steps: int = setting(32, "T, steps of every copy between updates", at_least=1)
    epochs: int = setting(20, "Passes over each rollout", at_least=1)
    minibatches: int = setting(1, "Gradient steps per pass", at_least=1)
    learning_rate: float = setting(1e-3, 'App. C.1 and C.3, PPO+RND: "Learning Rate".', above=0)
    anneal: bool = setting(True, "Let the learning rate fall to 0, linearly over `total_steps`")
    gradient_clip: float = setting(0.5, "Largest norm of a gradient", above=0)
    hidden: int = setting(
        64,
        'Width of the two tanh layers (App. C.1 and C.3: "Hidden Layer Size"); RND\'s networks have the '
        "same width.",
        at_least=1,
    )
    maps: int = setting(16, "Feature maps of the two convolutions that images pass first", at_least=1)
    shared_trunk: bool = setting(False, "One network for policy and values instead of one each")
    input_gain: float = setting(
        16.0,
        "Observations, scaled to [0, 1], are spread over so much. Most use a small part of their range, "
        "as the speeds of Acrobot do, whose bounds are wide.",
        above=0,
    )
    value_gain: float = setting(
        1.0,
        "Scale of the value heads' first weights; with 0 a stream is worth exactly nothing until it has paid",
    )
    discount: float = setting(0.98, "γ, with RND γ_E (App. C.1 and C.3).", at_most=1)
    gae_lambda: float = setting(0.8, "λ (App. C.1 and C.3).", at_most=1)
    clip: float = setting(
        0.2,
        "ε of the clipped surrogate: how far one rollout may move an action's probability ratio from 1",
        above=0,
    )
    value_clip: float = setting(0.0, "How far one rollout may move a value; 0 leaves values free")
    value_coefficient: float = setting(0.5, "Weight of the squared value error in the loss")
    entropy_coefficient: float = setting(0.0, "Weight of the policy's entropy in the loss")
    normalise_advantages: bool = setting(True, "Mean 0 and deviation 1 within every minibatch")
    extrinsic_coefficient: float = setting(
        1.0, 'App. C.1 and C.3: "Extrinsic Reward coefficient", on advantages.'
    )
    bonus: AbstractBonus = part(NoBonus(), BONUSES, "Where intrinsic rewards come from, if there are any")

    def check(self) -> None:
        if self.steps * self.copies % self.minibatches:
            raise UserError(
                f"minibatches must divide a rollout: {self.steps} steps of {self.copies} copies do not split "
                f"into {self.minibatches}"
            )

    def baseline(self) -> "ProximalPolicy":
        return ProximalPolicy(self)


class ProximalPolicy(AbstractBaseline):
    """With a bonus, such as that of RND, the critic has a second value and the policy a second reason."""

    config: PPOConfig = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    copies: int = eqx.field(static=True)
    bonus: AbstractStream | None

    def __init__(self, config: PPOConfig):
        self.config, self.steps, self.copies = config, config.steps, config.copies
        self.bonus = config.bonus.stream(config.hidden, config.maps, config.copies)

    def init(self, key: Key, shape: tuple[int, ...], actions: int) -> PPOState:
        k_network, k_bonus = jax.random.split(key)
        config = self.config
        streams = 1 if self.bonus is None else 2
        network = ActorCritic(
            shape,
            actions,
            streams,
            width=config.hidden,
            maps=config.maps,
            shared=config.shared_trunk,
            value_gain=config.value_gain,
            input_gain=config.input_gain,
            key=k_network,
        )
        predictor, novelty = (None, None) if self.bonus is None else self.bonus.init(k_bonus, shape)
        learned = Learned(network, predictor)
        return PPOState(learned, self._optimiser().init(eqx.filter(learned, eqx.is_array)), novelty)

    def act(self, state: PPOState, key: Key, obs: Shaped[Array, "n *obs"]) -> tuple[Int[Array, " n"], Choice]:
        logits, value = state.learned.network.many(obs.astype(jnp.float32))
        action = jax.random.categorical(key, logits)
        return action, Choice(log_probability(logits, action), value)

    def greedy(self, state: PPOState, key: Key, obs: Shaped[Array, "*obs"], time: Int[Array, ""]) -> Action:
        return jnp.argmax(state.learned.network(obs.astype(jnp.float32))[0])

    def policy(self, state: PPOState) -> PPOState:
        return PPOState(Learned(state.learned.network, None), None, None)

    def learn(self, state: PPOState, key: Key, rollout: Rollout) -> tuple[PPOState, Metrics]:
        """Advantages, then epochs of minibatch steps as one scan."""
        config = self.config
        rollout = rollout._replace(
            obs=rollout.obs.astype(jnp.float32), next_obs=rollout.next_obs.astype(jnp.float32)
        )
        samples, novelty, bonus = self._samples(state, rollout)
        rows = self.steps * self.copies
        samples = jax.tree.map(lambda leaf: leaf.reshape(rows, *leaf.shape[2:]), samples)
        k_order, k_update = jax.random.split(key)
        updates = config.epochs * config.minibatches
        batches = None  # all of them together, in any order
        if config.minibatches > 1:
            orders = jax.random.split(k_order, config.epochs)
            order = jax.vmap(lambda k: jax.random.permutation(k, rows))(orders)
            batches = order.reshape(updates, rows // config.minibatches)

        def update(carry: tuple, inputs: tuple) -> tuple[tuple, Metrics]:
            index, key = inputs
            learned, optimiser = carry
            batch = samples if index is None else jax.tree.map(lambda leaf: leaf[index], samples)
            objective = eqx.filter_grad(self.loss, has_aux=True)
            gradient, metrics = objective(learned, novelty, batch, key)
            with jax.numpy_dtype_promotion("standard"):  # Adam raises its decay to a whole number of updates
                change, optimiser = self._optimiser().update(gradient, optimiser)
            return (eqx.apply_updates(learned, change), optimiser), metrics

        (learned, optimiser), metrics = jax.lax.scan(
            update, (state.learned, state.optimiser), (batches, jax.random.split(k_update, updates))
        )
        metrics = {name: jnp.mean(values) for name, values in metrics.items()}
        return PPOState(learned, optimiser, novelty), metrics | {"bonus": bonus}

    def loss(
        self, learned: Learned, novelty: Any, batch: Samples, key: Key
    ) -> tuple[Float[Array, ""], Metrics]:
        """L^CLIP + c_V · squared value error − c_H · entropy, and the predictor's error where there is one."""
        config = self.config
        logits, value = learned.network.many(batch.obs)
        chosen = log_probability(logits, batch.action)
        advantage = batch.advantage
        if config.normalise_advantages:
            advantage = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
        policy_loss = surrogate(chosen, batch.before.log_probability, advantage, config.clip)
        value_loss = value_error(value, batch.before.value, batch.target, config.value_clip)
        spread = entropy(logits)
        total = policy_loss + config.value_coefficient * value_loss - config.entropy_coefficient * spread
        if self.bonus is not None:
            total = total + self.bonus.loss(learned.predictor, novelty, batch.next_obs, key)
        change = chosen - batch.before.log_probability
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": spread,
            "divergence": jnp.mean(jnp.exp(change) - 1.0 - change),
            "clipped": jnp.mean((jnp.abs(jnp.exp(change) - 1.0) > config.clip).astype(jnp.float32)),
        }
        return total, metrics

    def _samples(self, state: PPOState, rollout: Rollout) -> tuple[Samples, Any, Float[Array, ""]]:
        """Advantages and value targets of every stream; the bonus runs on over the ends of episodes (its return is
        non-episodic), so that reaching something new is worth dying for."""
        config, network, novelty = self.config, state.learned.network, state.novelty
        before: Choice = rollout.extra
        next_value = jax.vmap(network.many)(rollout.next_obs)[1]
        ended = rollout.terminated | rollout.truncated
        streams = [
            advantages(
                rollout.reward, before.value[..., 0], next_value[..., 0], rollout.terminated, rollout.truncated,
                config.discount, config.gae_lambda,
            )
        ]  # fmt: skip
        coefficients = [config.extrinsic_coefficient]
        bonus = jnp.zeros_like(rollout.reward)
        if self.bonus is not None:
            bonus, novelty = self.bonus.reward(state.learned.predictor, novelty, rollout.next_obs)
            start = jnp.concatenate([novelty.ended[None], ended[:-1]])
            value = before.value[..., 1]
            after = continuing_values(value, next_value[..., 1], start, ended)
            never = jnp.zeros_like(ended)
            streams.append(
                advantages(bonus, value, after, never, never, self.bonus.discount, config.gae_lambda)
            )
            coefficients.append(self.bonus.coefficient)
            novelty = novelty._replace(ended=ended[-1])
        each = jnp.stack(streams, axis=-1)
        advantage = jnp.sum(each * jnp.array(coefficients), axis=-1)
        samples = Samples(
            rollout.obs, rollout.next_obs, rollout.action, before, advantage, each + before.value
        )
        return samples, novelty, jnp.mean(bonus)

    def _optimiser(self) -> Any:
        config = self.config
        rate = config.learning_rate
        if config.anneal:
            rollouts = max(1, config.total_steps // (self.steps * self.copies))
            rate = optax.linear_schedule(rate, 0.0, rollouts * config.epochs * config.minibatches)
        return optax.flatten(
            optax.chain(optax.clip_by_global_norm(config.gradient_clip), optax.adam(rate, eps=1e-5))
        )
