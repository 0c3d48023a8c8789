"""Every agent that can be trained, by the name that `--algo` takes."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from e3rl.baselines.agent import DQN, PPO, PPORND
from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.envs.blame import RAISED
from e3rl.envs.opening import Opened
from e3rl.envs.registration import FunctionalGymEnv
from e3rl.neural.agent import UE2, NeuralE3
from e3rl.registry import Registry
from e3rl.runs.agent import AbstractAgent, read_config
from e3rl.runs.folder import RunFolder
from e3rl.tabular.agent import TabularE3
from e3rl.tabular.config import TabularE3Config
from e3rl.tabular.posterior import digest

GLANCE_EPISODES, GLANCE_STEPS = 10, 20
REPEATED = 0.2
"""Share of observations that earlier episodes had shown, from which a table is worth while."""

AGENTS: Registry[type[AbstractAgent]] = Registry(
    "algorithm",
    "e3rl.agents",
    {
        "neural-e3": NeuralE3,
        "tabular-e3": TabularE3,
        "ue2": UE2,
        "dqn": DQN,
        "ppo": PPO,
        "ppo-rnd": PPORND,
    },
)


def suited_agent(opened: Opened) -> tuple[str, str]:
    """The name of the agent that suits an environment by its looks, and why.

    Where observations repeat, counting beats networks. Of categories that is known beforehand, of everything else it is
    tried out in some short episodes of random play. A short problem of bits that are no one-hot, like the lock, may
    hide the time step, which a table would not notice.
    """
    spec = opened.spec
    kinds = {part.kind for part in spec.encoding.parts}
    if kinds == {"categorical"}:
        states = math.prod(part.stop - part.start for part in spec.encoding.parts)
        if states <= TabularE3Config().capacity:
            return "tabular-e3", f"{states:,} categories"
        return "neural-e3", f"{states:,} categories are too many for a table"
    again, one_hot, compared = repetition(opened)
    if spec.may_hide_time and not one_hot:
        return "neural-e3", f"{spec.encoding.shape[0]} bits, episodes of {spec.horizon} steps"
    if again >= REPEATED:
        return "tabular-e3", f"{again:.0%} of observations were seen in earlier episodes"
    if not compared:
        return "neural-e3", "random play was cut short, so nobody knows whether observations repeat"
    return "neural-e3", f"only {again:.0%} of observations were seen in earlier episodes"


def repetition(opened: Opened) -> tuple[float, bool, int]:
    """Of what random play leads to in some short episodes, the share that earlier episodes had shown, whether every
    observation is a one-hot, and how many were compared. Where episodes begin does not count: many problems with
    numbers begin in one place."""
    functional, made = opened.functional, opened.made
    env = made if functional is None else GymnasiumEnvironment(FunctionalGymEnv(functional))
    assert isinstance(env, GymnasiumEnvironment)
    random = np.random.default_rng(0)
    before: set[bytes] = set()
    again = steps = 0
    one_hot = True
    try:
        for episode in range(GLANCE_EPISODES):
            obs, ended, seen = env.reset(episode), False, set[bytes]()
            for step in range(GLANCE_STEPS):
                key = digest(obs)
                seen.add(key)
                one_hot &= bool(obs.sum() == 1.0 and obs.max() == 1.0)
                if episode > 0 and step > 0:
                    again, steps = again + (key in before), steps + 1
                if ended:
                    break
                obs, _, terminated, truncated = env.step(random.integers(env.num_actions))
                ended = terminated or truncated
            before |= seen
    except RAISED:  # whatever an environment raises will be told when it is trained on
        one_hot &= bool(before)
    return again / max(steps, 1), one_hot, steps


def load(path: str | Path, env: Any = None) -> AbstractAgent:
    """The agent of a run folder, whichever it is; of a run that was handed over, the one that went on."""
    folder = RunFolder(Path(path))
    about = read_config(folder.path)
    handed = (folder.summary() or {}).get("handed_over")
    return (
        load(folder.path / handed["folder"], env) if handed else AGENTS.called(about["algo"]).load(path, env)
    )
