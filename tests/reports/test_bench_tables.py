"""Tables and numbers of `e3rl bench` follow whatever rows its files have."""

from pathlib import Path

import pytest

from e3rl.reports.bench_tables import TABLES, recorded, target_of
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.numbers import number
from e3rl.reports.results import Result
from e3rl.types import UserError

MACHINE = {
    "cpu": "Abacus", "cpus_used": 1, "python": "3.11.7", "commit": "0123456789abcdef",
    "versions": {"e3rl": "0.1.0", "jax": "0.10.2", "torch": "2.13.0+cpu", "stable-baselines3": None},
}  # fmt: skip


def bench_row(name, ours, theirs=None, **more):
    ratio = None if theirs is None else theirs / ours
    yardstick = None if theirs is None else "theirs"
    return {
        "name": name,
        "ours_s": ours,
        "yardstick": yardstick,
        "yardstick_s": theirs,
        "ratio": ratio,
        **more,
    }


def evidence(name, rows, **about):
    whole = {"rows": rows, "command": f"e3rl bench {name}", "config": {}, "machine": MACHINE, **about}
    return Evidence({f"bench/{name}": Result(Path(f"{name}.json"), whole)})


PLANS = [
    bench_row("neural/plan/zero/fresh", 0.0255, 0.1012, ours_best_s=0.02, yardstick_best_s=0.09),
    bench_row("neural/plan/zero/common", 0.02, 0.1, ours_best_s=0.02, yardstick_best_s=0.1),
]


def test_a_new_row_has_its_line():
    fits = [
        bench_row(f"neural/fit/{name}", 2e-3, 5e-3, sgemm_fraction=0.25) for name in ("100-updates", "e3rl")
    ]
    table = list(
        TABLES["bench neural"](evidence("neural", [*PLANS, *fits, bench_row("neural/growth/H=5", 1.0)]))
    )
    assert table[0].startswith("| row | ours | eager PyTorch | ratio | target | share of sgemm rate |")
    assert table[1:5] == [
        "| plan/zero/fresh | 25.5 ms | 101 ms | 3.97× | 4× |  |",
        "| plan/zero/common | 20 ms | 100 ms | 5.00× | 4× |  |",
        "| fit/100-updates | 2 ms | 5 ms | 2.50× | 2× | 25% |",
        "| fit/e3rl | 2 ms | 5 ms | 2.50× |  | 25% |",
    ]
    assert table[5:] == [
        "",
        "Recorded by `e3rl bench neural` at commit `0123456` on one CPU (Abacus, Python 3.11.7, jax 0.10.2, "
        "torch 2.13.0).",
    ]


def test_a_column_of_later_recordings_stands_where_there_is_something_in_it():
    runs = [bench_row("start/demo/warm", 9.0, first_episode_s=3.0)]
    seeds = {"first_episode_s": 3.0, "sooner": 1.74}
    before = evidence("start", [*runs, bench_row("start/demo/seeds/x2", 10.0, **seeds)])
    assert "\n".join(TABLES["bench start"](before)).splitlines()[:4] == [
        "| run | first episode | all of it | sooner than in turn |",
        "|---|---|---|---|",
        "| demo/warm | 3 s | 9 s |  |",
        "| demo/seeds/x2 | 3 s | 10 s | 1.7× |",
    ]
    now = evidence("start", [*runs, bench_row("start/demo/seeds/x2", 10.0, **seeds, over_one_cpu=1.86)])
    assert "\n".join(TABLES["bench start"](now)).splitlines()[:4] == [
        "| run | first episode | all of it | sooner than in turn | sooner than on one CPU |",
        "|---|---|---|---|---|",
        "| demo/warm | 3 s | 9 s |  |  |",
        "| demo/seeds/x2 | 3 s | 10 s | 1.7× | 1.9× |",
    ]


def test_what_was_found_on_the_way_is_said():
    about = {"command": "e3rl bench neural", "config": {"sgemm_gflops": 80.4}, "machine": MACHINE}
    assert recorded(about).endswith("torch 2.13.0), numpy's sgemm at 80 GFLOP/s.")
    dirty = {**MACHINE, "commit": "0123456789abcdef-dirty"}
    later = {**about, "config": {}, "machine": dirty, "measured": {"sgemm_gflops": 90.0, "wall_s": 361.2}}
    assert "at commit `0123456-dirty` on" in recorded(later)
    assert recorded(later).endswith(", numpy's sgemm at 90 GFLOP/s, in 6 minutes.")


def test_a_target_is_of_a_row_or_of_all_below():
    assert target_of("control/graph_search") == 20
    assert target_of("control/graph_search_500") is None
    assert target_of("neural/plan/any/thing") == 4


def test_a_table_across():
    rows = [
        bench_row(f"envs/{env}/{copies}", 0.5, steps_per_second=speed)
        for env, copies, speed in (("Maze-v0", "x1", 2e6), ("Maze-v0", "x8", 3e6), ("Lock-v0", "x1", 1e6))
    ]
    rows.append(bench_row("envs/python-env/overhead/x1", 4.0, 2.0))
    found = evidence("envs", rows)
    assert "\n".join(TABLES["bench envs"](found)).splitlines()[:4] == [
        "| environment | 1 copy | 8 copies |",
        "|---|---|---|",
        "| Maze-v0 | 2.00 | 3.00 |",
        "| Lock-v0 | 1.00 |  |",
    ]
    assert list(TABLES["bench envs beside Gymnasium"](found)) == []
    assert "| python-env/overhead/x1 | 4 s | 2 s | 0.50× | 1× |" in TABLES["bench envs overhead"](found)


def test_what_a_gpu_did():
    rows = [
        bench_row("accelerator/plan-h20/one-by-one/x10", 0.0425, per_seed_s=0.00425),
        bench_row("accelerator/lock-h20-30h/x40", 96.0, per_seed_s=2.4, solved=39, episodes=24_000),
    ]
    assert list(TABLES["bench accelerator"](evidence("accelerator", rows)))[1:3] == [
        "| plan-h20/one-by-one, 10 | 42.5 ms | 4.25 ms |  |",
        "| lock-h20-30h, 40 | 96 s | 2.4 s | 39 of 40 |",
    ]


def test_what_sentences_say():
    found = evidence("neural", PLANS)
    assert number("bench-target neural/plan/", found) == "1 of 2"
    assert number("bench-target neural/plan/ missed", found) == "plan/zero/fresh (3.97×)"
    assert number("bench-target neural/plan/zero/common missed", found) == "none"
    assert number("bench-more neural/plan/ fresh common", found) == "27"
    assert number("bench-ratio neural/plan/ yardstick_best_s ours_best_s", found) == "4.5 to 5.0"
    assert number("bench neural/plan/ ours_s 1 1000", found) == "20.0 to 25.5"
    with pytest.raises(UserError, match="a page tells of neural/tea, which `e3rl bench` has not recorded"):
        number("bench neural/tea", found)


def test_a_sentence_about_age_does_not_outlive_the_data():
    found = evidence("neural", PLANS)
    assert number("as-of bench/neural 0123456", found) == "0123456"
    with pytest.raises(
        UserError, match="bench/neural is of commit 0123456 by now: a page still tells of fedcba9"
    ):
        number("as-of bench/neural fedcba9", found)
