"""The paper's figures as lists of cells: a cell is an experiment by its id, with its environment, algorithm, settings,
seeds and budget."""

from collections.abc import Iterable
from dataclasses import dataclass

HORIZONS = (5, 10, 15, 20)
SIZES = (5, 10, 20)
BASELINES = ("dqn", "ppo", "ppo-rnd")


@dataclass(frozen=True)
class PaperFigure:
    title: str
    cells: tuple[str, ...]

    @property
    def about(self) -> str:
        return f"{self.title}: {len(self.cells)} {'cell' if len(self.cells) == 1 else 'cells'}"


def _lock(reward: str, budgets: str, *more: str) -> tuple[str, ...]:
    """Neural-E³'s cells hold both rewards."""
    neural = [f"{family}/h{horizon}" for horizon in HORIZONS for family in ("lock-paper", "lock", *more)]
    others = [f"{budgets}/h{horizon}-{reward}-{algo}" for horizon in HORIZONS for algo in BASELINES]
    return (*neural, *others)


def _dqn(reward: str) -> tuple[str, ...]:
    """The DQN by its table alone: `baselines-lock` has one whose values start high."""
    return tuple(f"baselines-paper/h{horizon}-{reward}-dqn" for horizon in HORIZONS)


def _control(task: str, *baselines: str) -> tuple[str, ...]:
    return (
        f"{task}/paper",
        f"{task}/paper-rounds",
        f"{task}/steadied",
        f"{task}/e3rl",
        *(f"baselines-{task}/{name}" for name in baselines),
    )


def _all(figures: Iterable[PaperFigure]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cell for figure in figures for cell in figure.cells))


FIGURES = {
    "figure-1": PaperFigure("the environments", ("environments",)),
    "figure-2a": PaperFigure(
        "combination locks, standard rewards",
        (*_lock("standard", "baselines-lock", "stopping-protocol"), *_dqn("standard")),
    ),
    "figure-2b": PaperFigure(
        "combination locks, antishaped rewards",
        (*_lock("antishaped", "baselines-lock", "stopping-protocol"), *_dqn("antishaped")),
    ),
    "figure-2c": PaperFigure(
        "mazes",
        tuple(
            cell
            for size in SIZES
            for cell in (
                *(f"maze/{size}-{variant}" for variant in ("paper", "paper-ue2", "e3rl", "ue2")),
                f"baselines-maze/{size}-dqn",
            )
        ),
    ),
    "figure-2d": PaperFigure(
        "MountainCar and Acrobot",
        (
            *_control("mountaincar", "dqn", "ppo-rnd", "ppo-rnd-long"),
            *_control("acrobot", "dqn", "e3rl-dqn", "ppo-rnd", "ppo-rnd-long"),
        ),
    ),
    "figure-3": PaperFigure("Lemma 3's ellipsoids", ("ellipsoids",)),
    "figure-4": PaperFigure(
        "combination locks given more episodes",
        tuple(
            dict.fromkeys(
                (*_lock("standard", "baselines-long"), *_lock("antishaped", "baselines-long")),
            )
        ),
    ),
    "figure-5": PaperFigure("predictions in a maze", ("predictions",)),
}
FIGURES["paper"] = PaperFigure("all figures", _all(FIGURES.values()))
FIGURES["beside"] = PaperFigure(
    "what claims rest on beside the figures",
    (
        *(f"lock-paper-5bits/h{horizon}" for horizon in HORIZONS[1:]),
        *(f"lock-released/h{horizon}" for horizon in HORIZONS),
        *(f"stopping/h{horizon}" for horizon in (*HORIZONS, 50, 100)),
        *("planning/value-exploit-dqn", "planning/value-exploit-mcts", "predictions-5"),
        *(f"baselines-{name}" for name in ("fraction/h5-0.01", "fraction/h5-0.1", "replay/h5-uniform")),
        *(f"baselines-released/h{horizon}-standard-dqn" for horizon in HORIZONS),
        "baselines-optimism/h10-without",
        *(f"{task}/{name}" for task in ("mountaincar", "acrobot") for name in ("ends", "e3rl-few")),
        *("maze/5-ends", "maze/10-ends"),
        *(f"baselines-mountaincar/{name}" for name in ("dqn-long", "dqn-weight-noise")),
        *(f"baselines-acrobot/{name}" for name in ("dqn-long", "dqn-long-weight-noise")),
    ),
)
FIGURES["all"] = PaperFigure("all figures, and what claims rest on beside them", _all(FIGURES.values()))
FIGURES["defaults"] = PaperFigure(
    "Neural-E³ with e3rl's settings, of all figures",
    (
        *(f"{family}/h{horizon}" for family in ("lock", "stopping-protocol") for horizon in HORIZONS),
        *(f"maze/{size}-e3rl" for size in SIZES),
        "mountaincar/e3rl",
        "acrobot/e3rl",
    ),
)
