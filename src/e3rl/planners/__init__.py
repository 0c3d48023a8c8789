"""Planners: who explores, and who exploits; utilities: what for."""

from e3rl.planners.base import AbstractPlanner
from e3rl.planners.exploit_dqn import OfflineDqn
from e3rl.planners.exploit_value import ImaginedValue
from e3rl.planners.graph_search import GraphSearch
from e3rl.planners.mcts import TreeSearch
from e3rl.planners.state_graph import StateGraph
from e3rl.planners.unified import UnifiedPlanner
from e3rl.planners.uniform import Uniform
from e3rl.planners.utility import AbstractUtility, Hellinger, Joint, Marginal, Mean, Squared
from e3rl.planners.value import ValuePlanner
from e3rl.registry import Registry

PLANNERS: Registry[type[AbstractPlanner]] = Registry(
    "planner",
    "e3rl.planners",
    {
        "value": ValuePlanner,
        "unified": UnifiedPlanner,
        "graph": GraphSearch,
        "states": StateGraph,
        "mcts": TreeSearch,
        "uniform": Uniform,
    },
)

EXPLOITERS: Registry[type[AbstractPlanner]] = Registry(
    "exploiter",
    "e3rl.exploiters",
    {
        "value": ImaginedValue,
        "dqn": OfflineDqn,
        "graph": GraphSearch,
        "states": StateGraph,
        "mcts": TreeSearch,
    },
)

UTILITIES: Registry[type[AbstractUtility]] = Registry(
    "utility",
    "e3rl.utilities",
    {
        "marginal": Marginal,
        "mean": Mean,
        "hellinger": Hellinger,
        "joint": Joint,
        "squared": Squared,
    },
)
