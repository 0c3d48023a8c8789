"""Members pushed apart where there is no data, so that they cover more of the models that agree with what was seen.

The paper's conclusion names it as future work: disagreement between members stands for the largest one within a version
space, and a few fitted networks may all generalise alike. States, actions and times of a minibatch are exchanged for
those of other rows; there, members that predict alike pay a kernel of the distance between their predictions, as in
ensembles that repel each other in function space. It is bounded, so nobody gains by running away.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from e3rl.models.base import AbstractDynamics
from e3rl.models.ensemble import Ensemble
from e3rl.replay import Transitions
from e3rl.types import Key


def strangers(rows: Transitions, key: Key) -> Transitions:
    """Inputs of which few were seen: every state at the time of another row, with the action of a third."""
    count = rows.action.shape[0]
    order = jax.vmap(lambda key: jax.random.permutation(key, count))(jax.random.split(key))
    return rows._replace(time=rows.time[order[0]], action=rows.action[order[1]])


def foretell(
    member: AbstractDynamics, rows: Transitions, counted: Shaped[Array, "*obs"] | float = 1.0
) -> Float[Array, "B D"]:
    """What a member says of next state and reward, as vectors; only entries `counted` are told apart."""
    said = jax.vmap(member)(rows.obs, rows.action, rows.time)
    state = (said.obs * counted).reshape(said.obs.shape[0], -1)
    return jnp.concatenate([state, said.reward[:, None]], axis=1)


def foretell_all(
    members: Ensemble, rows: Transitions, counted: Shaped[Array, "*obs"] | float = 1.0
) -> Float[Array, "E B D"]:
    return eqx.filter_vmap(lambda member: foretell(member, rows, counted))(members)


def closeness(own: Float[Array, "B D"], others: Float[Array, "E B D"]) -> Float[Array, ""]:
    """The mean over rows and members of exp(−‖f − f_e‖²), by which a member is repelled from the others. From itself it
    is not: the slope there is 0."""
    return jnp.mean(jnp.exp(-jnp.sum((own - others) ** 2, axis=-1)))
