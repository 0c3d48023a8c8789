"""The paper's cells that are pictures: the environments (Figure 1), Lemma 3's ellipsoids (Figure 3) and predictions in
a maze (Figure 5)."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from e3rl.experiments import dreem_ellipsoid, dreem_results
from e3rl.experiments.agents import AGENTS
from e3rl.experiments.provenance import provenance, reproduce_command
from e3rl.experiments.smoke import BUDGET, SIZE, STEPS, smaller
from e3rl.experiments.tables import forget_runs, unfinished_runs
from e3rl.neural.presets import PRESETS
from e3rl.reports import dreem_figures, figure1
from e3rl.reports.prediction_strip import chosen_rows, prediction_strip, unroll
from e3rl.reports.recorded import Recorded, read_run
from e3rl.reports.saving import save_figure
from e3rl.runs.folder import write_json
from e3rl.runs.settings import as_dict, changed
from e3rl.runs.train import train
from e3rl.types import UserError

Say = Callable[[str], None]
MAZE_SIZE, SMALL_SIZE, EPISODES, SEED = 10, 5, 50, 0
"""Of the run whose predictions are shown; the seed also of the environments."""


def environments(
    name: str, out: Path, say: Say, seeds: Sequence[int] = (), smoke: bool = False
) -> list[dict[str, Any]]:
    """Draw Figure 1."""
    for path in figure1.draw_panels(out, SEED):
        say(f"picture: {path}")
    config = {"lock": {"horizon": figure1.LOCK_HORIZON}, "maze": {"size": figure1.MAZE_SIZE}, "seed": SEED}
    about = {"experiment": name, "config": config, **provenance(reproduce_command(name))}
    write_json(out / f"{figure1.COMBINED}.json", about)
    return []


def ellipsoids(
    name: str, out: Path, say: Say, seeds: Sequence[int] = (), smoke: bool = False
) -> list[dict[str, Any]]:
    """Run DREEM where its misfit matrices have rank 2, and draw Figure 3."""
    dreem_results.write_ellipsoids(out, f"e3rl reproduce {name}")
    say(f"picture: {dreem_figures.draw_ellipsoids(out)}")
    return dreem_ellipsoid.run().rows()


def predictions(
    name: str, out: Path, say: Say, seeds: Sequence[int] = (), smoke: bool = False, size: int = MAZE_SIZE
) -> list[dict[str, Any]]:
    """Train Neural-E³ on mazes, and draw Figure 5 from an episode in which it explored."""
    [seed] = seeds or [SEED]
    few = {"evaluation_episodes": 1}  # what is learned is looked at while it explores
    config = changed(PRESETS["e3rl-image"], {"explore.episodes": BUDGET if smoke else EPISODES, **few})
    options = {"size": size}
    if smoke:
        config, options = smaller(config), {"size": SIZE, "time_limit": STEPS}
    folder = unfinished_runs(out, name)
    train(AGENTS["neural-e3"], "e3rl/Maze-v0", options, config, [seed], folder, resume=True)
    run = read_run(folder)
    figure = None if run is None else prediction_strip(run)
    if run is None or figure is None:
        raise UserError(f"{folder} holds no run to draw predictions from")
    rows = predicted(run)
    about = {"experiment": name, "settings": {"env": "e3rl/Maze-v0", "options": options, "seed": seed}}
    made = provenance(reproduce_command(name, seeds, smoke))
    say(f"picture: {save_figure(figure, out / f'{name}.png', dpi=130)}")
    write_json(out / f"{name}.json", {**about, "config": as_dict(config), "steps": rows, **made})
    forget_runs(out, name)
    return rows


def predicted(run: Recorded) -> list[dict[str, Any]]:
    """A row a step of the episode that is shown: how far the members are apart, and the worst from the truth."""
    part = chosen_rows(run)
    rows = run.replay.take(jnp.arange(part.start, part.stop))
    found = unroll(run.members, rows.obs[0], rows.action, rows.time)
    errors = np.sum((np.asarray(found.frames) - np.asarray(rows.next_obs)[:, None]) ** 2, axis=(2, 3, 4))
    return [
        {
            "step": i + 1,
            "reward": round(float(rows.reward[i]), 6),
            "disagreement": float(found.disagreement[i]),
            "largest_error": float(errors[i].max()),
        }
        for i in range(len(errors))
    ]


class Drawn(NamedTuple):
    run: Callable[..., list[dict[str, Any]]]
    files: tuple[str, ...]
    """What it leaves."""
    about: str

    def is_done(self, name: str, out: Path, seeds: Sequence[int] = (), smoke: bool = False) -> bool:
        return all((out / file).is_file() for file in self.files)


DRAWN = {
    "environments": Drawn(
        environments,
        (f"{figure1.COMBINED}.png", "environments.json"),
        "Pictures of the environments (Figure 1)",
    ),
    "ellipsoids": Drawn(
        ellipsoids, ("ellipsoids.png", "ellipsoid.json"), "DREEM's ellipsoids of Lemma 3, drawn (Figure 3)"
    ),
    "predictions": Drawn(
        predictions,
        ("predictions.png", "predictions.json"),
        f"Neural-E³, maze, {MAZE_SIZE} × {MAZE_SIZE}: what every model predicts (Figure 5)",
    ),
    "predictions-5": Drawn(
        partial(predictions, size=SMALL_SIZE),
        ("predictions-5.png", "predictions-5.json"),
        f"Neural-E³, maze, {SMALL_SIZE} × {SMALL_SIZE}: what every model predicts; ten minutes of a CPU",
    ),
}
