"""Films of environments in Python, and those that cannot be filmed."""

import gymnasium
import numpy as np
import pytest
from PIL import Image
from scripted import Echo, EchoConfig

from e3rl.reports.film import film
from e3rl.types import UserError


class Sign(gymnasium.Env):
    """Shows the action taken last as a grey."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(3, start=5)

    def __init__(self, render_mode=None, shape=(4, 6, 3)):
        self.render_mode, self.shape = render_mode, shape

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.action = 0
        return 0, {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.action = action
        return 1, 1.0, False, False, {}

    def render(self):
        return np.full(self.shape, 20 * self.action, np.uint8)


class Blind(Sign):
    metadata = {"render_modes": []}  # noqa: RUF012


@pytest.fixture(autouse=True)
def ids():
    for kind in (Sign, Blind):
        gymnasium.register(f"{kind.__name__}-v0", kind, max_episode_steps=3)
    yield
    for kind in (Sign, Blind):
        gymnasium.registry.pop(f"{kind.__name__}-v0")


def learned(env, options=None):
    agent = Echo(env, EchoConfig(), env_options=options)
    agent.learn(progress=False)
    return agent


def test_an_episode_in_python_with_its_own_actions(tmp_path):
    path = tmp_path / "deep" / "sign.GIF"
    agent = learned("Sign-v0")
    assert film(agent, path) == 3.0
    with Image.open(path) as pictures:
        assert pictures.size == (6, 4)
        greys = []
        for i in range(pictures.n_frames):
            pictures.seek(i)
            greys.append(int(np.asarray(pictures.convert("L"))[0, 0]))
    # What the agent says, by observation and time: 0 + 0, 1 + 1, 1 + 2 modulo 3; actions count from 5.
    assert greys == [0, 100, 140, 100]


def test_what_cannot_be_filmed(tmp_path):
    path = tmp_path / "film.gif"
    with pytest.raises(UserError, match="Blind-v0 cannot be drawn: it has no render mode 'rgb_array'"):
        film(learned("Blind-v0"), path)
    with pytest.raises(UserError, match="an environment without an id cannot be filmed"):
        film(learned(gymnasium.wrappers.TimeLimit(Sign(), 3)), path)
    with pytest.raises(UserError, match=r"draws uint8 of shape \(4, 6\), not a picture"):
        film(learned("Sign-v0", {"shape": (4, 6)}), path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*file/film\.gif: "):
        film(learned("Sign-v0"), tmp_path / "file" / "film.gif")
    assert not path.exists()
