"""M_t as an ensemble {M_1, …, M_E}: one model whose every array has a leading axis E (section 4.1)."""

from collections.abc import Callable
from typing import TypeAlias

import equinox as eqx
import jax
from jaxtyping import Array, Int, Shaped

from e3rl.models.base import AbstractDynamics, Prediction
from e3rl.types import Key

Ensemble: TypeAlias = AbstractDynamics
"""An `AbstractDynamics` with a leading axis E on every array; call it through `predict`."""


def make_ensemble(make: Callable[[Key], AbstractDynamics], size: int, key: Key) -> Ensemble:
    """`size` members that differ in their initial weights."""
    return eqx.filter_vmap(make)(jax.random.split(key, size))


def predict(
    ensemble: Ensemble, obs: Shaped[Array, "*obs"], action: Int[Array, ""], time: Int[Array, ""]
) -> Prediction:
    """Every member's prediction for one state and action: leaves [E, …]."""
    return eqx.filter_vmap(lambda member: member(obs, action, time))(ensemble)
