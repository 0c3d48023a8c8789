"""Episodes carried out plan by plan, against a Python loop and against episodes that look at every step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.envs.mountain_car import MountainCar, MountainCarState
from e3rl.envs.playing import rollout, rollout_plans
from e3rl.envs.playing.open_loop import Plans, begin, go_on
from e3rl.envs.playing.rollout import as_observed

LIMIT, LONGEST = 12, 4
step = jax.jit(MountainCar(LIMIT).step)


class StartingCar(MountainCar):
    """A car whose start is given: at `position`, and near enough to the goal with speed to reach it early."""

    position: float = -0.5
    velocity: float = 0.0

    def __init__(self, position=-0.5, velocity=0.0, time_limit=LIMIT):
        super().__init__(time_limit)
        self.position, self.velocity = jnp.asarray(position), jnp.asarray(velocity)

    def reset(self, key):
        state = MountainCarState(self.position, self.velocity, jnp.int32(0))
        return state, self._observe(state)


def energetic(obs):
    """Push the way one moves."""
    return jnp.where(obs[1] >= 0, 2, 0).astype(jnp.int32)


def looking(keys, obs, time, running):
    return jax.vmap(energetic)(obs)[:, None], jnp.ones(time.shape, jnp.int32)


def blind(keys, obs, time, running):
    """Sequences of all lengths up to LONGEST, a matter of what is seen when they begin."""
    length = 1 + (jnp.abs(obs[:, 0]) * 1000).astype(jnp.int32) % LONGEST
    begins = (jnp.abs(obs[:, 1]) * 10_000).astype(jnp.int32)
    return (begins[:, None] + jnp.arange(LONGEST, dtype=jnp.int32)) % 3, length


def slow(env, plan):
    """The same with a list; this car has no chance in it, so that keys do not matter."""
    keys = jax.random.split(jax.random.key(0), 1)
    rows, ended = [], False
    state, obs = env.reset(keys[0])
    while not ended:
        actions, lengths = plan(keys, obs[None], jnp.array([len(rows)]), jnp.array([True]))
        for action in actions[0, : int(lengths[0])]:
            state, after, reward, terminated, truncated = step(keys[0], state, action)
            rows.append((obs, action, reward, after, terminated, truncated))
            obs, ended = after, bool(terminated | truncated)
            if ended:
                break
    return rows


def assert_same(trajectory, rows):
    """An episode of fixed arrays has these rows and nothing after them."""
    assert trajectory.valid.tolist() == [True] * len(rows) + [False] * (LIMIT - len(rows))
    for column, values in zip(trajectory[:-1], zip(*rows, strict=True), strict=True):
        np.testing.assert_allclose(column[: len(rows)], np.array(values), atol=1e-6)


def test_plans_of_one_action_are_episodes_that_look_at_every_step():
    env, keys = StartingCar(), jax.random.split(jax.random.key(1), 2)
    planned = jax.jit(lambda keys: rollout_plans(env, looking, keys))(keys)
    looked = jax.jit(lambda key: rollout(env, lambda key, obs, t: energetic(obs), key))(keys[0])
    for episode in range(2):
        for ours, theirs in zip(planned, looked, strict=True):
            np.testing.assert_array_equal(ours[episode], theirs)


@pytest.mark.parametrize("plan", [looking, blind])
@pytest.mark.parametrize("start", [(-0.5, 0.0), (0.4, 0.045)])
def test_plans_are_carried_out_to_the_end_without_looking(plan, start):
    env = StartingCar(*start)
    rows = slow(env, plan)
    assert (len(rows) < LIMIT) == (start[1] > 0)  # one start reaches the goal
    found = jax.jit(lambda keys: rollout_plans(env, plan, keys))(jax.random.split(jax.random.key(0), 1))
    assert_same(jax.tree.map(lambda leaf: leaf[0], found), rows)


def test_episodes_of_different_lengths_do_not_disturb_each_other():
    """Starts drawn from the keys: each episode is what it is among its like, by the same program."""
    env = MountainCar(LIMIT)
    keys = jax.random.split(jax.random.key(2), 4)
    play = jax.jit(lambda keys: rollout_plans(env, blind, keys))
    together = play(keys)
    assert len(np.unique(together.obs[:, 0, 0])) == 4
    for i in range(4):
        alike = play(keys[jnp.full(4, i)])
        for ours, own in zip(together, alike, strict=True):
            np.testing.assert_array_equal(ours[i], own[i])


def test_over_lanes_of_different_environments():
    starts = [(-0.5, 0.0), (0.4, 0.045), (0.3, 0.06)]
    envs = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(StartingCar(*start) for start in starts))
    keys = jax.vmap(lambda key: jax.random.split(key, 1))(jax.random.split(jax.random.key(0), len(starts)))
    lanes = jax.jit(jax.vmap(lambda env, keys: rollout_plans(env, blind, keys)))(envs, keys)
    lengths = np.asarray(lanes.valid).sum(axis=(1, 2))
    assert len(set(lengths.tolist())) > 1
    for i, start in enumerate(starts):
        rows = slow(StartingCar(*start), blind)
        assert_same(jax.tree.map(lambda leaf, i=i: leaf[i, 0], lanes), rows)


def test_an_empty_plan_still_takes_a_step():
    env = StartingCar(time_limit=3)
    nothing = jnp.zeros((1, 2), jnp.int32), jnp.zeros(1, jnp.int32)
    found = rollout_plans(env, lambda *now: nothing, jax.random.split(jax.random.key(0), 1))
    assert found.valid.tolist() == [[True] * 3]


def test_planners_are_told_who_still_runs_and_everyone_observes_through_observe():
    env, seen = StartingCar(0.4, 0.045, LIMIT), []

    def plan(keys, obs, time, running):
        jax.debug.callback(
            lambda *now: seen.append([np.asarray(x).tolist() for x in now]), time, running, obs
        )
        return looking(keys, obs, time, running)

    found = rollout_plans(env, plan, jax.random.split(jax.random.key(0), 2), lambda obs: 2.0 * obs)
    jax.effects_barrier()
    steps = int(found.valid[0].sum())
    assert [now[0] for now in seen] == [[t, t] for t in range(steps)]
    assert all(now[1] == [True, True] for now in seen)
    np.testing.assert_allclose(found.obs[0, 0], 2.0 * env.reset(jax.random.key(0))[1], atol=1e-6)
    np.testing.assert_allclose(seen[0][2][0], found.obs[0, 0], atol=1e-6)


@pytest.mark.parametrize("steps", [1, 5])
def test_episodes_in_parts_are_the_episodes(steps):
    """With plans that see one step ahead: a longer one is cut where a part ends."""
    env, keys = MountainCar(LIMIT), jax.random.split(jax.random.key(2), 3)
    whole = jax.jit(lambda keys: rollout_plans(env, looking, keys))(keys)
    on = jax.jit(lambda playing: go_on(env, looking, keys, playing, steps))
    playing, parts = begin(env, keys, as_observed), []
    assert (playing.time.tolist(), playing.running.tolist()) == ([0] * 3, [True] * 3)
    while playing.running.any():
        playing, part = on(playing)
        assert part.valid.shape == (3, steps)
        parts.append(part)
    assert len(parts) == -(-LIMIT // steps)
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1)[:, :LIMIT], *parts)
    for ours, own in zip(joined, whole, strict=True):
        np.testing.assert_array_equal(ours, own)
    assert playing.time.tolist() == np.asarray(whole.valid).sum(axis=1).tolist()


def test_a_plan_is_cut_where_a_part_ends():
    env, keys = StartingCar(), jax.random.split(jax.random.key(0), 1)
    planned = []

    def plan(keys, obs, time, running):
        jax.debug.callback(lambda time: planned.append(time.tolist()), time)
        return Plans(jnp.ones((1, LONGEST), jnp.int32), jnp.full(1, LONGEST, jnp.int32))

    playing, part = go_on(env, plan, keys, begin(env, keys, as_observed), 6)
    jax.effects_barrier()
    assert planned == [[0], [LONGEST]]
    assert part.valid.tolist() == [[True] * 6]
    assert playing.time.tolist() == [6]


def test_a_planner_is_reminded_of_what_it_returned():
    """Every episode of its own: here, of all it has seen, times two."""
    env = MountainCar(LIMIT)

    def plan(keys, obs, time, running, memory):
        seen = jnp.where(running, 2.0 * memory + obs[:, 0], memory)
        return Plans(*looking(keys, obs, time, running), seen)

    keys = jax.random.split(jax.random.key(2), 2)
    start = begin(env, keys, as_observed)._replace(memory=jnp.zeros(2))
    playing, part = jax.jit(lambda playing: go_on(env, plan, keys, playing, 4))(start)
    wanted = np.zeros(2)
    for obs in np.asarray(part.obs)[:, :, 0].T:
        wanted = 2.0 * wanted + obs
    np.testing.assert_allclose(playing.memory, wanted, rtol=1e-5)
