"""A greedy episode as an animated GIF, drawn by the environment itself."""

import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from PIL import Image

from e3rl.envs.adapter import one_line
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.registration import FunctionalGymEnv
from e3rl.runs.agent import AbstractAgent
from e3rl.types import UserError

LONGEST = 1_000
"""Frames, of an episode that nothing ends."""
SECONDS = 12.0
"""That a film lasts at most, its last frame aside."""
SLOWEST, FASTEST, LAST = 500, 20, 1_500
"""Milliseconds of a frame, and of the last one. Browsers show frames of less than 20 ms as if they had 100."""


def film(agent: AbstractAgent, path: Path, seed: int = 0) -> float:
    """Play one greedy episode and write it to `path`; returns its return. An environment that the agent was given as
    an object, or that has no frames to show, is refused."""
    refuse_film(agent, path)
    with closing(_drawn(agent)) as env:
        frames, total = _play(agent, env, seed)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pace = int(np.clip(1_000 * SECONDS / len(frames), FASTEST, SLOWEST))
        pictures = [Image.fromarray(frame) for frame in frames]
        lengths = [pace] * (len(pictures) - 1) + [LAST]
        pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=lengths, loop=0)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    return total


def refuse_film(agent: AbstractAgent, path: Path) -> None:
    """An error where `film` would have one, before anything is played."""
    if path.suffix.lower() != ".gif":
        raise UserError(f"a film is a GIF: name it something.gif, not {path}")
    _drawn(agent).close()


def _drawn(agent: AbstractAgent) -> gymnasium.Env:
    """The agent's environment once more, in a form that draws itself."""
    about, made = agent.description, agent.env
    if isinstance(made, AbstractEnvironment):
        return FunctionalGymEnv(made, render_mode="rgb_array")
    env_id = about["env"]
    if env_id is None:
        raise UserError("an environment without an id cannot be filmed: register it, and train by its id")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # Gymnasium's own about a render mode that is not there: told below
            options = {**about["env_options"], "render_mode": "rgb_array"}
            env = gymnasium.make(env_id, disable_env_checker=True, **options)
    except Exception as error:  # other people's code
        raise UserError(f"{env_id} cannot be drawn: {one_line(error)}") from error
    if "rgb_array" not in (env.metadata.get("render_modes") or ()):
        env.close()
        raise UserError(f"{env_id} cannot be drawn: it has no render mode 'rgb_array'")
    return env


def _play(agent: AbstractAgent, env: gymnasium.Env, seed: int) -> tuple[list[np.ndarray], float]:
    first = int(getattr(env.action_space, "start", 0))
    obs, _ = env.reset(seed=seed)
    agent.start_episode()
    frames, total, ended = [_frame(env)], 0.0, False
    while not ended and len(frames) < LONGEST:
        obs, reward, terminated, truncated, _ = env.step(agent.predict(obs) + first)
        total, ended = total + float(reward), bool(terminated or truncated)
        frames.append(_frame(env))
    return frames, total


def _frame(env: gymnasium.Env) -> np.ndarray:
    try:
        drawn: Any = env.render()
    except Exception as error:  # such as a package for drawing that is not installed
        raise UserError(f"the environment cannot be drawn: {one_line(error)}") from error
    frame = np.asarray(drawn)
    if frame.ndim != 3 or frame.shape[-1] != 3 or frame.dtype != np.uint8:
        raise UserError(
            f"the environment draws {frame.dtype} of shape {frame.shape}, not a picture [h, w, 3] of bytes"
        )
    return frame
