"""One tiny problem and one tiny configuration for everybody: programs that are the same are compiled once."""

from e3rl.envs.lock import CombinationLock
from e3rl.envs.opening import open_environment
from e3rl.envs.spec import spec_of
from e3rl.neural.agent import NeuralE3
from e3rl.neural.compiled_agent import compiled_agent
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.training import NeuralProgram
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.runs.record import Record
from e3rl.runs.settings import changed

LOCK = "e3rl/CombinationLock-v0"
OPTIONS = {"horizon": 3, "antishaped": True, "noise_bits": 1}
SEEDS = (3, 4)
CHANGES = {
    "explore.ratio": 2,
    "explore.episodes": 7,
    "fit.members": 2,
    "fit.updates": 2,
    "fit.batch": 4,
    "model.hidden": 8,
    "planner.value.updates": 2,
    "planner.value.batch": 4,
    "planner.value.hidden": 8,
    "exploit.value.updates": 20,
    "exploit.value.batch": 4,
    "exploit.value.hidden": 8,
    "rounds.episodes": 3,
    "rounds.updates": 2,
    "evaluation_episodes": 5,
}
TINY = changed(NeuralE3Config(), CHANGES)


def lock(seed: int = 0) -> CombinationLock:
    """A lock of three levels."""
    return CombinationLock(**OPTIONS, seed=seed)


AGENT = compiled_agent(spec_of(lock()), TINY)
"""Held here, what it compiles serves all tests of a process."""


def program(config: NeuralE3Config = TINY, seeds=SEEDS) -> NeuralProgram:
    """Neural-E³ on a lock for each seed."""
    return NeuralE3.make_program([open_environment(lock(seed)) for seed in seeds], config, seeds)


def record(out=None, config: NeuralE3Config = TINY, seeds=SEEDS, watch=lambda progress: None) -> Record:
    """The record of such a program, in a folder for each seed or nowhere; a checkpoint at every epoch."""
    folders = [RunFolder(out / f"seed{seed}") for seed in seeds] if out else []
    return Record(seeds, folders, [NeuralE3.describe(None, {}, seed, config) for seed in seeds], watch, 0.0)


def assert_same_run(out, other):
    """All but the time that it took."""
    for seed in SEEDS:
        one, two = out / f"seed{seed}", other / f"seed{seed}"
        assert RunFolder(one).policy.read_bytes() == RunFolder(two).policy.read_bytes()
        tables = [[{**row, "seconds": None} for row in read_metrics(path)] for path in (one, two)]
        assert tables[0] == tables[1]
        summaries = [{**RunFolder(path).summary(), "wall_seconds": None} for path in (one, two)]
        assert summaries[0] == summaries[1]
