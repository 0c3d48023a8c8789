"""Playing episodes: functional environments inside one program, Python ones as copies that are asked together."""

from e3rl.envs.playing.copy import REST, Answer, Failure
from e3rl.envs.playing.open_loop import Planner, Plans, rollout_plans
from e3rl.envs.playing.python_copies import EpisodeBroken, Plan, PythonCopies
from e3rl.envs.playing.rollout import Policy, as_observed, episode_return, rollout, uniform_policy

__all__ = [
    "REST",
    "Answer",
    "EpisodeBroken",
    "Failure",
    "Plan",
    "Planner",
    "Plans",
    "Policy",
    "PythonCopies",
    "as_observed",
    "episode_return",
    "rollout",
    "rollout_plans",
    "uniform_policy",
]
