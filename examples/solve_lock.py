"""Neural-E³ from Python: train on a combination lock, play it step by step, save and load the agent.

Run with `python examples/solve_lock.py`, a minute or two; `--quick` only shows that everything works.
"""

import argparse
import tempfile

import gymnasium

from e3rl import NeuralE3, NeuralE3Config

QUICK = {"explore_episodes": 4, "hidden": 8, "model_updates": 2, "value_updates": 2, "exploit_updates": 20}


def main(quick: bool) -> None:
    options = {"horizon": 5, "antishaped": True, "seed": 7}
    agent = NeuralE3(
        "e3rl/CombinationLock-v0", NeuralE3Config(**QUICK if quick else {}), seed=7, env_options=options
    )
    summary = agent.learn(
        watch=lambda progress: print(f"\r{progress.phase} {progress.episode}", end="", flush=True)
    )
    print(f"\nreturn {summary['exploit_return_mean']:.2f} of {summary['optimal_return']:.2f}")

    env = gymnasium.make("e3rl/CombinationLock-v0", **options)
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
