"""Dynamics families, ensembles of them, and how they are fitted."""

from e3rl.envs.encoding import Encoding
from e3rl.models.base import AbstractFamily
from e3rl.models.bernoulli import Bernoulli
from e3rl.models.conv import Conv
from e3rl.models.factored import Factored
from e3rl.models.mdn import Mdn
from e3rl.models.mlp import Mlp
from e3rl.models.tiles import Tiles
from e3rl.models.vae import Vae
from e3rl.registry import Registry
from e3rl.types import UserError

FAMILIES: Registry[type[AbstractFamily]] = Registry(
    "family",
    "e3rl.families",
    {
        "bernoulli": Bernoulli,
        "factored": Factored,
        "mlp": Mlp,
        "conv": Conv,
        "tiles": Tiles,
        "mdn": Mdn,
        "vae": Vae,
    },
)


def natural_family(encoding: Encoding) -> type[AbstractFamily]:
    """Bernoulli for binary vectors, a head per variable where there are categories, convolutions for images, an MLP
    for the rest. The stochastic families of continuous observations, `mdn` and `vae`, are for the user to ask for."""
    return next(family for family in FAMILIES.values() if family.natural(encoding))


def refuse_misfit(family: AbstractFamily, encoding: Encoding) -> None:
    """An error for observations that the family is not for."""
    purpose = family.refuses(encoding)
    if purpose is not None:
        name, better = FAMILIES.name_of(type(family)), FAMILIES.name_of(natural_family(encoding))
        raise UserError(f"family {name!r} is for {purpose}: use {better!r} for {encoding.space}")
