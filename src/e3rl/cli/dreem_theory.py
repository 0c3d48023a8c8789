"""`e3rl theory` and `e3rl dreem`."""

import argparse
import json
import sys
from pathlib import Path

from e3rl.cli.output import short, table
from e3rl.types import UserError


def theory(args: argparse.Namespace) -> int:
    from e3rl.dreem.theory import constants

    found = constants(
        args.horizon, args.actions, args.rank, args.epsilon, args.delta, args.models, args.policies, args.beta
    )
    if args.json:
        print(json.dumps(found.as_dict()))
        return 0
    table(
        ["constant", "value", "meaning"],
        [
            ["φ", f"{found.phi:.6g}", "models with a larger empirical misfit are eliminated"],
            ["T", f"{found.rounds:.6g}", "rounds at most"],
            ["n", f"{found.n:.6g}", "trajectories per step and round"],
            ["n, paper", f"{found.paper_n:.6g}", "the same for test functions that need the true model"],
            ["total", f"{found.total:.6g}", "trajectories: n · T · H, a set of its own for every step"],
            ["total, paper", f"{found.paper_total:.6g}", "trajectories: n · T, counted as in the paper"],
        ],
    )
    factors = ", ".join(f"{name} = {value:.3g}" for name, value in found.terms.items())
    print(f"n is the product of {factors}; {found.dominant} dominates")
    return 0


def dreem(args: argparse.Namespace) -> int:
    """Three modes: certify the theorem, measure how far below its n it works, or one run round by round."""
    from e3rl.dreem.certify import FAMILIES, certify, certify_all

    many = args.certify or args.below_theory
    if many and (args.n is not None or args.phi is not None):
        raise UserError("--n and --phi are for one run: --certify and --below-theory set them")
    if args.doubling and not args.certify:
        raise UserError("--doubling goes with --certify")
    if args.family == "all" and not many:
        raise UserError("--family all goes with --certify or --below-theory")
    names = list(FAMILIES) if args.family == "all" else [args.family]
    options = {
        "models": args.models, "extra_policies": args.policies, "epsilon": args.epsilon, "delta": args.delta,
        "seed": args.seed,
    }  # fmt: skip
    if args.below_theory:
        from e3rl.experiments.dreem_certify import below_theory, still_works

        rows = below_theory(
            args.out or Path("results/dreem"),
            lambda line: print(line, file=sys.stderr, flush=True),
            args.runs,
            names,
            **options,
        )
        works = still_works(rows, 1.0 - args.delta)
        if args.json:
            print(json.dumps({"rows": rows, "still_works": works}))
            return 0
        table(
            ["family", "φ", "works down to n /", "n"],
            [[short(row[key]) for key in ("family", "phi_rule", "largest_shrink", "n")] for row in works],
        )
        return 0
    if not args.certify:
        return _dreem_once(args, names[0])
    options["doubling"] = args.doubling
    found = (
        certify(names[0], args.runs, **options)
        if len(names) == 1
        else certify_all(names, args.runs, **options)
    )
    if args.out is not None:
        from e3rl.experiments.dreem_certify import save

        kept = found.get("families", [found])
        save("certify-doubling" if args.doubling else "certify", args.out, kept, options)
    if args.json:
        print(json.dumps(found))
        return 0
    columns = [
        "family",
        "runs",
        "failures",
        "true_model_eliminated",
        "rounds_max",
        "rounds_bound",
        "trajectories_max",
    ]
    table(
        ["family", "runs", "failures", "M* eliminated", "rounds", "bound T", "trajectories"],
        [[short(row[name]) for name in columns] for row in found.get("families", [found])],
    )
    for row in found.get("families", [found]):
        print(f"{row['family']}: models left after each round, on average:", *row["models_left_per_round"])
    return 0


def _dreem_once(args: argparse.Namespace, name: str) -> int:
    from e3rl.dreem.algorithm import Dreem, policy_return
    from e3rl.dreem.certify import make_problem

    problem = make_problem(name, args.models, args.policies, args.seed)
    agent = Dreem(
        problem.models,
        problem.policies,
        epsilon=args.epsilon,
        delta=args.delta,
        rank=problem.rank,
        n=args.n,
        phi=args.phi,
    )
    result = agent.learn(problem.env, args.seed)
    optimum, reached = problem.env.optimal_return, policy_return(problem.env, result.policy)
    if args.json:
        more = {"return": reached, "optimal_return": optimum, "n": agent.n, "phi": agent.phi, "family": name}
        print(json.dumps(result.as_dict() | more))
        return 0
    table(
        ["round", "v_explore", "policy", "models before", "models left"],
        [
            [str(t), f"{row.v_explore:.4f}", str(row.policy), str(row.models_before), str(row.models_left)]
            for t, row in enumerate(result.rounds, 1)
        ],
    )
    end = "≤ ε/|A|: exploit" if result.finished else "but the rounds are used up"
    print(f"v_explore {result.v_explore:.4g} {end}; n = {agent.n:.3g}, φ = {agent.phi:.3g}")
    print(f"return {reached:.4f} of at most {optimum:.4f}, after {result.trajectories:.3g} trajectories")
    return 0
