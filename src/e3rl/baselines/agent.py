"""The baselines as agents: learn, predict, evaluate, save, load, as `NeuralE3` has them."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax

from e3rl.baselines.base import BaselineConfig
from e3rl.baselines.bonus import NoBonus
from e3rl.baselines.dqn import DQNConfig
from e3rl.baselines.memory import memory_of
from e3rl.baselines.ppo import PPOConfig
from e3rl.baselines.presets import DQN_CONFIGS, PPO_CONFIGS
from e3rl.baselines.training import BaselineProgram
from e3rl.envs.opening import Opened
from e3rl.runs.agent import AbstractAgent
from e3rl.runs.renamed import Table
from e3rl.types import UserError


class BaselineAgent(AbstractAgent):
    """An agent that learns without a model. An environment that lives in Python is played in as many copies as the
    settings say."""

    usual: ClassVar[BaselineConfig]
    """The settings where nobody names any."""
    hidden_clock: ClassVar[BaselineConfig]
    """Those for short problems of zeros and ones, which may not show the time step."""
    config: Any
    program: BaselineProgram

    @classmethod
    def suited(cls, opened: Opened) -> BaselineConfig:
        return cls.hidden_clock if opened.spec.may_hide_time else cls.usual

    @classmethod
    def share_a_program(cls, config: BaselineConfig) -> bool:
        return jax.default_backend() != "cpu"  # where it gains nothing

    @classmethod
    def memory(cls, opened: Opened, config: BaselineConfig, lanes: int, computing: bool) -> dict[str, float]:
        return memory_of(opened, config, lanes, computing)

    @classmethod
    def make_program(
        cls,
        opened: Sequence[Opened],
        config: BaselineConfig,
        seeds: Sequence[int],
        asynchronous: bool = False,
    ) -> BaselineProgram:
        specs = [each.spec for each in opened]
        functional = [each.functional for each in opened if each.functional is not None]
        if asynchronous and functional:
            raise UserError("only Gymnasium environments given by their id can be asynchronous")
        count = config.baseline().copies
        copies = [
            each.copies(count, asynchronous, copy_objects=True) for each in opened if each.functional is None
        ]
        return BaselineProgram([*functional, *copies], specs, config, seeds)


class DQN(BaselineAgent):
    """Double DQN with prioritised replay (sections 5.1 to 5.3)."""

    algo = "dqn"
    settings = DQNConfig
    presets = DQN_CONFIGS
    usual = DQN_CONFIGS["e3rl-dqn"]
    hidden_clock = DQN_CONFIGS["e3rl-lock-dqn"]


OLD_NAMES: Table = {
    "intrinsic_coefficient": ("bonus.coefficient",),
    "intrinsic_discount": ("bonus.discount",),
    "embedding": ("bonus.embedding",),
    "predictor_share": ("bonus.predictor_share",),
    "obs_clip": ("bonus.obs_clip",),
}


class PPO(BaselineAgent):
    """Proximal policy optimisation (section 5.1)."""

    algo = "ppo"
    settings = PPOConfig
    presets: ClassVar[Mapping[str, PPOConfig]] = {
        name: config for name, config in PPO_CONFIGS.items() if isinstance(config.bonus, NoBonus)
    }
    renamed: ClassVar[Table] = OLD_NAMES
    usual = PPO_CONFIGS["e3rl-ppo"]
    hidden_clock = PPO_CONFIGS["e3rl-lock-ppo"]


class PPORND(PPO):
    """PPO with the exploration bonus of random network distillation (sections 5.1, 5.3)."""

    algo = "ppo-rnd"
    presets: ClassVar[Mapping[str, PPOConfig]] = {
        name: config for name, config in PPO_CONFIGS.items() if not isinstance(config.bonus, NoBonus)
    }
    usual = PPO_CONFIGS["e3rl-ppo-rnd"]
    hidden_clock = PPO_CONFIGS["e3rl-lock-ppo-rnd"]

    @classmethod
    def configured(
        cls, opened: Opened, config: Any = None, changes: Mapping[str, Any] | None = None
    ) -> PPOConfig:
        found: PPOConfig = super().configured(opened, config, changes)
        if isinstance(found.bonus, NoBonus):
            raise UserError("ppo-rnd needs a bonus: bonus=rnd, or train ppo")
        return found
