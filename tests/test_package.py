"""What `import e3rl` offers, and what it does not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import e3rl
from e3rl.baselines import agent as baselines
from e3rl.dreem.algorithm import Dreem
from e3rl.envs import adapter
from e3rl.neural import agent as neural


def test_agents_and_environments_by_name():
    from e3rl import DQN, PPO, PPORND, UE2, NeuralE3, make
    from e3rl import Dreem as offered

    assert (DQN, PPO, PPORND) == (baselines.DQN, baselines.PPO, baselines.PPORND)
    assert (NeuralE3, UE2, offered, make) == (neural.NeuralE3, neural.UE2, Dreem, adapter.make)
    assert e3rl.make("e3rl/CombinationLock-v0", horizon=3).time_limit == 3


def test_everything_it_names_is_there():
    found = {name: getattr(e3rl, name) for name in e3rl.__all__}
    assert len(found) == len(e3rl.__all__)
    assert {found[name].__name__ for name in e3rl._LATER} == set(e3rl._LATER)


def test_what_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'e3rl' has no attribute 'nonsense'"):
        e3rl.nonsense  # noqa: B018
    assert not hasattr(e3rl, "NeuralE4")


def test_agents_are_imported_when_they_are_asked_for():
    script = "import sys, e3rl; print([name for name in sys.modules if name.startswith('e3rl.neural')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_readme_lists_no_page_twice():
    root = Path(__file__).parents[1]
    listed = re.findall(r"^- \[[^]]*\]\(docs/([\w-]+)\.md\)", (root / "README.md").read_text(), re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) <= {page.stem for page in (root / "docs").glob("*.md")}
