"""Does the members' disagreement tell what was tried from what was not, and where the models are wrong?

Ensembles of every family learn from the same episodes of worlds that are known, in which one action of every state is
withheld. After some of the episodes, every (state, action) is asked for: the disagreement of the members, how far
their mean is from the truth, and how often it was tried.
"""

import dataclasses
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import known_worlds
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from known_worlds import World
from scipy.stats import rankdata

from e3rl.envs.spec import Spec, spec_of
from e3rl.models import FAMILIES
from e3rl.models.base import AbstractFamily, Prediction
from e3rl.models.bernoulli import Bernoulli
from e3rl.models.conv import Conv
from e3rl.models.ensemble import Ensemble, predict
from e3rl.models.factored import Factored
from e3rl.models.fit import ModelSet
from e3rl.models.mdn import Mdn
from e3rl.models.mlp import Mlp
from e3rl.models.tiles import Tiles
from e3rl.models.vae import Vae
from e3rl.neural.config import Explore, NeuralE3Config
from e3rl.neural.presets import PRESETS
from e3rl.neural.slots import OneSeed
from e3rl.planners import UTILITIES
from e3rl.planners.utility import AbstractUtility
from e3rl.replay import Replay
from e3rl.types import Key, Trajectory, key_for

Measures: TypeAlias = dict[str, dict[str, float | None]]

ROOMS = {"size": 9, "steps": 40, "slip": 0.1, "episodes": [5, 10, 30, 100], "updates": 200, "batch": 64}
CONFIG: dict = {
    "unit": "means over seeds, after each number of episodes: AUROC of disagreement between untried and tried (state, "
    "action) pairs; Spearman correlation of disagreement with the distance of the members' mean from the truth; mean "
    "disagreement on pairs tried at least `often` times, and on untried ones; ours_s is the time of a seed",
    "columns": ["auroc", "spearman", "well_tried", "untried"],
    "worlds": ["lock", "rooms-category", "rooms-coordinates", "rooms-image"],
    "seeds": [200, 201, 202],
    "members": 5,
    "episodes_per_epoch": 5,
    "often": 10,
    "probes": 16,
    "priors": [0.0, 0.1, 0.23],
    "lock": {"horizon": 10, "coins": [10, 30], "episodes": [10, 30, 100, 300], "updates": 100, "batch": 64},
    "rooms": ROOMS,
    "images": {**ROOMS, "size": 7, "updates": 100, "batch": 16},
}

QUICK = {
    "worlds": ["rooms-category"],
    "seeds": [200],
    "rooms": {**ROOMS, "episodes": [5, 10]},
}


class Variant(NamedTuple):
    """Models that learn, and what about."""

    name: str
    config: NeuralE3Config
    build: Callable[[int], World]
    """Makes the world of a seed."""
    episodes: list[int]


class Questions(NamedTuple):
    """Every state in which one can act, and for each action there the true answer."""

    obs: Float[np.ndarray, "probes S *obs"]
    """What a state may look like: its coins thrown several times."""
    time: Int[np.ndarray, " S"]
    next_obs: Float[np.ndarray, "S A *predicted"]
    """The mean of what comes, in the form in which the family predicts it."""
    reward: Float[np.ndarray, "S A"]


class Answers(NamedTuple):
    """For every (state, action), in the mean over its looks."""

    disagreement: dict[str, Float[Array, "S A"]]
    """By utility."""
    error: Float[Array, "S A"]
    """How far the members' mean is from the truth, by `Marginal` for chances and by `Squared` for numbers."""


def auroc(score: Float[np.ndarray, " n"], positive: Bool[np.ndarray, " n"]) -> float | None:
    """The chance that a positive scores above a negative, a tie counting half; None without both."""
    found, others = int(positive.sum()), int((~positive).sum())
    if found == 0 or others == 0:
        return None
    return float((rankdata(score)[positive].sum() - found * (found + 1) / 2) / (found * others))


def spearman(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float | None:
    """The correlation of their ranks, ties sharing theirs; None where one of them is constant."""
    ranks = rankdata(x), rankdata(y)
    if min(map(np.ptp, ranks)) == 0.0:
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def suiting(config: NeuralE3Config) -> dict[str, AbstractUtility]:
    """The utilities for this family. They weigh rewards as its settings do."""
    return {
        name: utility(reward_scale=config.utility.reward_scale)
        for name, utility in UTILITIES.items()
        if config.model.of_probabilities or not utility.of_probabilities
    }


def questions(world: World, family: AbstractFamily, probes: int, seed: int) -> Questions:
    thrown = np.random.default_rng(seed).integers(2, size=(probes, *world.shown.shape))
    looks = np.where(world.coins, thrown, world.shown) if world.coins.any() else world.shown[None]
    shown = world.shown
    if isinstance(family, Tiles):
        shown = np.eye(family.categories)[np.round(shown / family.unit).astype(int)]
    time = np.zeros(len(shown), int) if world.level is None else world.level
    comes = np.tensordot(world.chance, shown, axes=1)
    live = world.live
    return Questions(looks[:, live], time[live], comes[live], world.reward[live])


@eqx.filter_jit
def ask(members: Ensemble, asked: Questions, utilities: dict, distance: AbstractUtility) -> Answers:
    def one(obs: Array, time: Array, action: Array, next_obs: Array, reward: Array) -> Answers:
        predicted = predict(members, obs, action, time)
        beside = Prediction(
            jnp.stack([jnp.mean(predicted.obs, axis=0), next_obs]),
            jnp.stack([jnp.mean(predicted.reward), reward]),
            jnp.zeros(2),
        )
        apart = {name: utility.disagreement(predicted) for name, utility in utilities.items()}
        return Answers(apart, distance.disagreement(beside))

    actions = jnp.arange(asked.reward.shape[1])
    by_action = jax.vmap(one, in_axes=(None, None, 0, 0, 0))
    by_state = jax.vmap(by_action, in_axes=(0, 0, None, 0, 0))
    answers = jax.lax.map(
        lambda obs: by_state(obs, asked.time, actions, asked.next_obs, asked.reward), asked.obs
    )
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), answers)


def measures(answers: Answers, tried: Int[np.ndarray, "S A"]) -> Measures:
    """By utility: what is reported after some of the episodes."""
    count, error = (np.asarray(x).reshape(-1) for x in (tried, answers.error))
    often, never = count >= CONFIG["often"], count == 0

    def mean_of(values: np.ndarray, which: np.ndarray) -> float | None:
        return float(values[which].mean()) if which.any() else None

    found = {}
    for name, apart in answers.disagreement.items():
        apart = np.asarray(apart).reshape(-1)
        found[name] = {
            "auroc": auroc(apart, never),
            "spearman": spearman(apart, error),
            "well_tried": mean_of(apart, often),
            "untried": mean_of(apart, never),
            "error_well_tried": mean_of(error, often),
            "error_untried": mean_of(error, never),
            "share_untried": float(never.mean()),
        }
    return found


@eqx.filter_jit
def epoch(
    spec: Spec,
    config: NeuralE3Config,
    models: ModelSet,
    replay: Replay,
    episodes: Trajectory,
    key: Key,
    t: Array,
) -> tuple[ModelSet, Replay]:
    replay = replay.append(episodes)
    return OneSeed(spec, config).update_models(models, replay, key, t)[0], replay


def learn(variant: Variant, seed: int) -> list[Measures]:
    """What is found after each number of episodes."""
    world, key, config = variant.build(seed), jax.random.key(seed), variant.config
    spec, utilities = spec_of(world.env), suiting(config)
    distance = utilities["marginal" if config.model.of_probabilities else "squared"]
    asked = questions(world, config.model, CONFIG["probes"], seed)
    episodes = world.episodes(key_for(key, "play"), variant.episodes[-1])
    models, _, replay = eqx.filter_jit(OneSeed(spec, config).fresh)(key)
    found = []
    for t in range(config.explore.epochs(spec.horizon)):
        before, after = (config.explore.per_epoch * epochs for epochs in (t, t + 1))
        models, replay = epoch(
            spec, config, models, replay, _part(episodes, before, after), key, jnp.array(t)
        )
        if after in variant.episodes:
            answers = ask(models.members, asked, utilities, distance)
            found.append(measures(answers, world.tried(_part(episodes, 0, after))[world.live]))
    return found


def _part(episodes: Trajectory, first: int, end: int) -> Trajectory:
    return jax.tree.map(lambda leaf: leaf[first:end], episodes)


def variants() -> list[Variant]:
    wanted = tuple(CONFIG["worlds"])
    return [variant for variant in (*_locks(), *_rooms()) if variant.name.startswith(wanted)]


def _locks() -> Iterator[Variant]:
    """Bernoulli models by coins that are shown, weight of the prior, and whether dice are recognised."""
    size = CONFIG["lock"]
    for coins, prior, dice in itertools.product(size["coins"], CONFIG["priors"], (False, True)):
        name = f"lock-h{size['horizon']}-coins{coins}/bernoulli-prior{prior:g}{'-dice' if dice else ''}"
        config = _settings("e3rl", Bernoulli(), size, prior_weight=prior, dice=dice)
        world = partial(known_worlds.lock, horizon=size["horizon"], coins=coins)
        yield Variant(name, config, world, size["episodes"])


def _rooms() -> Iterator[Variant]:
    """Every other family on what it is for, with the settings that it comes with."""
    numbers, image = ("coordinates", "e3rl-numbers", "rooms"), ("image", "e3rl-image", "images")
    for (observation, preset, sizes), model in (
        (("category", "e3rl-categories", "rooms"), Factored()),
        (numbers, Mlp()),
        (numbers, Mdn()),
        (numbers, Vae()),
        (image, Conv()),
        (image, Vae()),
        (("image", "e3rl-tiles", "images"), Tiles(categories=2, unit=1.0)),
    ):
        size = CONFIG[sizes]
        options = {name: size[name] for name in ("size", "steps", "slip")}
        world = partial(known_worlds.rooms, observation=observation, **options)
        name = f"rooms-{observation}/{FAMILIES.name_of(type(model))}"
        yield Variant(name, _settings(preset, model, size), world, size["episodes"])


def _settings(preset: str, model: AbstractFamily, size: dict, **fit: Any) -> NeuralE3Config:
    base = PRESETS[preset]
    fit |= {"members": CONFIG["members"], "updates": size["updates"], "batch": size["batch"], "unroll": 1}
    return dataclasses.replace(
        base,
        explore=Explore(ratio=0, episodes=size["episodes"][-1], per_epoch=CONFIG["episodes_per_epoch"]),
        model=model,
        fit=dataclasses.replace(base.fit, **fit),
    )


def rows() -> list[dict]:
    chosen = variants()
    return [row for i, variant in enumerate(chosen) for row in rows_of(variant, f"{i + 1}/{len(chosen)}")]


def rows_of(variant: Variant, place: str) -> Iterator[dict]:
    """A row for each utility, with the means over seeds and what they are of."""
    by_seed, taken = [], []
    for seed in CONFIG["seeds"]:
        began = time.perf_counter()
        by_seed.append(learn(variant, seed))
        taken.append(time.perf_counter() - began)
        print(f"calibration {place} {variant.name} seed {seed}: {taken[-1]:.1f} s", file=sys.stderr)
    for utility, measured in by_seed[0][0].items():
        row: dict[str, Any] = {
            "name": f"calibration/{variant.name}/{utility}",
            "ours_s": statistics.median(taken),
            "yardstick": None,
            "yardstick_s": None,
            "ratio": None,
            "episodes": variant.episodes,
        }
        for measure in measured:
            each = [[point[utility][measure] for point in points] for points in by_seed]
            row[measure] = [_mean(values) for values in zip(*each, strict=True)]
            row[f"{measure}_by_seed"] = each
        yield row


def _mean(values: tuple[float | None, ...]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if there else None
