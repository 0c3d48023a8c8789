"""DREEM end to end: the loop, the doubling trick, certification and the command line."""

import csv
import json

import numpy as np
import pytest

from e3rl import cli
from e3rl.dreem.algorithm import Dreem, policy_return
from e3rl.dreem.certify import FAMILIES, certify, certify_all, make_problem, tree_mdp
from e3rl.dreem.distributions import v_explore
from e3rl.dreem.doubling import learn_unknown_rank
from e3rl.dreem.eliminate import RealizabilityError
from e3rl.dreem.model_class import ModelClass
from e3rl.dreem.policies import stationary_policies, time_dependent_policies
from e3rl.envs.tabular import random_mdp
from e3rl.experiments.dreem_certify import below_theory, still_works
from e3rl.types import UserError


@pytest.fixture(scope="module")
def tree():
    return make_problem("tree", 20, 32, seed=1)


def test_the_loop_follows_algorithm_1(tree):
    agent = Dreem(tree.models, tree.policies, rank=tree.rank)
    result = agent.learn(tree.env, seed=3)
    kept = np.arange(20)
    for row in result.rounds:
        tables = tree.models.subset(kept)
        values = v_explore(tables, tree.models.start, agent.policies)
        assert row.v_explore == pytest.approx(values.max(), abs=1e-12)
        assert row.policy == np.flatnonzero(values >= values.max() - 1e-12)[0]
        assert row.v_explore > agent.epsilon / 2  # line 6 let it through
        kept = kept[np.all(row.misfits <= agent.phi, axis=1)]
        assert row.models_left == len(kept)
    assert result.models_left.tolist() == kept.tolist()
    assert tree.true_index in kept
    assert len(result.rounds) >= 3
    assert result.finished
    assert result.v_explore <= agent.epsilon / 2
    assert policy_return(tree.env, result.policy) >= tree.env.optimal_return - agent.epsilon
    assert result.trajectories == len(result.rounds) * agent.n * 3
    assert result.env_steps == len(result.rounds) * agent.n * (1 + 2 + 3)


def test_same_seed_same_run(tree):
    agent = Dreem(tree.models, tree.policies, n=2000, phi=0.1, max_rounds=2)
    first, again, other = (agent.learn(tree.env, seed) for seed in (0, 0, 1))
    assert json.dumps(first.as_dict()) == json.dumps(again.as_dict())
    assert len(first.rounds) == 2
    assert not np.array_equal(first.rounds[0].misfits, other.rounds[0].misfits)


def test_a_limit_of_rounds_ends_unfinished(tree):
    result = Dreem(tree.models, tree.policies, max_rounds=1).learn(tree.env)
    assert not result.finished
    assert len(result.rounds) == 1


def test_one_model_is_exploited_at_once():
    models = ModelClass.of([random_mdp(num_states=2, horizon=2, seed=4)])
    result = Dreem(models, time_dependent_policies(2, 2, 2)).learn(models.environment(0))
    assert result.trajectories == 0
    assert result.value == pytest.approx(models.environment(0).optimal_return)


def test_a_truth_outside_the_class_is_reported(tree):
    others = np.delete(np.arange(20), tree.true_index)
    models = ModelClass(
        tree.models.transitions[others, 0], tree.models.rewards, tree.models.start, tree.models.horizon
    )
    with pytest.raises(RealizabilityError, match="realizability failed"):
        Dreem(models, tree.policies).learn(tree.env)


def test_bad_input(tree):
    for change, words in [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 2.0}, "delta"),
        ({"n": 0}, "n must be"),
        ({"phi": 0.0}, "phi"),
        ({"rank": 0}, "rank"),
    ]:
        with pytest.raises(UserError, match=words):
            Dreem(tree.models, tree.policies, **change)
    with pytest.raises(UserError, match="lacks optimal policies"):
        Dreem(tree.models, tree.policies[:1])
    agent = Dreem(tree.models, tree.policies)
    with pytest.raises(UserError, match="environment's tables"):
        agent.learn(random_mdp())
    shifted = ModelClass(tree.models.transitions[:1, 0], tree.models.rewards, np.full(9, 1 / 9), 3)
    with pytest.raises(UserError, match="another distribution"):
        agent.learn(shifted.environment(0))


def test_doubling_finds_a_rank_that_is_enough(tree):
    found = learn_unknown_rank(tree.models, tree.policies, tree.env, seed=0)
    assert found.ranks == [2**i for i in range(1, len(found.ranks) + 1)]
    assert found.result.finished
    assert policy_return(tree.env, found.result.policy) >= tree.env.optimal_return - 0.1


def test_doubling_goes_on_to_a_larger_rank_when_rounds_run_out(tree, monkeypatch):
    """With φ too large to eliminate anything at d = 2, the second guess has to do it."""
    learn = Dreem.learn

    def stubborn(agent, env, seed=0):
        if agent.theory.terms["d"] == 2.0:
            agent.phi, agent.max_rounds = 5.0, 3
        return learn(agent, env, seed)

    monkeypatch.setattr(Dreem, "learn", stubborn)
    found = learn_unknown_rank(tree.models, tree.policies, tree.env, seed=0)
    assert found.ranks == [2, 4]
    assert found.trajectories > found.result.trajectories
    monkeypatch.setattr(
        Dreem,
        "learn",
        lambda agent, env, seed: learn(Dreem(agent.models, agent.policies, phi=5.0, max_rounds=1), env, seed),
    )
    with pytest.raises(UserError, match="did not finish"):
        learn_unknown_rank(tree.models, tree.policies, tree.env)


def test_the_tree_shows_a_policy_one_leaf():
    tree = tree_mdp(2, seed=0)
    assert tree.num_states == 9
    policies = stationary_policies(9, 2, 3)
    assert tree.optimal_return == pytest.approx(max(policy_return(tree, policy) for policy in policies))


@pytest.mark.parametrize("name", FAMILIES)
def test_problems_satisfy_assumption_1(name):
    problem = make_problem(name, 8, 4, seed=2)
    Dreem(problem.models, problem.policies)  # checks the policies
    assert len(problem.models) == 8


def test_certify_counts_no_failure_under_the_theorem_and_failures_far_below():
    report = certify_all(list(FAMILIES), 2, models=12, extra_policies=16)
    assert report["runs"] == 8
    assert report["failures"] == report["true_model_eliminated"] == 0
    assert 1 <= report["rounds_max"] <= report["rounds_bound"]
    below = certify("random", 3, models=12, extra_policies=16, shrink=1e9)
    assert below["true_model_eliminated"] == below["failures"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_theorem_1_over_200_runs(name):
    report = certify(name, 200)
    assert report["failures"] == report["true_model_eliminated"] == 0
    assert report["rounds_max"] <= report["rounds_bound"]


def test_below_theory_writes_its_table(tmp_path):
    rows = below_theory(tmp_path, lambda line: None, 2, ["tree"], [1.0, 1e10], models=10, extra_policies=8)
    with (tmp_path / "below-theory.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows) == 6
    about = json.loads((tmp_path / "below-theory.json").read_text())
    assert about["rows"] == rows
    assert about["command"] == "e3rl dreem --below-theory --family tree --runs 2 --models 10 --policies 8"
    works = still_works(rows, 0.9)
    assert works[0] == {"family": "tree", "phi_rule": "theorem", "largest_shrink": 1.0, "n": rows[0]["n"]}


def run(argv, capsys):
    code = cli.main(argv)
    out, err = capsys.readouterr()
    return code, out, err


def test_cli_certify_json(capsys, tmp_path):
    argv = ["dreem", "--certify", "--runs", "2", "--models", "8", "--policies", "8", "--json"]
    code, out, err = run([*argv, "--out", str(tmp_path)], capsys)
    report = json.loads(out)
    assert (code, err) == (0, "")
    assert report["runs"] == 2
    assert {"failures", "true_model_eliminated", "rounds_max", "rounds_bound"} <= set(report)
    assert json.loads((tmp_path / "certify.json").read_text())["rows"] == [report]
    code, out, _ = run([*argv, "--family", "all", "--doubling"], capsys)
    assert json.loads(out)["runs"] == 8


def test_cli_one_run_and_theory(capsys):
    code, out, _ = run(["dreem", "--family", "tree", "--models", "8", "--n", "1e12"], capsys)
    assert code == 0
    assert "v_explore" in out
    code, out, _ = run(["dreem", "--models", "8", "--json"], capsys)
    assert json.loads(out)["finished"]
    sizes = ["--horizon", "3", "--actions", "2", "--rank", "4", "--models", "30", "--policies", "94"]
    code, out, _ = run(["theory", *sizes, "--epsilon", "0.1", "--delta", "0.1", "--json"], capsys)
    assert json.loads(out)["n"] > 10**11
    code, out, _ = run(["theory", *sizes, "--epsilon", "0.1", "--delta", "0.1"], capsys)
    assert "dominates" in out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["dreem", "--epsilon", "0"], "epsilon must lie in (0, 1]"),
        (["dreem", "--certify", "--runs", "0"], "runs must be at least 1"),
        (["dreem", "--models", "0"], "model class is empty"),
        (["dreem", "--policies", "-1"], "at least 0"),
        (["dreem", "--seed", "-1"], "seed must be"),
        (["dreem", "--n", "inf"], "not a whole number"),
        (["dreem", "--n", "1e30"], "n must be from 1"),
        (["dreem", "--n", "50"], "realizability failed"),
        (["dreem", "--family", "nonsense"], "nonsense"),
        (["dreem", "--family", "all"], "--family all goes with"),
        (["dreem", "--doubling"], "--doubling goes with --certify"),
        (["dreem", "--certify", "--n", "5"], "--n and --phi are for one run"),
    ],
)
def test_cli_errors_are_one_line(argv, words, capsys):
    code, out, err = run(argv, capsys)
    assert code == 2
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
