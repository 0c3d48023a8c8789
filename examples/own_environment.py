"""An environment of your own: a corridor whose door opens only to those who fetched the key at its other end.

Run with `python examples/own_environment.py`, some seconds. From the command line the environment is named with its
module: `cd examples; e3rl train own_environment:Corridor-v0`.
"""

import argparse

import gymnasium
import numpy as np

from e3rl import TabularE3, TabularE3Config
from e3rl.runs.settings import changed

LENGTH = 12
QUICK = {"explore.episodes": 3, "evaluation_episodes": 2}


class Corridor(gymnasium.Env):
    """Start in the middle; the key lies at the left end, the door is at the right one."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, length: int = LENGTH, render_mode: str | None = None):
        self.length, self.render_mode = length, render_mode
        self.observation_space = gymnasium.spaces.MultiDiscrete([length, 2])  # where, and with the key?
        self.action_space = gymnasium.spaces.Discrete(2)  # left, right

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.place, self.key = self.length // 2, 0
        return self._see(), {}

    def step(self, action: int):
        self.place = min(max(self.place + (1 if action == 1 else -1), 0), self.length - 1)
        self.key |= int(self.place == 0)
        out = bool(self.key and self.place == self.length - 1)
        return self._see(), 1.0 if out else -0.01, out, False, {}

    def render(self) -> np.ndarray:
        """For `e3rl evaluate DIR --gif film.gif`: the agent green, the key and the door red as long as they matter."""
        cells = np.full((1, self.length, 3), 220, np.uint8)
        cells[0, -1 if self.key else 0] = (214, 69, 65)
        cells[0, self.place] = (52, 168, 83)
        return cells.repeat(24, axis=0).repeat(24, axis=1)

    def _see(self):
        return np.array([self.place, self.key])


gymnasium.register("Corridor-v0", entry_point=f"{__name__}:Corridor", max_episode_steps=4 * LENGTH)


def main(quick: bool) -> None:
    # An id, or an environment that you have built: TabularE3(Corridor(20)) works too.
    agent = TabularE3("Corridor-v0", changed(TabularE3Config(), QUICK if quick else {}), seed=0)
    summary = agent.learn()
    print(summary)
    print(f"{summary.states} states were discovered; exploration ended {summary.ended}")

    env = gymnasium.make("Corridor-v0")
    obs, _ = env.reset(seed=0)
    agent.start_episode()
    way, done = "", False
    while not done:
        action = agent.predict(obs)
        way += "←→"[action]
        obs, _, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
    print(f"its way: {way}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only show that everything works")
    main(parser.parse_args().quick)
