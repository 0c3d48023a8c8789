"""Which entries of an observation are dice: nothing foretells them, or they foretell nothing.

A network that has seen little remembers dice: each member of an ensemble finds other rules in them, and it is mostly
those that the members disagree about. So a scout, a further network of the same family, foretells every new episode
before anybody learns from it. An entry that it foretells no better than the entry's mean does is not foretold; an entry
that can be exchanged for another transition's without the scout getting worse tells nothing. Models and values are
fitted to transitions in which entries that tell nothing are exchanged, and entries that are not foretold are replaced
by their mean (`Replay.sample`).

The scout itself is fitted to experience as it is, so an entry that begins to matter is seen to. Half of its inputs are
exchanged and its weights decay, which keeps it from remembering dice: it is a bad model and a good judge.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from e3rl.models.base import AbstractDynamics
from e3rl.replay import Blurred, Replay, Transitions
from e3rl.types import Key

UPDATES, BATCH, RATE, DECAY, EXCHANGED = 50, 64, 2e-3, 1.0, 0.5
"""Of the scout: updates an epoch, transitions in each, Adam's step, decay of the weights, share of inputs exchanged."""
MEMORY = 500.0
"""Transitions after which what was counted before weighs a third."""
ENOUGH = 50.0
"""Transitions before which every entry is taken to matter."""
SURE = 1.5
"""Standard errors by which a mean has to be above zero to count."""
LARGEST = 5.0
"""Losses of an entry count up to this: a scout that was sure and wrong once should not decide everything."""


class Dice(NamedTuple):
    """What was counted so far. Sums forget; those of the entries' means do not."""

    counted: Float[Array, ""]
    gain: Float[Array, "2 D"]
    """Sums, and sums of squares, of how much better the scout foretold an entry than its mean did."""
    worth: Float[Array, "2 D"]
    """The same of how much worse it foretold without an entry."""
    seen: Float[Array, ""]
    total: Float[Array, " D"]
    """Of the entries after each transition."""

    @staticmethod
    def unseen(entries: int) -> "Dice":
        none, both = jnp.array(0.0), jnp.zeros((2, entries))
        return Dice(none, both, both, none, jnp.zeros(entries))

    @property
    def mean(self) -> Float[Array, " D"]:
        """Of every entry, drawn to a half as if by one transition more."""
        return (self.total + 0.5) / (self.seen + 1.0)

    @property
    def foretold(self) -> Bool[Array, " D"]:
        return self._matters(self.gain)

    @property
    def telling(self) -> Bool[Array, " D"]:
        return self._matters(self.worth)

    def _matters(self, sums: Float[Array, "2 D"]) -> Bool[Array, " D"]:
        count = jnp.maximum(self.counted, 1.0)
        mean, square = sums / count
        error = jnp.sqrt(jnp.maximum(square - mean**2, 0.0) / count)
        return (self.counted < ENOUGH) | (mean > SURE * error)

    def blurred(self) -> Blurred:
        return Blurred(~self.telling, ~self.foretold, self.mean)


class Scout(NamedTuple):
    member: AbstractDynamics
    optimiser: optax.OptState
    dice: Dice

    @staticmethod
    def fresh(member: AbstractDynamics, entries: int) -> "Scout":
        return Scout(member, _optimiser().init(eqx.filter(member, eqx.is_array)), Dice.unseen(entries))

    def learned(self, replay: Replay, key: Key, rows: int) -> "Scout":
        """After the last epoch, of at most `rows` transitions: foretold and counted first, learned from then."""
        key_others, key_fit = jax.random.split(key)
        newest, new = replay.newest(rows)
        others = replay.take(replay.draw(key_others, rows)).obs
        return self._replace(dice=watch(self.dice, self.member, newest, new, others))._fitted(replay, key_fit)

    def _fitted(self, replay: Replay, key: Key) -> "Scout":
        def update(carry: tuple, key: Key) -> tuple:
            member, state = carry
            key_rows, key_others, key_which = jax.random.split(key, 3)
            rows = replay.take(replay.draw(key_rows, BATCH))
            others = replay.take(replay.draw(key_others, BATCH)).obs
            exchanged = jax.random.bernoulli(key_which, EXCHANGED, others.shape)
            rows = rows._replace(obs=jnp.where(exchanged, others, rows.obs))

            def loss(member: AbstractDynamics) -> Float[Array, ""]:
                entries, rest = jax.vmap(member.entry_losses)(rows.obs, rows)
                return jnp.mean(jnp.sum(entries, axis=1) + rest)

            gradient = eqx.filter_grad(loss)(member)
            with jax.numpy_dtype_promotion("standard"):  # Adam raises its decay to a whole number of updates
                change, state = _optimiser().update(gradient, state, member)
            return (eqx.apply_updates(member, change), state), None

        start = (self.member, self.optimiser)
        (member, state), _ = jax.lax.scan(update, start, jax.random.split(key, UPDATES))
        return Scout(member, state, self.dice)


def _optimiser() -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(10.0), optax.adamw(RATE, weight_decay=DECAY))


def watch(
    dice: Dice,
    scout: AbstractDynamics,
    rows: Transitions,
    new: Bool[Array, " W"],
    others: Float[Array, "W D"],
) -> Dice:
    """Count how well the scout foretells those `rows` that are new to it; `others` are observations to exchange entries
    with."""

    def foretell(obs: Float[Array, "W D"]) -> tuple[Float[Array, "W D"], Float[Array, " W"]]:
        entries, rest = jax.vmap(scout.entry_losses)(obs, rows)
        return jnp.minimum(entries, LARGEST), jnp.minimum(rest, LARGEST)

    entries, rest = foretell(rows.obs)
    by_mean = jnp.minimum(jax.vmap(scout.mean_losses, in_axes=(None, 0))(dice.mean, rows), LARGEST)
    foretold = dice.foretold.astype(jnp.float32)
    whole = entries @ foretold + rest

    def without(i: Array) -> Float[Array, " W"]:
        changed, rest = foretell(rows.obs.at[:, i].set(others[:, i]))
        return changed @ foretold + rest - whole

    worth = jax.lax.map(without, jnp.arange(rows.obs.shape[1])).T
    weight = new.astype(jnp.float32)[:, None]
    number = jnp.sum(weight)
    keep = jnp.exp(-number / MEMORY)

    def add(sums: Float[Array, "2 D"], found: Float[Array, "W D"]) -> Float[Array, "2 D"]:
        return keep * sums + jnp.stack([jnp.sum(weight * found, axis=0), jnp.sum(weight * found**2, axis=0)])

    return Dice(
        keep * dice.counted + number,
        add(dice.gain, by_mean - entries),
        add(dice.worth, worth),
        dice.seen + number,
        dice.total + jnp.sum(weight * rows.next_obs, axis=0),
    )
