"""`NeuralE3` and `UE2`, the agents: learn, predict, evaluate, save, load."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from e3rl.envs.opening import Opened
from e3rl.neural.auto import suited_config
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.memory import memory_of
from e3rl.neural.old_names import OLD_NAMES
from e3rl.neural.presets import PRESETS
from e3rl.neural.training import NeuralProgram
from e3rl.planners.uniform import Uniform
from e3rl.runs.agent import AbstractAgent
from e3rl.runs.handover import Steps
from e3rl.runs.renamed import Table
from e3rl.types import UserError


class NeuralE3(AbstractAgent):
    """Explores where its models disagree, then exploits (Algorithm 1, section 4).

    What has an id is copied so that an epoch's episodes run side by side; an environment object is a single copy.
    """

    algo = "neural-e3"
    settings = NeuralE3Config
    presets = PRESETS
    renamed: ClassVar[Table] = OLD_NAMES
    explores_first = True
    config: NeuralE3Config
    program: NeuralProgram

    @classmethod
    def suited(cls, opened: Opened) -> NeuralE3Config:
        return suited_config(opened)

    @classmethod
    def share_a_program(cls, config: NeuralE3Config) -> bool:
        return not config.rounds.end_early

    @classmethod
    def memory(cls, opened: Opened, config: NeuralE3Config, lanes: int, computing: bool) -> dict[str, float]:
        return memory_of(opened, config, lanes, computing)

    @classmethod
    def make_program(
        cls,
        opened: Sequence[Opened],
        config: NeuralE3Config,
        seeds: Sequence[int],
        asynchronous: bool = False,
    ) -> NeuralProgram:
        specs = [each.spec for each in opened]
        functional = [each.functional for each in opened if each.functional is not None]
        if asynchronous and functional:
            raise UserError("only Gymnasium environments given by their id can be asynchronous")
        copies = [
            each.copies(config.explore.per_epoch, asynchronous) for each in opened if each.functional is None
        ]
        return NeuralProgram([*functional, *copies], specs, config, seeds)

    @classmethod
    def heir(cls, opened: Opened, seed: int, steps: Steps) -> tuple[NeuralE3Config, NeuralProgram]:
        """What was seen counts as epochs that are over, after which there are as many as ever."""
        config = cls.suited(opened)
        per_epoch, horizon = config.explore.per_epoch, opened.spec.horizon
        before = -(-steps.episodes // per_epoch) * per_epoch
        explore = dataclasses.replace(config.explore, episodes=before + config.explore.total(horizon))
        config = dataclasses.replace(config, explore=explore)
        program = cls.make_program([opened], config, [seed])
        program.inherited = steps
        return config, program


class UE2(NeuralE3):
    """Uniform exploration, then exploitation: Neural-E³ with nobody planning where to go (section 5.2)."""

    algo = "ue2"

    @classmethod
    def configured(
        cls, opened: Opened, config: Any = None, changes: Mapping[str, Any] | None = None
    ) -> NeuralE3Config:
        return dataclasses.replace(super().configured(opened, config, changes), planner=Uniform())
