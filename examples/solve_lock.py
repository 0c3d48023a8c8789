"""Neural-E³ from Python: train on a combination lock, play it step by step, save and load the agent.

Run with `python examples/solve_lock.py`, a minute or two; `--quick` only shows that everything works.
"""

import argparse
import tempfile

import gymnasium

from e3rl import NeuralE3, NeuralE3Config
from e3rl.runs.settings import changed

LOCK, OPTIONS = "e3rl/CombinationLock-v0", {"horizon": 5, "antishaped": True, "seed": 7}
QUICK = {"explore.episodes": 4, "fit.updates": 2, "planner.value.updates": 2, "exploit.value.updates": 20}
"""Settings by path, as `e3rl train --set fit.updates=2` takes them: docs/settings.md lists them all."""


def main(quick: bool) -> None:
    config = changed(NeuralE3Config(), QUICK if quick else {})
    agent = NeuralE3(LOCK, config, seed=7, env_options=OPTIONS)
    print(agent.learn())  # a summary: `summary.exploit_return_mean`, `summary.explore_episodes`, and so on

    env = gymnasium.make(LOCK, **OPTIONS)
    obs, _ = env.reset(seed=0)
    agent.start_episode()
    total, done = 0.0, False
    while not done:
        obs, reward, terminated, truncated, _ = env.step(agent.predict(obs))
        total, done = total + reward, terminated or truncated
    print(f"one episode through Gymnasium: {total:.2f}")

    with tempfile.TemporaryDirectory() as folder:
        agent.save(folder)
        print(f"loaded again: {NeuralE3.load(folder).evaluate(20).mean():.2f} over 20 episodes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    main(parser.parse_args().quick)
