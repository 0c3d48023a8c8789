"""What every dynamics family promises, on a tiny instance of each."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.envs.encoding import Part
from e3rl.models.bernoulli import BernoulliDynamics
from e3rl.models.conv import ConvDynamics
from e3rl.models.ensemble import make_ensemble
from e3rl.models.factored import FactoredDynamics
from e3rl.models.mdn import MdnDynamics
from e3rl.models.mlp import MlpDynamics
from e3rl.models.vae import VaeDynamics
from e3rl.replay import Transitions

ACTIONS, IMAGE = 3, (5, 6, 2)
PARTS = (Part("binary", 0, 2), Part("categorical", 2, 5), Part("continuous", 5, 7), Part("categorical", 7, 9))
FAMILIES = {
    "bernoulli": (lambda key: BernoulliDynamics(4, ACTIONS, 6, 8, key=key), (4,), (4,)),
    "mlp": (lambda key: MlpDynamics(4, ACTIONS, 8, key=key), (4,), (0,)),
    "factored": (lambda key: FactoredDynamics(PARTS, ACTIONS, 8, key=key), (9,), (4,)),
    "mdn": (lambda key: MdnDynamics(4, ACTIONS, 3, 8, key=key), (4,), (5,)),
    "conv-dense": (lambda key: ConvDynamics(IMAGE, ACTIONS, 4, 8, key=key), IMAGE, (0,)),
    "conv-pooled": (lambda key: ConvDynamics(IMAGE, ACTIONS, 4, 8, "pooled", key=key), IMAGE, (0,)),
    "vae": (lambda key: VaeDynamics((4,), ACTIONS, 2, 8, key=key), (4,), (2,)),
    "vae-image": (lambda key: VaeDynamics(IMAGE, ACTIONS, 2, 8, 4, key=key), IMAGE, (2,)),
}
CERTAIN = ("mlp", "conv-dense", "conv-pooled")
TIME = jnp.array(2, jnp.int32)


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def model_and_obs(family, count=None):
    make, shape, noise = FAMILIES[family]
    model = eqx.filter_jit(make)(jax.random.key(1))
    size = shape if count is None else (*shape, count)
    obs = jnp.array(np.random.default_rng(0).random(size), jnp.float32)
    return model, obs, noise


def close(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), one, other)


def test_columns_are_predictions_side_by_side(family):
    model, obs, noise = model_and_obs(family, 3)
    assert model.noise_shape == noise
    action = jnp.array(1, jnp.int32)
    together = eqx.filter_jit(lambda m: m.columns(obs, action, TIME))(model)
    uniform = jnp.array(np.random.default_rng(1).random((*noise, 3)), jnp.float32)
    drawn = eqx.filter_jit(lambda m: m.draw_columns(together, uniform))(model)
    one_by_one = eqx.filter_jit(lambda m, obs: m(obs, action, TIME))
    draw = eqx.filter_jit(lambda m, prediction, uniform: m.draw(prediction, uniform))
    for k in range(3):
        alone = one_by_one(model, obs[..., k])
        close(jax.tree.map(lambda leaf: leaf[..., k], together), alone)  # noqa: B023
        np.testing.assert_allclose(drawn[..., k], draw(model, alone, uniform[..., k]), rtol=2e-4, atol=2e-5)


def test_every_action_equals_a_loop_over_actions(family):
    model, obs, _ = model_and_obs(family)
    together = eqx.filter_jit(lambda m: m.every_action(obs, TIME, ACTIONS))(model)
    alone = eqx.filter_jit(lambda m, action: m(obs, action, TIME))
    assert together.reward.shape == (ACTIONS,)
    for a in range(ACTIONS):
        close(jax.tree.map(lambda leaf: leaf[a], together), alone(model, jnp.array(a, jnp.int32)))  # noqa: B023
    assert len(np.unique(np.round(together.reward, 5))) == ACTIONS


def test_loss_is_finite_and_moves_every_weight_that_had_a_say(family):
    model, obs, _ = model_and_obs(family)
    row = Transitions(obs, jnp.array(1), TIME, jnp.array(0.7), jnp.round(obs), jnp.array(True))

    @eqx.filter_jit
    @eqx.filter_value_and_grad(has_aux=True)
    def scored(model):
        return model.loss(obs, row, jax.random.key(0))

    (loss, mean), gradient = scored(model)
    assert np.isfinite(float(loss))
    assert mean.shape == obs.shape
    assert all(np.any(np.asarray(leaf) != 0.0) for leaf in jax.tree.leaves(gradient))
    predicted = eqx.filter_jit(lambda m: m(obs, row.action, TIME))(model)
    if family in CERTAIN:
        np.testing.assert_allclose(mean, predicted.obs, atol=1e-6)
        np.testing.assert_array_equal(model.draw(predicted, jnp.zeros(0)), predicted.obs)
    assert model.most_likely(predicted).shape == obs.shape


def test_losses_of_a_minibatch_are_those_of_its_rows(family):
    model, obs, _ = model_and_obs(family, 4)
    obs = jnp.moveaxis(obs, -1, 0)
    actions, ends = jnp.array([0, 2, 1, 2]), jnp.array([True, False, False, True])
    rows = Transitions(obs, actions, jnp.full(4, TIME), jnp.arange(4.0), jnp.round(obs), ends)
    keys = jax.random.split(jax.random.key(0), 4)

    def total(model, score):
        losses, means = score(model)
        return jnp.sum(losses * jnp.arange(1.0, 5.0)) + jnp.sum(means**2), (losses, means)

    both = [
        eqx.filter_jit(eqx.filter_value_and_grad(total, has_aux=True))(model, score)
        for score in (lambda m: m.losses(obs, rows, keys), lambda m: jax.vmap(m.loss)(obs, rows, keys))
    ]
    close(*both)


def test_members_differ_and_have_the_prior_deviation(family):
    make, shape, _ = FAMILIES[family]
    members = 40
    ensemble = eqx.filter_jit(lambda key: make_ensemble(make, members, key))(jax.random.key(2))
    deviation = eqx.filter_jit(eqx.filter_vmap(lambda member: member.prior_deviation()))(ensemble)
    assert jax.tree.structure(deviation) == jax.tree.structure(ensemble)
    for weight, sd in zip(jax.tree.leaves(ensemble), jax.tree.leaves(deviation), strict=True):
        assert weight.shape == sd.shape
        assert len(np.unique(np.reshape(weight, (members, -1))[:, 0])) == members
        scaled = np.asarray(weight) / np.asarray(sd)
        np.testing.assert_allclose(np.sqrt(np.mean(scaled**2)), 1.0, rtol=4 / np.sqrt(2 * scaled.size))
    obs = jnp.full(shape, 0.3)
    predicted = eqx.filter_jit(eqx.filter_vmap(lambda member: member(obs, jnp.array(0), TIME)))(ensemble)
    assert len(np.unique(np.asarray(predicted.reward))) == members
    assert np.median(predicted.termination) < 0.05  # a state never seen is not assumed to end the episode
