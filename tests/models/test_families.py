"""What every dynamics family promises, on a tiny instance of each."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs.encoding import Encoding, Part
from e3rl.envs.spec import Spec
from e3rl.models import FAMILIES, natural_family, refuse_misfit
from e3rl.models.base import AbstractDynamics, Problem
from e3rl.models.bernoulli import Bernoulli
from e3rl.models.conv import Conv
from e3rl.models.ensemble import make_ensemble, predict
from e3rl.models.factored import Factored
from e3rl.models.mdn import Mdn
from e3rl.models.mlp import Mlp
from e3rl.models.tiles import Tiles
from e3rl.models.vae import Vae
from e3rl.replay import Transitions
from e3rl.types import UserError

ACTIONS, HORIZON, MEMBERS, ROWS = 3, 6, 40, 4
SPACES = {
    "bits": spaces.MultiBinary(4),
    "numbers": spaces.Box(-1.0, 1.0, (4,)),
    "mixed": spaces.Tuple(
        (spaces.MultiBinary(2), spaces.Discrete(3), spaces.Box(0.0, 1.0, (2,)), spaces.Discrete(2))
    ),
    "image": spaces.Box(0.0, 1.0, (5, 6, 2)),
    "black and white": spaces.MultiBinary((5, 6, 2)),
}
ENCODINGS = {name: Encoding(space) for name, space in SPACES.items()}
VARIANTS = {
    "bernoulli": (Bernoulli(hidden=8), "bits", (4,)),
    "bernoulli-input": (Bernoulli(hidden=8, conditioning="input"), "bits", (4,)),
    "mlp": (Mlp(hidden=8), "numbers", (0,)),
    "factored": (Factored(hidden=8), "mixed", (4,)),
    "factored-one-hot": (Factored(hidden=8, one_hot=True), "numbers", (1,)),
    "tiles": (Tiles(hidden=8, maps=4, categories=3, unit=0.5), "image", (5, 6, 2)),
    "mdn": (Mdn(hidden=8, components=3), "numbers", (5,)),
    "conv-dense": (Conv(hidden=8, maps=4, reward_head="dense"), "image", (0,)),
    "conv-pooled": (Conv(hidden=8, maps=4), "image", (0,)),
    "vae": (Vae(hidden=8, latent=2), "numbers", (2,)),
    "vae-image": (Vae(hidden=8, latent=2, maps=4, reward_head="dense"), "image", (2,)),
}
"""The family, what it is made for, and the noise that one draw takes."""
CERTAIN = ("mlp", "conv-pooled")
TIME = jnp.array(2, jnp.int32)
AS_IT_IS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Programs that run two or three times are not worth optimising."""


def problem(name, clock=True):
    return Problem(Spec(name, ENCODINGS[name], ACTIONS, HORIZON), clock)


def everything(variant, key):
    """All that the tests below look at, as one program. Three variants add nothing to some of it and go without."""
    family, made_for, noise = VARIANTS[variant]
    rng = np.random.default_rng(0)
    shape = ENCODINGS[made_for].shape
    columns, uniform = (jnp.array(rng.random(size), jnp.float32) for size in ((*shape, ROWS), (*noise, ROWS)))
    obs, each_uniform = jnp.moveaxis(columns, -1, 0), jnp.moveaxis(uniform, -1, 0)
    action, actions = jnp.array(1, jnp.int32), jnp.array([0, 2, 1, 2], jnp.int32)
    ensemble = make_ensemble(family.make(problem(made_for)), MEMBERS, key)
    model = jax.tree.map(lambda leaf: leaf[0], ensemble)

    # One by one: every observation with one action, then the first with every action.
    alone = jax.lax.map(
        lambda given: model(*given, TIME),
        (
            jnp.concatenate([obs, jnp.broadcast_to(obs[0], (ACTIONS, *shape))]),
            jnp.concatenate([jnp.full(ROWS, action), jnp.arange(ACTIONS, dtype=jnp.int32)]),
        ),
    )
    each_action = jax.tree.map(lambda leaf: leaf[ROWS:], alone)
    alone = jax.tree.map(lambda leaf: leaf[:ROWS], alone)
    ends = jnp.array([True, False, False, True])
    rows = Transitions(obs, actions, jnp.full(ROWS, TIME), jnp.arange(4.0), jnp.round(obs), ends)
    keys = jax.random.split(jax.random.key(0), ROWS)

    def one_by_one(model):
        return jax.vmap(model.loss)(obs, rows, keys)

    def graded(scored, through_means=0.0):
        def total(model):
            losses, means = scored(model)
            return jnp.sum(losses * jnp.arange(1.0, 5.0)) + through_means * jnp.sum(means**2), (losses, means)

        return eqx.filter_value_and_grad(total, has_aux=True)(model)

    found = {
        "ensemble": ensemble,
        "deviation": eqx.filter_vmap(lambda member: member.prior_deviation())(ensemble),
        "alone": alone,
        "each action": each_action,
        "graded": graded(one_by_one),
    }
    if variant in ("bernoulli-input", "conv-dense"):
        return found
    found["drawn alone"] = jax.lax.map(lambda given: model.draw(*given), (alone, each_uniform))
    found["most likely"] = jax.vmap(model.most_likely)(alone)
    if variant == "vae-image":
        return found
    together = model.columns(columns, action, TIME)
    found["members"] = predict(ensemble, obs[0], action, TIME)
    found["columns"] = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), together)
    found["drawn columns"] = jnp.moveaxis(model.draw_columns(together, uniform), -1, 0)
    found["every action"] = model.every_action(obs[0], TIME, ACTIONS)
    if type(model).losses is not AbstractDynamics.losses:
        found["minibatch"] = graded(lambda m: m.losses(obs, rows, keys), 1.0), graded(one_by_one, 1.0)
    else:
        found["minibatch"] = model.losses(obs, rows, keys), found["graded"][0][1]
    return found


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request):
    return request.param


@pytest.fixture(scope="module")
def compiled(variant):
    return jax.jit(lambda key: everything(variant, key), compiler_options=AS_IT_IS)


@pytest.fixture(scope="module")
def found(compiled):
    return compiled(jax.random.key(2))


def close(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), one, other)


def test_columns_are_predictions_side_by_side(variant, found):
    assert found["ensemble"].noise_shape == VARIANTS[variant][2]
    if "columns" in found:
        close(found["columns"], found["alone"])
        close(found["drawn columns"], found["drawn alone"])


def test_every_action_equals_a_loop_over_actions(found):
    each = found["each action"]
    assert each.reward.shape == (ACTIONS,)
    assert len(np.unique(np.round(each.reward, 5))) == ACTIONS
    if "every action" in found:
        close(found["every action"], each)


def test_loss_is_finite_and_moves_every_weight_that_had_a_say(variant, found):
    (_, (losses, means)), gradient = found["graded"]
    assert np.all(np.isfinite(losses))
    assert losses.shape == (ROWS,)
    assert means.shape == found.get("most likely", means).shape
    categories = (VARIANTS[variant][0].categories,) if variant == "tiles" else ()  # have an axis of their own
    assert found["alone"].obs.shape == means.shape + categories
    assert all(np.any(np.asarray(leaf) != 0.0) for leaf in jax.tree.leaves(gradient))
    if variant in CERTAIN:
        np.testing.assert_allclose(means[2], found["alone"].obs[2], atol=1e-5)  # its action is 1
        np.testing.assert_array_equal(found["drawn alone"], found["alone"].obs)
    if "minibatch" in found:  # together as one by one; with its gradient where a family has its own way
        close(*found["minibatch"])


def test_members_differ_and_have_the_prior_deviation(found):
    ensemble, deviation = found["ensemble"], found["deviation"]
    assert jax.tree.structure(deviation) == jax.tree.structure(ensemble)
    for weight, sd in zip(jax.tree.leaves(ensemble), jax.tree.leaves(deviation), strict=True):
        assert weight.shape == sd.shape
        assert len(np.unique(np.reshape(weight, (MEMBERS, -1))[:, 0])) == MEMBERS
        scaled = np.asarray(weight) / np.asarray(sd)
        np.testing.assert_allclose(np.sqrt(np.mean(scaled**2)), 1.0, rtol=4 / np.sqrt(2 * scaled.size))
    if "members" in found:
        predicted = found["members"]
        first, alone = (jax.tree.map(lambda leaf: leaf[0], each) for each in (predicted, found["alone"]))
        close(first, alone)
        assert len(np.unique(np.asarray(predicted.reward))) == MEMBERS
        # A state never seen is not assumed to end the episode.
        assert np.median(predicted.termination) < 0.05


def test_seeds_start_from_different_networks(compiled, found):
    first, second, again = (found, compiled(jax.random.key(1)), compiled(jax.random.key(2)))
    for a, b, c in zip(*(jax.tree.leaves(each["ensemble"]) for each in (first, second, again)), strict=True):
        assert np.mean(np.isclose(a, b)) < 0.01
        np.testing.assert_array_equal(a, c)


# Families as settings: nothing is compiled from here on.


def test_the_problem_is_that_of_the_environment():
    image = problem("image", clock=False)
    assert (image.shape, image.entries, image.actions, image.horizon) == ((5, 6, 2), 60, ACTIONS, HORIZON)
    assert problem("mixed").entries == 2 + 3 + 2 + 2
    assert problem("bits") == problem("bits")  # and so are equal where the environment is
    assert problem("bits") != problem("bits", clock=False)


VECTORS, BITS, IMAGES = "vectors", "binary vectors", "images [height, width, channels], not shape (4,)"


@pytest.mark.parametrize(
    ("name", "refused", "natural"),
    [
        ("bernoulli", {"numbers": BITS, "mixed": BITS, "image": BITS, "black and white": BITS}, {"bits"}),
        ("factored", {"image": VECTORS, "black and white": VECTORS}, {"mixed"}),
        ("mlp", {"image": VECTORS, "black and white": VECTORS}, {"numbers"}),
        (
            "conv",
            {"bits": IMAGES, "numbers": IMAGES, "mixed": IMAGES.replace("4", "9")},
            {"image", "black and white"},
        ),
        ("tiles", {"bits": IMAGES, "numbers": IMAGES, "mixed": IMAGES.replace("4", "9")}, set()),
        ("mdn", {"image": VECTORS, "black and white": VECTORS}, set()),
        ("vae", {}, set()),
    ],
)
def test_what_each_family_is_for(name, refused, natural):
    family = FAMILIES[name]
    refusals = {space: family.refuses(encoding) for space, encoding in ENCODINGS.items()}
    assert {space: why for space, why in refusals.items() if why is not None} == refused
    assert {space for space, encoding in ENCODINGS.items() if family.natural(encoding)} == natural
    assert all(natural_family(ENCODINGS[space]) is family for space in natural)
    assert not natural & set(refused)


def test_categories_alone_are_for_the_factored_family():
    assert natural_family(Encoding(spaces.Discrete(7))) is Factored
    assert natural_family(Encoding(spaces.MultiDiscrete([2, 3]))) is Factored


def test_a_misfit_is_one_line_that_names_a_better_family():
    for family, made_for, _ in VARIANTS.values():
        refuse_misfit(family, ENCODINGS[made_for])
    with pytest.raises(UserError, match=r"family 'bernoulli' is for binary vectors: use 'mlp' for Box"):
        refuse_misfit(Bernoulli(), ENCODINGS["numbers"])
    with pytest.raises(UserError, match=r"family 'mdn' is for vectors: use 'conv' for MultiBinary"):
        refuse_misfit(Mdn(), ENCODINGS["black and white"])


def test_the_prior_counts_in_the_entries_that_the_loss_adds_up():
    assert {name: family.loss_terms(9) for name, (family, _, _) in VARIANTS.items()} == dict.fromkeys(
        VARIANTS, 9
    )
    assert Bernoulli(mean_over_bits=True).loss_terms(9) == 1


def test_only_chances_are_made_of_probabilities():
    chances = {name for name, family in FAMILIES.items() if family.of_probabilities}
    assert chances == {"bernoulli", "factored", "tiles"}


def member(family, made_for, clock=True):
    """A member whose arrays are shapes alone."""
    return eqx.filter_eval_shape(family.make(problem(made_for, clock)), jax.random.key(0))


def test_settings_reach_the_networks():
    assert member(Bernoulli(hidden=7), "bits").weights.gate.shape == (HORIZON, ACTIONS, 7)
    timeless = member(Bernoulli(hidden=7, mean_over_bits=True), "bits", clock=False)
    assert timeless.weights.gate.shape == (1, ACTIONS, 7)
    assert timeless.mean_over_bits
    fed = member(Bernoulli(hidden=7, conditioning="input"), "bits").weights
    assert (fed.clock.shape, fed.act.shape, fed.gate) == ((HORIZON, 7), (ACTIONS, 7), None)
    assert member(Mlp(hidden=7), "numbers").network.hidden.shape == (7, 7)
    assert member(Factored(hidden=7), "mixed").network.observe.shape == (7, 9)
    one = member(Factored(hidden=7, one_hot=True), "numbers")
    assert (one.parts, one.noise_shape) == ((Part("categorical", 0, 4),), (1,))
    tiles = member(Tiles(categories=5, unit=0.25, maps=3, hidden=7), "image")
    assert (tiles.categories, tiles.unit, tiles.noise_shape) == (5, 0.25, (5, 6, 2))
    assert (tiles.weights.first.shape, tiles.weights.hidden.shape) == ((9 * 2 * 5, 3), (7, 7))
    mixture = member(Mdn(hidden=7, components=4), "numbers")
    assert (mixture.components, mixture.network.head.shape) == (4, (4 * (1 + 2 * 4) + 2, 7))
    conv = member(Conv(hidden=7, maps=3), "image")
    assert (conv.reward_head, conv.weights.hidden.shape) == ("pooled", (7, 3))
    vae = member(Vae(hidden=7, latent=3, points=2), "numbers")
    assert (vae.embed.shape, vae.points, vae.decoder.network.hidden.shape) == ((7, 3), 2, (7, 7))


@pytest.mark.parametrize("head", ["dense", "pooled"])
def test_the_reward_head_of_images_is_the_same_setting_for_both_families(head):
    conv, vae = (member(kind(hidden=7, maps=3, reward_head=head), "image") for kind in (Conv, Vae))
    assert conv.reward_head == vae.decoder.reward_head == head
    assert conv.weights.hidden.shape == vae.decoder.weights.hidden.shape
    assert vae.decoder.weights.hidden.shape == (7, 3 if head == "pooled" else 3 * 2 * 2)
    assert vae.embed.shape == (3, 4)
