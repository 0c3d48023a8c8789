"""Uniformly random play: seconds per 1e6 environment steps, alone and vmapped, beside Gymnasium's own.

Ours is one jitted program: every copy is reset, plays `time_limit` steps and is reset again, episode after
episode. A copy whose episode ends early waits for the others, and the steps it waits are not counted.
Observations and rewards go into a checksum, so that the compiler cannot leave them out. Gymnasium's
SyncVectorEnv resets a finished copy by itself; its actions are drawn beforehand, outside the measured time.

`python-env/overhead` is what playing an environment that lives in Python costs beside its own steps: the time of
`PythonCopies.play` with a plan that costs nothing, less that of Gymnasium's CartPole alone, which is the yardstick too.
"""

import functools
import itertools
from collections.abc import Callable, Iterator

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from timing import seconds_per_million

from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.playing.open_loop import Plans
from e3rl.envs.playing.python_copies import PythonCopies
from e3rl.envs.registration import ENVIRONMENTS

CONFIG = {
    "unit": "seconds per 1e6 environment steps, median of the repeats",
    "policy": "uniform",
    "environments": list(ENVIRONMENTS),
    "copies": [1, 64, 4096],
    "gymnasium_copies": [1, 64],
    "steps_per_repeat": {"1": 50_000, "64": 500_000, "4096": 2_000_000},
    "gymnasium_steps_per_repeat": 12_800,
    "python_copies": [1, 8],
    "python_episodes": 400,
    "repeats": 5,
    "seed": 0,
}
QUICK = {
    "environments": ["e3rl/CombinationLock-v0", "e3rl/MountainCar-v0", "e3rl/Acrobot-v1"],
    "copies": [64],
    "python_episodes": 100,
    "gymnasium_copies": [64],
    "steps_per_repeat": {"64": 200_000},
    "gymnasium_steps_per_repeat": 6_400,
    "repeats": 3,
}
TWINS = {"e3rl/MountainCar-v0": "MountainCar-v0", "e3rl/Acrobot-v1": "Acrobot-v1"}


def play(env: AbstractEnvironment, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One episode: how many steps it lasted, and a checksum."""
    key_reset, key_act, key_steps = jax.random.split(key, 3)
    state, obs = env.reset(key_reset)
    actions = jax.random.randint(key_act, (env.time_limit,), 0, env.num_actions)

    def step(carry: tuple, inputs: tuple) -> tuple:
        state, running, steps, checksum = carry
        key, action = inputs
        state, obs, reward, terminated, truncated = env.step(key, state, action)
        checksum += reward + jnp.sum(obs).astype(jnp.float32)
        return (state, running & ~(terminated | truncated), steps + running, checksum), None

    carry = (state, jnp.array(True), jnp.array(0), jnp.sum(obs).astype(jnp.float32))
    keys = jax.random.split(key_steps, env.time_limit)
    (_, _, steps, checksum), _ = jax.lax.scan(step, carry, (keys, actions))
    return steps, checksum


@eqx.filter_jit
def episodes(
    env: AbstractEnvironment, key: jax.Array, count: int, copies: int
) -> tuple[jax.Array, jax.Array]:
    """`count` episodes one after the other in each of `copies` environments."""

    def batch(carry: tuple, key: jax.Array) -> tuple:
        steps, checksum = jax.vmap(functools.partial(play, env))(jax.random.split(key, copies))
        return (carry[0] + steps.sum(), carry[1] + checksum.sum()), None

    return jax.lax.scan(batch, (jnp.array(0), jnp.array(0.0)), jax.random.split(key, count))[0]


def ours(env: AbstractEnvironment, copies: int) -> Callable[[], int]:
    count = max(1, CONFIG["steps_per_repeat"][str(copies)] // (copies * env.time_limit))
    key = jax.random.key(CONFIG["seed"])
    return lambda: int(jax.block_until_ready(episodes(env, key, count, copies))[0])


def gymnasium_sync(env_id: str, copies: int) -> Callable[[], int]:
    envs = gymnasium.vector.SyncVectorEnv([functools.partial(gymnasium.make, env_id) for _ in range(copies)])
    envs.reset(seed=CONFIG["seed"])
    steps = CONFIG["gymnasium_steps_per_repeat"] // copies
    rng = np.random.default_rng(CONFIG["seed"])
    actions = rng.integers(envs.single_action_space.n, size=(steps, copies))

    def run() -> int:
        for action in actions:
            envs.step(action)
        return steps * copies

    return run


def alone(env_id: str, episodes: int) -> Callable[[], int]:
    """Episodes of random play in one environment, every reset with a seed."""
    env, rng = gymnasium.make(env_id), np.random.default_rng(CONFIG["seed"])
    actions = rng.integers(env.action_space.n, size=env.spec.max_episode_steps).tolist()

    def run() -> int:
        steps = 0
        for episode in range(episodes):
            env.reset(seed=episode)
            for i in range(len(actions)):
                _, _, terminated, truncated, _ = env.step(actions[(episode + i) % len(actions)])
                steps += 1
                if terminated or truncated:
                    break
        return steps

    return run


def played(env_id: str, copies: int, episodes: int) -> Callable[[], int]:
    """The same in copies, as agents play them."""

    def one() -> GymnasiumEnvironment:
        return GymnasiumEnvironment(gymnasium.make(env_id))

    env, rng = PythonCopies(one(), copies, one), np.random.default_rng(CONFIG["seed"])
    plans = [Plans(rng.integers(env.num_actions, size=(copies, 1)), np.ones(copies, int)) for _ in range(997)]

    def run() -> int:
        endless = itertools.cycle(plans)
        rows = env.play(lambda *_: next(endless), jax.random.key(CONFIG["seed"]), episodes)
        return int(rows.valid.sum())

    return run


def python_overhead(env_id: str = "CartPole-v1") -> Iterator[dict]:
    episodes = CONFIG["python_episodes"]
    runs = {f"x{copies}": played(env_id, copies, episodes) for copies in CONFIG["python_copies"]}
    times = seconds_per_million({"alone": alone(env_id, episodes), **runs}, CONFIG["repeats"])
    theirs = times["alone"]["median"]
    for copies in CONFIG["python_copies"]:
        own = times[f"x{copies}"]["median"] - theirs
        yield {
            "name": f"envs/python-env/overhead/x{copies}",
            "ours_s": own,
            "yardstick": f"gymnasium {env_id} step",
            "yardstick_s": theirs,
            "ratio": theirs / own,
            "played_s": times[f"x{copies}"]["median"],
        }


def rows() -> list[dict]:
    table = list(python_overhead())
    for env_id in CONFIG["environments"]:
        env = ENVIRONMENTS[env_id]()
        runs = {f"x{copies}": ours(env, copies) for copies in CONFIG["copies"]}
        if env_id in TWINS:
            runs |= {
                f"gym x{copies}": gymnasium_sync(TWINS[env_id], copies)
                for copies in CONFIG["gymnasium_copies"]
            }
        times = seconds_per_million(runs, CONFIG["repeats"])
        for copies in CONFIG["copies"]:
            own = times[f"x{copies}"]
            # Gymnasium steps its copies one by one, so 64 of them are the yardstick for 4096 too.
            against = min(copies, max(CONFIG["gymnasium_copies"]))
            theirs = times.get(f"gym x{against}")
            table.append(
                {
                    "name": f"envs/{env_id.removeprefix('e3rl/')}/x{copies}",
                    "ours_s": own["median"],
                    "yardstick": f"gymnasium {TWINS[env_id]} SyncVectorEnv x{against}" if theirs else None,
                    "yardstick_s": theirs["median"] if theirs else None,
                    "ratio": theirs["median"] / own["median"] if theirs else None,
                    "ours_best_s": own["best"],
                    "yardstick_best_s": theirs["best"] if theirs else None,
                    "steps_per_second": 1e6 / own["median"],
                }
            )
    return table
