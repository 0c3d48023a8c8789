"""Cells with rounds of practice: what is kept of a run, worked by hand, that no seed is run twice, and tiny ones."""

import csv
import json

import numpy as np
import pytest

from e3rl.experiments import practised
from e3rl.experiments.catalogue import CELLS, EXPERIMENTS, config_of, results_folder
from e3rl.experiments.deterministic import COLUMNS, DETERMINISTIC_EXPERIMENTS
from e3rl.experiments.figures import FIGURES
from e3rl.experiments.practised import PRACTISED_EXPERIMENTS, is_done, run
from e3rl.reports import deterministic as reports
from e3rl.reports.claims import control as claims
from e3rl.reports.claims.evidence import Evidence
from e3rl.runs import folder
from e3rl.runs.settings import as_dict, changed
from e3rl.types import UserError

NAME = "mountaincar/paper-rounds"
SEEDS = (0, 1, 2, 3, 4)
LIMIT = 200


@pytest.mark.parametrize("name", PRACTISED_EXPERIMENTS)
def test_it_is_the_papers_cell_with_rounds(name):
    alone = DETERMINISTIC_EXPERIMENTS[name.removesuffix("-rounds")]
    experiment, config = PRACTISED_EXPERIMENTS[name], config_of(name)
    assert (experiment.env, experiment.seeds) == (alone.env, SEEDS)
    rounds = config.rounds
    assert (rounds.episodes, rounds.updates, rounds.stop_on_drop) == (20, 25_000, True)
    assert changed(config, {"rounds.count": 0}) == config_of(name.removesuffix("-rounds"))
    assert 300 - rounds.episodes <= config.explore.episodes + rounds.total < 300
    assert CELLS[name] is practised
    assert EXPERIMENTS[name] is run
    assert name in FIGURES["figure-2d"].cells
    assert str(results_folder(name)) == "results/control"


def played(seed):
    """The returns of a run that explored 100 episodes, practised 20 for every round of its own and was then judged: the
    goal is reached in every second episode, a step later the larger the seed is."""
    practice = 20 * (1 + seed % 3)
    return [float(-LIMIT if i % 2 else -100 - seed) for i in range(100 + practice + 100)], practice


@pytest.fixture
def trained(monkeypatch):
    """Training replaced by a note of who was asked for and a run folder of known episodes."""
    asked = []

    def train(agent, env, options, config, seeds, out, resume):
        assert resume
        assert (agent.algo, env, options) == ("neural-e3", "e3rl/MountainCar-v0", {})
        assert config == config_of(NAME)
        [seed] = seeds
        asked.append(seed)
        out.mkdir(parents=True)
        returns, practice = played(seed)
        with (out / "metrics.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, folder.COLUMNS, restval="0", lineterminator="\n")
            table.writeheader()
            for i, value in enumerate(returns):
                length = LIMIT if value == -LIMIT else int(1 - value)
                phase = "explore" if i < 100 else "exploit"
                table.writerow({"phase": phase, "episode": i + 1, "return": value, "length": length})
        summary = {"seed": seed, "explore_episodes": 100, "practice_episodes": practice}
        return [out], [{**summary, "wall_seconds": 12.34 + seed}]

    monkeypatch.setattr(practised, "train", train)
    return asked


def stored(out):
    path = out / f"{NAME.replace('/', '-')}.csv"
    with path.open(newline="") as file:
        return list(csv.DictReader(file)), json.loads(path.with_suffix(".json").read_text())


def test_every_seed_is_a_run_of_its_own(trained, tmp_path):
    said = []
    rows = run(NAME, tmp_path, said.append)
    assert trained == [*SEEDS]
    table, about = stored(tmp_path)
    assert list(table[0]) == list(COLUMNS)
    assert table == [{column: str(row[column]) for column in COLUMNS} for row in rows]
    own = [row for row in rows if row["seed"] == 1]
    assert [(row["phase"], row["episode"]) for row in own] == [
        *(("explore", i) for i in range(1, 101)),
        *(("practice", i) for i in range(1, 41)),
        *(("exploit", i) for i in range(1, 101)),
    ]
    assert [row["return"] for row in own] == played(1)[0]
    assert [row["reached"] for row in own] == [i % 2 == 0 for i in range(240)]
    assert {row["budget"] for row in rows} == {280}
    assert about["command"] == f"e3rl reproduce {NAME}"
    assert about["settings"]["seeds"] == [*SEEDS]
    assert about["settings"]["changes"] == [["rounds.count", 9]]
    assert about["config"] == json.loads(json.dumps(as_dict(config_of(NAME))))
    assert about["explore_return_mean"] == {str(seed): -150.0 - seed / 2 for seed in SEEDS}
    assert about["seconds"] == pytest.approx(sum(12.3 + seed for seed in SEEDS))
    assert {"commit", "version", "device", "machine"} <= about.keys()
    assert "machines" not in about
    margin = 1.96 * np.std([-100.0, -200.0], ddof=0) * np.sqrt(100 / 99) / 10
    assert about["exploit"][0] == {
        "seed": 0, "budget": 280, "return_mean": -150.0, "return_min": -200.0, "reached": 0.5, "explored": 100,
        "practised": 20, "seconds": 12.3, "return_ci": pytest.approx([-150 - margin, -150 + margin], abs=1e-3),
    }  # fmt: skip
    assert [verdict["practised"] for verdict in about["exploit"]] == [20, 40, 60, 20, 40]
    assert said[1] == (
        f"{NAME}, 13 s: seed 1 after 100 episodes and 40 of practice: return -150.50, goal reached in 50%"
    )
    assert not (tmp_path / "unfinished").exists()


def test_a_seed_in_the_table_is_not_run_again(trained, tmp_path):
    run(NAME, tmp_path / "some", print, [3, 1])
    _, about = stored(tmp_path / "some")
    assert about["command"] == f"e3rl reproduce {NAME} --seeds 1,3"
    assert about["settings"]["seeds"] == [1, 3]
    assert is_done(NAME, tmp_path / "some", [1, 3])
    assert not is_done(NAME, tmp_path / "some")
    rows = run(NAME, tmp_path / "some", print)
    assert trained == [3, 1, 0, 2, 4]
    assert is_done(NAME, tmp_path / "some")
    said = []
    assert run(NAME, tmp_path / "some", said.append) == rows
    assert said == [f"{NAME}: done before, {tmp_path / 'some' / 'mountaincar-paper-rounds.csv'}"]
    assert len(trained) == 5
    assert run(NAME, tmp_path / "all", print) == rows
    assert stored(tmp_path / "all") == stored(tmp_path / "some")


def test_an_interrupted_cell_keeps_the_seeds_before_it(trained, tmp_path, monkeypatch):
    whole = practised.train

    def stop(*args, **more):
        if args[4] == [2]:
            raise KeyboardInterrupt
        return whole(*args, **more)

    monkeypatch.setattr(practised, "train", stop)
    with pytest.raises(KeyboardInterrupt):
        run(NAME, tmp_path, print)
    assert is_done(NAME, tmp_path, [0, 1])
    assert not is_done(NAME, tmp_path)
    monkeypatch.setattr(practised, "train", whole)
    run(NAME, tmp_path, print)
    assert trained == [*SEEDS]
    assert is_done(NAME, tmp_path)


@pytest.mark.parametrize("lost", ["a verdict", "the last row", "the JSON"])
def test_what_a_kill_leaves_is_made_whole(lost, trained, tmp_path):
    rows = run(NAME, tmp_path, print)
    path = tmp_path / "mountaincar-paper-rounds.csv"
    match lost:
        case "a verdict":
            about = json.loads(path.with_suffix(".json").read_text())
            path.with_suffix(".json").write_text(json.dumps({**about, "exploit": about["exploit"][:-1]}))
        case "the last row":
            path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
        case "the JSON":
            path.with_suffix(".json").unlink()
    trained.clear()
    assert not is_done(NAME, tmp_path)
    assert run(NAME, tmp_path, print) == rows
    assert trained == ([*SEEDS] if lost == "the JSON" else [4])


def test_results_of_other_settings_are_not_mixed_in(trained, tmp_path):
    run(NAME, tmp_path, print)
    path = tmp_path / "mountaincar-paper-rounds.json"
    about = json.loads(path.read_text())
    about["config"]["rounds"]["count"] = 3
    path.write_text(json.dumps(about))
    assert not is_done(NAME, tmp_path)
    run(NAME, tmp_path, print, [2])
    assert stored(tmp_path)[1]["settings"]["seeds"] == [2]


def test_numbers_that_are_no_seeds(trained, tmp_path):
    with pytest.raises(UserError, match=r"seeds must be from 0 to .*, got 3, -1"):
        run(NAME, tmp_path, print, [3, -1])
    assert trained == []


def test_reports_read_it(trained, tmp_path):
    run(NAME, tmp_path, print)
    [line] = reports.table(tmp_path).splitlines()[1:]
    assert line.startswith(f"{NAME} 100, practice 20 to 60      5  -151.00 (-152.00 to -150.00)")
    [result] = reports.found(tmp_path)
    assert reports.marks_of(result.about["exploit"]) == {140.0: [-150.0 - seed / 2 for seed in SEEDS]}
    assert reports.explored(result)[1].shape == (5, 10)
    assert reports.label_of(NAME) == "Neural-E³, the paper's settings and rounds"
    [finding] = claims.neural_solves(Evidence.under(tmp_path), claims.ROUNDS, "mountaincar", 299)
    assert finding.text.startswith("1 of 5")


@pytest.mark.slow
@pytest.mark.parametrize("when", ["explore", "practising"])
def test_broken_off_it_goes_on_to_the_same_table(when, tmp_path, monkeypatch):
    monkeypatch.setenv("E3RL_CHECKPOINT_SECONDS", "0")
    whole, train, broken = run(NAME, tmp_path / "whole", print, smoke=True), practised.train, []

    def breaking(*args, **more):
        def watch(progress):
            if progress.phase == when and not broken:
                broken.append(when)
                raise KeyboardInterrupt

        return train(*args, **more, watch=watch)

    monkeypatch.setattr(practised, "train", breaking)
    with pytest.raises(KeyboardInterrupt):
        run(NAME, tmp_path / "cut", print, smoke=True)
    assert not is_done(NAME, tmp_path / "cut", smoke=True)
    assert (tmp_path / "cut" / "unfinished" / "mountaincar-paper-rounds" / "seed0").is_dir()
    assert run(NAME, tmp_path / "cut", print, smoke=True) == whole
    assert is_done(NAME, tmp_path / "cut", smoke=True)
    assert {row["phase"] for row in whole} == {"explore", "practice", "exploit"}
