"""Outcomes as throws of dice: in most worlds chance works alike in many places, and what it did there tells here.

A die has faces with certain chances, and which face is which outcome differs from place to place. Every state and
action throws either one of a few dice that are shared, or one of its own. All of it is inferred from counts, by
expectation maximisation with every pair judged by the throws of the others.
"""

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

DICE = 4
"""Shared dice at most."""
PAIRS_PER_DIE = 6
"""States and actions for every one of them."""
MOST_FACES = 5
"""All ways to put the outcomes on a die are gone through: 5! are enough."""
CANDIDATES, TELLING, MOST_PAIRS = 20, 120, 4_000
"""States and actions that dice are taken from at first, that tell what dice there are, and beyond which none are looked
for."""
ROUNDS = 6
BLANK = 0.05
"""Throws that every face of a die counts for before the first."""


class Dice(NamedTuple):
    """What was inferred about N states and actions."""

    throws: Float[np.ndarray, "T J"]
    """Of the shared dice, by face."""
    which: Float[np.ndarray, "N TP"]
    """The chance that a pair throws a certain die in a certain way, by die and way; what is left to 1 is the chance
    that it throws its own."""
    ways: Int[np.ndarray, "P J"]
    """Way p puts outcome ways[p, j] on face j."""

    def chances(self, faces: Float[np.ndarray, "T J"]) -> Float[np.ndarray, "T P J"]:
        """What dice with these chances mean for the outcomes, in every way."""
        out = np.empty((len(faces), *self.ways.shape))
        np.put_along_axis(
            out, np.broadcast_to(self.ways, out.shape), np.broadcast_to(faces[:, None], out.shape), axis=2
        )
        return out

    def mean(self, own: Float[np.ndarray, "N J"]) -> Float[np.ndarray, "N J"]:
        """The expected chances, where the own dice's are these."""
        faces = self.throws / self.throws.sum(axis=1, keepdims=True)
        shared = self.which @ self.chances(faces).reshape(-1, own.shape[1])
        return shared + (1.0 - self.which.sum(axis=1, keepdims=True)) * own

    def sample(self, own: Float[np.ndarray, "N J"], rng: np.random.Generator) -> Float[np.ndarray, "N J"]:
        """A draw of the dice and of who throws which, where the draws of the own dice are these."""
        faces = rng.standard_gamma(self.throws)
        options = self.chances(faces / faces.sum(axis=1, keepdims=True)).reshape(-1, own.shape[1])
        drawn = rng.random((len(own), 1)) > np.cumsum(self.which, axis=1)
        index = drawn.sum(axis=1)
        shared = options[np.minimum(index, len(options) - 1)]
        return np.where((index < len(options))[:, None], shared, own)


def infer_dice(count: Float[np.ndarray, "N J"], prior: Float[np.ndarray, "N J"]) -> Dice | None:
    """The dice behind the counts of N states and actions over J outcomes each; own dice are Dirichlet with this prior.
    None where there are too few pairs, or too many outcomes."""
    pairs, faces = count.shape
    size = min(DICE, pairs // PAIRS_PER_DIE)
    if not (0 < faces <= MOST_FACES and size > 0 and pairs <= MOST_PAIRS):
        return None
    ways = np.array(list(itertools.permutations(range(faces))))
    own = _marginal(np.maximum(prior, 1e-9), count)
    # Those that were thrown most tell what dice there are.
    most = np.argsort(-count.sum(axis=1), kind="stable")[:TELLING]
    some, alone = count[most], own[most]
    throws = _first_dice(some, alone, ways, size)
    share = np.full(size + 1, 1.0 / (size + 1))
    aligned = np.zeros((size, len(most), faces))
    for _ in range(ROUNDS):
        others = np.maximum(throws[:, None] - aligned, 0.0) + BLANK  # [T, N, J]: by the throws of the others
        weight = _weigh(others, some, alone, ways, share)
        shared = weight[:, :-1].reshape(len(most), size, -1)
        aligned = np.stack([(shared[:, t, None] @ some[:, ways])[:, 0] for t in range(size)])
        throws = aligned.sum(axis=1)
        taken = np.append(throws.sum(axis=1), some.sum(axis=1) @ weight[:, -1]) + 1.0
        share = taken / taken.sum()
    others = np.broadcast_to(throws[:, None], (size, pairs, faces)).copy()
    others[:, most] -= aligned
    weight = _weigh(np.maximum(others, 0.0) + BLANK, count, own, ways, share)
    return Dice(throws + BLANK, weight[:, :-1], ways)


def _weigh(
    dice: Float[np.ndarray, "T N J"],
    count: Float[np.ndarray, "N J"],
    own: Float[np.ndarray, " N"],
    ways: Int[np.ndarray, "P J"],
    share: Float[np.ndarray, " T_plus_1"],
) -> Float[np.ndarray, "N TP_plus_1"]:
    """The chance that a pair throws a die in a way, or, the last, its own."""
    fits = _fits(dice, count, ways) + np.log(share[:-1] / len(ways))[:, None, None]
    last = (own + np.log(share[-1]))[:, None]
    score = np.concatenate([fits.transpose(1, 0, 2).reshape(len(count), -1), last], axis=1)
    weight = np.exp(score - score.max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)


def _fits(
    dice: Float[np.ndarray, "T N J"], thrown: Float[np.ndarray, "N J"], ways: Int[np.ndarray, "P J"]
) -> Float[np.ndarray, "T N P"]:
    """The log likelihood of what a pair has thrown with a die, for every way to put its outcomes on the faces."""
    put = (
        gammaln(dice[..., None] + thrown[None, :, None, :]) - gammaln(dice)[..., None]
    )  # outcome l on face j
    total, tried = dice.sum(axis=-1), thrown.sum(axis=-1)
    each = np.sum(put[:, :, np.arange(ways.shape[1]), ways], axis=-1)
    return each + (gammaln(total) - gammaln(total + tried))[..., None]


def _marginal(prior: Float[np.ndarray, "N J"], count: Float[np.ndarray, "N J"]) -> Float[np.ndarray, " N"]:
    """The log likelihood of counts whose chances are drawn from a Dirichlet."""
    total = prior.sum(axis=1)
    each = np.sum(gammaln(prior + count) - gammaln(prior), axis=1)
    return each + gammaln(total) - gammaln(total + count.sum(axis=1))


def _first_dice(
    count: Float[np.ndarray, "N J"],
    own: Float[np.ndarray, " N"],
    ways: Int[np.ndarray, "P J"],
    size: int,
) -> Float[np.ndarray, "T J"]:
    """Dice to start from: of those that were thrown most, one after the other, what explains most of the rest."""
    most = np.argsort(-count.sum(axis=1), kind="stable")[:CANDIDATES]
    dice = -np.sort(-count[most], axis=1) + BLANK
    each = np.broadcast_to(dice[:, None], (len(dice), *count.shape))
    fits = _fits(each, count, ways)
    top = fits.max(axis=-1)
    explains = top + np.log(np.mean(np.exp(fits - top[..., None]), axis=-1))
    explains[np.arange(len(most)), most] = -np.inf  # by the throws of the others
    best, chosen = own, []
    for _ in range(size):
        chosen.append(int(np.argmax(np.maximum(explains, best).sum(axis=1))))
        best = np.maximum(best, explains[chosen[-1]])
    return dice[chosen]
