"""UpdateModelSet of Neural-E³ (section 4.1): N_update gradient steps per member, each on its own minibatches."""

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from e3rl.draws import scan_drawn
from e3rl.models.base import AbstractDynamics
from e3rl.models.dice import Scout
from e3rl.models.ensemble import Ensemble
from e3rl.models.repulsion import closeness, foretell, foretell_all, strangers
from e3rl.replay import Replay, Transitions
from e3rl.runs.settings import Settings, setting
from e3rl.types import Key, Keys, key_for

Repelled: TypeAlias = tuple[Transitions, Float[Array, "E B D"]] | None
"""Inputs on which members are pushed apart, and what each of them says there."""


class ModelSet(NamedTuple):
    """M_t with what its training carries along."""

    members: Ensemble
    anchor: Ensemble
    """Where each member started: its own draw from the prior, towards which it is pulled."""
    optimiser: optax.OptState
    scout: Scout | None = None
    """Who tells which entries of observations are dice; None where all are taken as they are."""
    unsmoothed: Ensemble | None = None
    """The members as the last update left them, from which training goes on, where those that are asked are averages
    over the last updates."""

    def shown(self, replay: Replay) -> Replay:
        """Experience as the models and their values learn from it."""
        return replay if self.scout is None else replay._replace(blurred=self.scout.dice.blurred())

    def heeding(self) -> "ModelSet":
        """The same, its members looking only at entries of observations that tell something."""
        if self.scout is None:
            return self
        telling = self.scout.dice.telling

        def heed(members: Ensemble) -> Ensemble:
            entries = jnp.broadcast_to(telling, (jax.tree.leaves(members)[0].shape[0], *telling.shape))
            return eqx.tree_at(lambda members: members.heeds, members, entries, is_leaf=lambda x: x is None)

        unsmoothed = None if self.unsmoothed is None else heed(self.unsmoothed)
        return self._replace(members=heed(self.members), unsmoothed=unsmoothed)


@dataclass(frozen=True)
class Fit(Settings):
    """The ensemble and how it is fitted."""

    members: int = setting(5, 'E of section 4.1 (App. C.1: "Ensemble Size")', at_least=1)
    updates: int = setting(
        200, 'N_update of section 4.1 (App. C.1: "Model Updates per Epoch")', at_least=1, in_turn=True
    )
    batch: int = setting(
        64,
        "Transitions (or segments) per member and update. The paper's minibatch of 100 is split over its 5 members",
        at_least=1,
    )
    unroll: int = setting(
        1, "K of App. B.1: steps that a model is unrolled on its own predictions while fitted", at_least=1
    )
    learning_rate: float = setting(2e-3, 'Adam\'s step (App. C.1 to C.3: "Learning Rate")', above=0)
    gradient_clip: float = setting(10.0, "Largest global norm of a member's gradient", above=0)
    prior_weight: float = setting(
        0.1,
        "Pull of each member towards its own initial weights, per observation entry that the loss adds up. 0 is plain "
        "maximum likelihood; with 1 each member's weights are about a draw from the posterior under the prior that "
        "drew its initial weights (anchored ensembles); more favours the prior",
    )
    recent_share: float = setting(
        0.0,
        "Chance that a training example comes from the last epoch (App. B.1: ½ for deterministic environments)",
        at_most=1,
    )
    ending_share: float = setting(
        0.0,
        "Chance that a training example is one (or a segment contains one) on which an episode terminated. These are "
        "rare and decide everything where the reward is at the end",
        at_most=1,
    )

    reward_units: bool = setting(
        False,
        "Models and values see rewards divided by the largest one seen so far: learning rates, clips and the weight of "
        "a reward beside an observation then mean the same whatever an environment pays",
        before=False,
    )

    finishing: int = setting(
        0,
        "Further updates when exploration is over, at a third of the learning rate, before anyone exploits",
        before=0,
        in_turn=True,
    )

    smoothing: float = setting(
        0.0,
        "Members are asked by their weights' average over this share of an epoch's updates, the last ones, in which "
        "the noise of minibatches evens out, and with it most disagreement about what is known; 0 asks the last",
        at_most=1,
        before=0.0,
    )

    dice: bool = setting(
        False,
        "Entries of observations that nothing foretells, or that foretell nothing, are recognised by one more network "
        "and shown to models and values as dice; otherwise they are remembered, and disagreed about. For families "
        "whose loss is by entry (bernoulli), learning step by step between episodes",
        before=False,
    )

    repulsion: float = setting(
        0.0,
        "Members are pushed apart on states, times and actions that were not seen together, with the weight of so many "
        "transitions; 0 leaves it to their initial weights",
        before=0.0,
    )

    def optimiser(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.gradient_clip), optax.adam(self.learning_rate))


def make_model_set(members: Ensemble, settings: Fit) -> ModelSet:
    state = eqx.filter_vmap(settings.optimiser().init)(eqx.filter(members, eqx.is_inexact_array))
    return ModelSet(members, members, state, unsmoothed=members if settings.smoothing > 0.0 else None)


def update_model_set(
    models: ModelSet, replay: Replay, key: Key, settings: Fit, terms: int = 1
) -> tuple[ModelSet, Float[Array, ""]]:
    """Algorithm 1, line 8: returns M_{t+1} and the mean loss over its last updates. The loss adds up `terms` entries of
    an observation, by which the prior's weight is multiplied; those that are dice do not count."""
    optimiser = settings.optimiser()
    examples = jnp.maximum(replay.size, 1).astype(jnp.float32)
    shares = settings.recent_share, settings.ending_share
    weight: float | Array = settings.prior_weight * terms
    counted: float | Array = 1.0
    if models.scout is not None:
        counted = jnp.any(models.scout.dice.foretold, axis=0).astype(jnp.float32)
        weight = settings.prior_weight * jnp.maximum(jnp.sum(counted), 1.0)
        replay = models.shown(replay)

    def draw(given: tuple[Key, Bool[Array, ""]]) -> tuple[Key, Keys, Int[Array, "E B"], Bool[Array, ""]]:
        """For one update every member's key, and the rows with which its examples begin."""
        key, counts = given
        keys = jax.random.split(key, jax.tree.leaves(models.members)[0].shape[0])
        first = jax.vmap(lambda key: replay.draw(key, settings.batch, settings.unroll, *shares))(keys)
        return key, keys, first, counts

    def objective(
        member: Ensemble, anchor: Ensemble, repelled: Repelled, key: Key, first: Int[Array, " B"]
    ) -> tuple[Array, Array]:
        key_loss = jax.random.fold_in(key, 1)
        if settings.unroll == 1:
            rows = replay.shown(first)
            keys = jax.random.split(key_loss, settings.batch)
            nll = jnp.mean(jax.vmap(member.loss)(rows.obs, rows, keys)[0])
        else:
            nll = unrolled_loss(member, *replay.segments(first, settings.unroll), key_loss)
        loss = nll
        if settings.prior_weight > 0.0:
            loss += weight / examples * _distance_to_anchor(member, anchor)
        if repelled is not None:
            unseen, others = repelled
            loss += settings.repulsion / examples * closeness(foretell(member, unseen, counted), others)
        return loss, nll

    def repel(members: Ensemble, key: Key) -> Repelled:
        """Inputs that were not seen, and what each member says of them."""
        if settings.repulsion == 0.0:
            return None
        key_rows, key_strangers = jax.random.split(key_for(key, "repulsion"))
        unseen = strangers(replay.sample(key_rows, settings.batch), key_strangers)
        return unseen, foretell_all(members, unseen, counted)

    def update_member(
        member: Ensemble,
        anchor: Ensemble,
        state: optax.OptState,
        key: Key,
        first: Int[Array, " B"],
        repelled: Repelled,
    ) -> tuple:
        gradient_of = eqx.filter_value_and_grad(objective, has_aux=True)
        (_, nll), gradient = gradient_of(member, anchor, repelled, key, first)
        with jax.numpy_dtype_promotion("standard"):  # Adam raises its decay to a whole number of updates
            change, state = optimiser.update(gradient, state)
        return eqx.apply_updates(member, change), state, nll

    def update(carry: tuple, inputs: tuple) -> tuple:
        members, state, total = carry
        key, keys, first, counts = inputs
        each = eqx.filter_vmap(update_member, in_axes=(*[eqx.if_array(0)] * 5, None))
        members, state, nll = each(members, models.anchor, state, keys, first, repel(members, key))
        if total is not None:
            weights = eqx.filter(members, eqx.is_inexact_array)
            total = jax.tree.map(lambda sum_, weight: sum_ + jnp.where(counts, weight, 0.0), total, weights)
        return (members, state, total), jnp.mean(nll)

    smoothed = max(1, round(settings.smoothing * settings.updates))
    start, total = models.members, None
    if models.unsmoothed is not None:
        start = models.unsmoothed
        total = jax.tree.map(jnp.zeros_like, eqx.filter(start, eqx.is_inexact_array))
    inputs = (
        jax.random.split(key, settings.updates),
        jnp.arange(settings.updates) >= settings.updates - smoothed,
    )
    losses: Array
    (members, state, total), losses = scan_drawn(update, draw, (start, models.optimiser, total), inputs)
    models = models._replace(members=members, optimiser=state)
    if total is not None:
        average = eqx.combine(jax.tree.map(lambda weight: weight / smoothed, total), members)
        models = models._replace(members=average, unsmoothed=members)
    return models, jnp.mean(losses[-20:])


def finish_model_set(models: ModelSet, replay: Replay, key: Key, settings: Fit, terms: int = 1) -> ModelSet:
    """The models that are exploited: what fluctuates while they follow new experience is smoothed out."""
    if settings.finishing == 0:
        return models
    # A minibatch like the data: endings shown more often than they happen would be expected too often.
    slower = dataclasses.replace(
        settings,
        updates=settings.finishing,
        learning_rate=settings.learning_rate / 3,
        recent_share=0.0,
        ending_share=0.0,
        finishing=0,
    )
    return update_model_set(models, replay, key, slower, terms)[0]


def unrolled_loss(
    member: AbstractDynamics, rows: Transitions, valid: Bool[Array, "B K"], key: Key
) -> Float[Array, ""]:
    """The loss of App. B.1, (1/K) Σ_j ‖s_{i+j+1} − M(s̃_{i+j}, a_{i+j})‖² for deterministic dynamics, in the mean over
    segments: s̃_i = s_i and after that the model's own prediction, with gradients through the unroll. The paper does not
    divide by K; here it is, so that learning rate, clip and prior mean the same at every K.

    The gradient of the weights is taken over all steps at once, a fifth faster than one that grows step by step: the
    unroll says where each step starts and how the loss changes with where it led, Σ_j ∂loss_j / ∂s̃_{i+j}, and with both
    held fixed the steps are independent. First derivatives are exact; there are no second ones.
    """
    batch, length = valid.shape
    rows, valid = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), (rows, valid))
    keys = jax.vmap(lambda key: jax.random.split(key, batch))(jax.random.split(key, length))
    fixed = jax.lax.stop_gradient(member)

    def unroll(nudges: Float[Array, "K B *obs"]) -> tuple[Float[Array, ""], Float[Array, "K B *obs"]]:
        """The loss when predictions are moved by `nudges`, and where the steps start."""

        def step(imagined: Float[Array, "..."], inputs: tuple) -> tuple:
            row, counts, key, nudge = inputs
            # Past its episode's end a segment goes on from real observations, lest what is masked grow without bound.
            start = jax.vmap(jnp.where)(counts, imagined, row.obs)
            losses, means = jax.vmap(fixed.loss)(start, row, key)
            return means + nudge, (jnp.where(counts, losses, 0.0), start)

        losses: Array
        starts: Array
        _, (losses, starts) = jax.lax.scan(step, rows.obs[0], (rows, valid, keys, nudges))
        return jnp.sum(losses) / (batch * length), starts

    change, starts = jax.lax.stop_gradient(jax.grad(unroll, has_aux=True)(jnp.zeros_like(rows.obs)))
    every = jax.tree.map(lambda leaf: leaf.reshape(length * batch, *leaf.shape[2:]), (starts, rows, keys))
    losses, means = member.losses(*every)
    later = jnp.sum(change.reshape(means.shape) * means)
    loss = jnp.sum(jnp.where(valid.reshape(-1), losses, 0.0)) / (batch * length)
    return loss + later - jax.lax.stop_gradient(later)


def _distance_to_anchor(member: Ensemble, anchor: Ensemble) -> Float[Array, ""]:
    """½ Σ ((θ − θ₀) / σ)², minus the log of a Gaussian prior centred on the member's own starting point."""
    weights = [eqx.filter(each, eqx.is_inexact_array) for each in (member, anchor, anchor.prior_deviation())]
    terms = jax.tree.map(lambda w, w0, sd: jnp.sum(((w - w0) / sd) ** 2), *weights)
    return 0.5 * jax.tree.reduce(jnp.add, terms)
