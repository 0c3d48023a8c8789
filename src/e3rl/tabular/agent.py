"""`TabularE3`, the agent: learn, predict, evaluate, save, load."""

from collections.abc import Sequence

import numpy as np

from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.envs.opening import Opened
from e3rl.envs.playing.python_copies import PythonCopies
from e3rl.envs.registration import FunctionalGymEnv
from e3rl.runs.agent import AbstractAgent
from e3rl.tabular.config import TabularE3Config
from e3rl.tabular.training import TabularProgram
from e3rl.types import UserError

PRESETS = {"e3rl-tabular": TabularE3Config()}


class TabularE3(AbstractAgent):
    """Explores what it has not tried or seldom tried, then exploits: E³ with counts, for observations that repeat."""

    algo = "tabular-e3"
    settings = TabularE3Config
    presets = PRESETS
    explores_first = True
    hands_over_to = "neural-e3"
    config: TabularE3Config
    program: TabularProgram

    @classmethod
    def suited(cls, opened: Opened) -> TabularE3Config:
        return PRESETS["e3rl-tabular"]

    @classmethod
    def share_a_program(cls, config: TabularE3Config) -> bool:
        return False  # each seed ends at its own time

    @classmethod
    def memory(cls, opened: Opened, config: TabularE3Config, lanes: int, computing: bool) -> dict[str, float]:
        """Members are compared in pairs; the table itself grows with what is seen, and says so where that ends."""
        entries = float(np.prod(opened.spec.encoding.shape))
        return {"members": 16.0 * config.members**2, "observations": 64.0 * entries}

    @classmethod
    def make_program(
        cls,
        opened: Sequence[Opened],
        config: TabularE3Config,
        seeds: Sequence[int],
        asynchronous: bool = False,
    ) -> TabularProgram:
        if asynchronous:
            raise UserError(
                "tabular-e3 learns at every step of one environment: it has no copies to run apart"
            )
        [alone], [seed] = opened, seeds
        if alone.functional is None:
            copies = alone.copies(1)
        else:
            copies = PythonCopies(GymnasiumEnvironment(FunctionalGymEnv(alone.functional)))
        return TabularProgram(copies, alone.spec, config, seed)
