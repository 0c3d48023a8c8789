"""Uniformly random play: seconds per 1e6 environment steps, alone and vmapped, beside Gymnasium's own.

Ours is one jitted program: every copy is reset, plays `time_limit` steps and is reset again, episode after
episode. A copy whose episode ends early waits for the others, and the steps it waits are not counted.
Observations and rewards go into a checksum, so that the compiler cannot leave them out. Gymnasium's
SyncVectorEnv resets a finished copy by itself; its actions are drawn beforehand, outside the measured time.

`python-env/overhead` is what playing an environment that lives in Python costs beside its own steps: the time of
`PythonCopies.play` with a plan that costs nothing, less that of Gymnasium's CartPole alone, which is the yardstick too.

`python-env/overlap` is an epoch of graph search in copies of a MountainCar that takes its time over every step, each in
a process of its own: copies that are done plan while others are on their way, beside copies that wait for each other.
"""

import functools
import itertools
import time
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
from e3rl.neural.compiled_agent import compiled_agent
from e3rl.neural.presets import PRESETS
from e3rl.planners.base import Policy
from e3rl.runs.lanes import seed_keys
from e3rl.runs.settings import changed

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
    "slow": {"step_s": 0.005, "copies": 8, "time_limit": 200, "config": "e3rl-control"},
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


class Slow(gymnasium.Wrapper):
    """MountainCar, whose steps take their time without computing."""

    def __init__(self, step_s: float):
        super().__init__(gymnasium.make("MountainCar-v0"))
        self.step_s = step_s

    def step(self, action: int) -> tuple:
        time.sleep(self.step_s)
        return super().step(action)


def slow(step_s: float) -> GymnasiumEnvironment:
    return GymnasiumEnvironment(Slow(step_s))


def python_overlap() -> dict:
    told = CONFIG["slow"]
    one, keys = functools.partial(slow, told["step_s"]), seed_keys([CONFIG["seed"]])
    env = PythonCopies(one(), told["copies"], one, told["time_limit"], asynchronous=True)
    config = changed(PRESETS[told["config"]], {"explore.per_epoch": told["copies"]})
    agent, epoch = compiled_agent(env.spec, config), jnp.zeros(1, int)
    models, value, replay = agent.init(keys)
    policy, replay, _ = agent.collect(env, Policy(models, value, replay.scale), replay, keys, epoch)
    policy, _ = agent.plan(agent.update_models(models, replay, keys, epoch)[0], value, replay, keys, epoch)

    def epoch_played(overlapped: bool) -> int:
        env.asynchronous = overlapped
        return int(agent.collect(env, policy, replay, keys, epoch + 1)[2].lengths.sum())

    runs = {name: functools.partial(epoch_played, name == "ours") for name in ("ours", "waiting")}
    times = seconds_per_million(runs, CONFIG["repeats"])
    env.close()
    ours, waiting = times["ours"]["median"], times["waiting"]["median"]
    return {
        "name": f"envs/python-env/overlap/x{told['copies']}",
        "ours_s": ours,
        "yardstick": "copies that wait for each other",
        "yardstick_s": waiting,
        "ratio": waiting / ours,
        "steps_alone_s": 1e6 * told["step_s"] / told["copies"],
    }


def rows() -> list[dict]:
    table = [*python_overhead(), python_overlap()]
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
