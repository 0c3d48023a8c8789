"""Which dynamics family serves which observations (section 4.1)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from e3rl.envs.encoding import Encoding
from e3rl.models.base import AbstractDynamics
from e3rl.models.bernoulli import BernoulliDynamics
from e3rl.models.conv import ConvDynamics
from e3rl.models.factored import FactoredDynamics
from e3rl.models.mdn import MdnDynamics
from e3rl.models.mlp import MlpDynamics
from e3rl.models.vae import VaeDynamics
from e3rl.types import Key, UserError

if TYPE_CHECKING:
    from e3rl.neural.config import NeuralE3Config

Family = Literal["bernoulli", "factored", "mlp", "conv", "mdn", "vae"]


def natural_family(encoding: Encoding) -> Family:
    """Bernoulli for binary vectors, a head per variable where there are categories, convolutions for images, an MLP
    for the rest. The stochastic families of continuous observations, `mdn` and `vae`, are for the user to ask for."""
    kinds = {part.kind for part in encoding.parts}
    if len(encoding.shape) == 3:
        return "conv"
    if kinds == {"binary"}:
        return "bernoulli"
    return "mlp" if kinds == {"continuous"} else "factored"


def dynamics(
    config: "NeuralE3Config", encoding: Encoding, actions: int, horizon: int
) -> Callable[[Key], AbstractDynamics]:
    """Makes a member of the ensemble from its key."""
    width, shape = config.hidden, encoding.shape
    if (config.family == "conv") != (len(shape) == 3) and config.family != "vae":
        what = (
            f"images [height, width, channels], not shape {shape}" if config.family == "conv" else "vectors"
        )
        raise UserError(f"family {config.family!r} is for {what}: use {natural_family(encoding)!r} here")
    match config.family:
        case "bernoulli":
            if {part.kind for part in encoding.parts} != {"binary"}:
                raise UserError(
                    f"family 'bernoulli' is for binary vectors: use {natural_family(encoding)!r} for {encoding.space}"
                )
            steps = horizon if config.clock else 1
            return lambda key: BernoulliDynamics(
                shape[0], actions, steps, width, config.conditioning, config.mean_over_bits, key=key
            )
        case "factored":
            return lambda key: FactoredDynamics(encoding.parts, actions, width, key=key)
        case "mlp":
            return lambda key: MlpDynamics(shape[0], actions, width, key=key)
        case "conv":
            height, breadth, channels = shape
            return lambda key: ConvDynamics(
                (height, breadth, channels),
                actions,
                width=width,
                reward_head=config.reward_head,
                key=key,
            )
        case "mdn":
            return lambda key: MdnDynamics(shape[0], actions, width=width, key=key)
        case "vae":
            return lambda key: VaeDynamics(shape, actions, width=width, key=key)
