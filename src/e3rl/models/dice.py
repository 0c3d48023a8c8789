"""Which entries of an observation are dice: nothing foretells them, or they foretell nothing.

A network that has seen little remembers dice: each member of an ensemble finds other rules in them, and it is mostly
those that the members disagree about. So a scout, a further network of the same family, foretells every new episode
before anybody learns from it. An entry that it foretells no better than the entry's mean does is not foretold; an entry
that can be exchanged for another transition's without the scout getting worse tells nothing. Models and values do not
look at entries that tell nothing (`heeded`), and are fitted to transitions in which entries that are not foretold are
replaced by their mean (`Replay.sample`).

Some dice come and go with the state (`models/reading.py`): they are foretold better than by their mean. Those that tell
nothing are not foretold either, and where it is asked whether they do, they are thrown again rather than exchanged.

The scout itself is fitted to experience as it is, so an entry that begins to matter is seen to. Half of its inputs are
exchanged and its weights decay, which keeps it from remembering dice: it is a bad model and a good judge.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from e3rl.draws import scan_drawn
from e3rl.models import reading
from e3rl.models.base import DiceTelling
from e3rl.models.reading import Read, Reader
from e3rl.replay import Blurred, Replay, Transitions
from e3rl.types import Key, key_for

UPDATES, BATCH, RATE, DECAY, EXCHANGED = 50, 64, 2e-3, 1.0, 0.5
"""Of the scout: updates an epoch, transitions in each, Adam's step, decay of the weights, share of inputs exchanged."""
MEMORY = 500.0
"""Transitions with an action after which what was counted of it before weighs a third."""
ENOUGH = 50.0
"""Transitions before which every entry is taken to matter."""
SURE = 1.5
"""Standard errors by which a mean has to be above zero to count."""
NEGLIGIBLE = 0.03
"""What an entry may be worth, in units of the loss, and still count as dice."""
SPOILED = 0.25
"""Share of its mean gain below which an entry is not foretold after an action."""
LARGEST = 5.0
"""Losses of an entry count up to this: a scout that was sure and wrong once should not decide everything."""


class Dice(NamedTuple):
    """What was counted so far, by action: one of them may throw dice that the others leave alone. Sums forget; those of
    the entries' means do not."""

    counted: Float[Array, " A"]
    gain: Float[Array, "2 A D"]
    """Sums, and sums of squares, of how much better the scout foretold an entry than its mean after the action did."""
    worth: Float[Array, "2 A D"]
    """The same of how much worse it foretold everything without an entry."""
    seen: Float[Array, " A"]
    total: Float[Array, "A D"]
    """Of the entries after each transition."""
    read: Read
    """How well entries are read off each other."""

    @staticmethod
    def unseen(actions: int, entries: int) -> "Dice":
        none, both = jnp.zeros(actions), jnp.zeros((2, actions, entries))
        return Dice(none, both, both, none, jnp.zeros((actions, entries)), Read.nothing(entries))

    @property
    def mean(self) -> Float[Array, "A D"]:
        """Of every entry after an action, drawn to that after all actions, which is drawn to a half, as if by one
        transition more each."""
        everywhere = (jnp.sum(self.total, axis=0) + 0.5) / (jnp.sum(self.seen) + 1.0)
        return (self.total + everywhere) / (self.seen[:, None] + 1.0)

    @property
    def foretold(self) -> Bool[Array, "A D"]:
        """The entries that are foretold, but after an action that surely spoils it, and but for those that are thrown
        with the state and tell nothing. While none seems to be, all are taken for it: models that had nothing to
        foretell would agree about everything."""
        counted, gain = jnp.sum(self.counted), jnp.sum(self.gain, axis=1)
        mean, error = _mean(self.counted[:, None], self.gain)
        spoiled = mean + SURE * error < SPOILED * _mean(counted, gain)[0]
        spoiled &= self.counted[:, None] >= ENOUGH
        return _some(_matters(counted, gain) & ~(self.read.thrown & ~self.telling) & ~spoiled)

    @property
    def telling(self) -> Bool[Array, " D"]:
        """The entries that tell something, or all of them while none seems to."""
        return _some(_matters(jnp.sum(self.counted), jnp.sum(self.worth, axis=1)))

    def blurred(self) -> Blurred:
        return Blurred(~self.foretold, self.mean)


def _matters(counted: Float[Array, ""], sums: Float[Array, "2 D"]) -> Bool[Array, " D"]:
    """Whether means are surely above zero, or too little was counted to say that they are not, or next to it."""
    mean, error = _mean(counted, sums)
    return (counted < ENOUGH) | (mean > SURE * error) | (mean + error > NEGLIGIBLE)


def _some(found: Bool[Array, "..."]) -> Bool[Array, "..."]:
    """What was found, or everything where nothing was."""
    return found | ~jnp.any(found)


def _mean(counted: Float[Array, "..."], sums: Float[Array, "2 ..."]) -> tuple[Array, Array]:
    """Means and their standard errors."""
    count = jnp.maximum(counted, 1.0)
    mean, square = sums / count
    return mean, jnp.sqrt(jnp.maximum(square - mean**2, 0.0) / count)


class Scout(NamedTuple):
    member: DiceTelling
    optimiser: optax.OptState
    reader: Reader
    reading: optax.OptState
    dice: Dice

    @staticmethod
    def fresh(member: DiceTelling, actions: int, entries: int) -> "Scout":
        state = _optimiser().init(eqx.filter(member, eqx.is_inexact_array))
        reader = Reader.fresh(entries)
        return Scout(member, state, reader, reading.optimiser().init(reader), Dice.unseen(actions, entries))

    def learned(self, replay: Replay, key: Key, rows: int) -> "Scout":
        """After the last epoch, of at most `rows` transitions: foretold and counted first, learned from then."""
        key_others, key_fit = jax.random.split(key)
        newest, new = replay.newest(rows)
        others = replay.take(replay.draw(key_others, rows)).obs
        chances = self.reader(newest.obs)
        again = jax.random.bernoulli(key_for(key, "thrown again"), chances).astype(chances.dtype)
        others = jnp.where(self.dice.read.open, again, others)
        dice = watch(self.dice, self.member, self.reader, newest, new, others)
        return self._replace(dice=dice)._fitted(replay, key_fit)

    def _fitted(self, replay: Replay, key: Key) -> "Scout":
        def draw(key: Key) -> tuple[Int[Array, " B"], Int[Array, " B"], Bool[Array, "B D"]]:
            """For one update the rows, others, and which of their entries are exchanged."""
            key_rows, key_others, key_which = jax.random.split(key, 3)
            shape = (BATCH, *replay.rows.obs.shape[1:])
            exchanged = jax.random.bernoulli(key_which, EXCHANGED, shape)
            return replay.draw(key_rows, BATCH), replay.draw(key_others, BATCH), exchanged

        def update(carry: tuple, drawn: tuple) -> tuple:
            member, state, reader, read = carry
            index, index_others, exchanged = drawn
            rows, others = replay.take(index), replay.take(index_others).obs
            rows = rows._replace(obs=jnp.where(exchanged, others, rows.obs))

            def loss(member: DiceTelling) -> Float[Array, ""]:
                entries, rest = jax.vmap(member.entry_losses)(rows.obs, rows)
                return jnp.mean(jnp.sum(entries, axis=1) + rest)

            gradient, misread = eqx.filter_grad(loss)(member), jax.grad(Reader.loss)(reader, rows.next_obs)
            with jax.numpy_dtype_promotion("standard"):  # Adam raises its decay to a whole number of updates
                change, state = _optimiser().update(gradient, state)
                correction, read = reading.optimiser().update(misread, read, reader)
            member = eqx.apply_updates(_decayed(member, gradient), change)
            return (member, state, eqx.apply_updates(reader, correction), read), None

        start = (self.member, self.optimiser, self.reader, self.reading)
        (member, optimiser, reader, state), _ = scan_drawn(
            update, draw, start, jax.random.split(key, UPDATES)
        )
        return Scout(member, optimiser, reader, state, self.dice)


def _optimiser() -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(10.0), optax.adam(RATE))


def _decayed(member: DiceTelling, gradient: DiceTelling) -> DiceTelling:
    """Weights that the minibatch used, a little smaller. The others stay: a minibatch has few of a long episode's time
    steps, and what is known of the rest would be lost before it comes up again."""
    kept = 1.0 - RATE * DECAY
    return jax.tree.map(lambda w, slope: jnp.where(slope != 0.0, kept * w, w), member, gradient)


def watch(
    dice: Dice,
    scout: DiceTelling,
    reader: Reader,
    rows: Transitions,
    new: Bool[Array, " W"],
    others: Float[Array, "W D"],
) -> Dice:
    """Count how well the scout foretells those `rows` that are new to it, and how well their entries are read off each
    other; `others` are observations to exchange entries with."""

    def foretell(obs: Float[Array, "W D"]) -> tuple[Float[Array, "W D"], Float[Array, " W"]]:
        entries, rest = jax.vmap(scout.entry_losses)(obs, rows)
        return jnp.minimum(entries, LARGEST), jnp.minimum(rest, LARGEST)

    entries, rest = foretell(rows.obs)

    def told(means: Float[Array, "W D"]) -> Float[Array, "W D"]:
        return jnp.minimum(jax.vmap(scout.mean_losses)(means, rows), LARGEST)

    by_mean, by_others = told(dice.mean[rows.action]), told(reader(rows.next_obs))
    foretold = dice.foretold[rows.action].astype(jnp.float32)
    whole = jnp.sum(entries * foretold, axis=1) + rest

    def without(i: Array) -> Float[Array, " W"]:
        changed, rest = foretell(rows.obs.at[:, i].set(others[:, i]))
        return jnp.sum(changed * foretold, axis=1) + rest - whole

    worth = jax.lax.map(without, jnp.arange(rows.obs.shape[1])).T
    taken = new.astype(jnp.float32)[:, None] * jax.nn.one_hot(rows.action, dice.seen.shape[0])
    number = jnp.sum(taken, axis=0)
    keep = jnp.exp(-number / MEMORY)

    def add(sums: Float[Array, "2 A D"], found: Float[Array, "W D"]) -> Float[Array, "2 A D"]:
        return keep[:, None] * sums + jnp.stack([taken.T @ found, taken.T @ found**2])

    return Dice(
        keep * dice.counted + number,
        add(dice.gain, by_mean - entries),
        add(dice.worth, worth),
        dice.seen + number,
        dice.total + taken.T @ rows.next_obs,
        dice.read.and_then(new, by_others, by_mean, entries),
    )
