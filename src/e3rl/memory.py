"""How much memory something would take, from shapes alone, and how much there is: asked before any is allocated."""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from e3rl.types import UserError

CGROUP = Path("/sys/fs/cgroup")
CGROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)
"""What a container is granted and has taken, and what of that is cached files that give way, in the two versions of the
kernel's interface."""
UNWRITTEN = {"broadcast_in_dim", "iota", "reshape", "convert_element_type", "squeeze", "expand_dims"}
"""Operations whose results a compiler never writes down on their own."""


def available() -> float:
    """Bytes that this process may still take, of the device that it computes on and of the machine."""
    return min(_of_the_machine(), _of_the_device())


def _of_the_machine() -> float:
    limits = [math.inf]
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            limits.append(1024.0 * int(line.split()[1]))
    if len(limits) == 1 and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
    for most, now, details, cached in CGROUP_FILES:
        granted, used = _read(CGROUP / most).strip(), _read(CGROUP / now).strip()
        if granted.isdecimal() and used.isdecimal():
            lines = [line.split() for line in _read(CGROUP / details).splitlines()]
            gives_way = sum(int(line[1]) for line in lines if line[:1] == [cached])
            limits.append(float(max(int(granted) - int(used) + gives_way, 0)))
    return min(limits)


def _of_the_device() -> float:
    if jax.default_backend() == "cpu":
        return math.inf
    stats = jax.local_devices()[0].memory_stats() or {}
    return float(stats["bytes_limit"] - stats.get("bytes_in_use", 0)) if "bytes_limit" in stats else math.inf


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def size_of(tree: Any) -> int:
    """Bytes of the arrays in a tree, or of what only has their shapes."""
    return sum(_bytes(leaf) for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape"))


def _bytes(leaf: Any) -> int:
    itemsize = getattr(leaf.dtype, "itemsize", 8)  # those of keys have one of their own
    return math.prod(leaf.shape) * int(itemsize)


def largest_step(function: Callable[..., Any], *shapes: Any) -> int:
    """Bytes of the largest thing that `function` makes on the way, read off its program without running it."""
    return _largest(jax.make_jaxpr(function)(*shapes).jaxpr)


def _largest(program: Any) -> int:
    most = 0
    for line in program.eqns:
        inner = [_largest(each) for each in _programs(line.params)]
        if not inner and line.primitive.name not in UNWRITTEN:
            inner = [sum(_bytes(out.aval) for out in line.outvars if hasattr(out.aval, "shape"))]
        elif inner:  # what a loop gathers is written down too
            inner.append(sum(_bytes(out.aval) for out in line.outvars if hasattr(out.aval, "shape")))
        most = max(most, *inner, 0)
    return most


def _programs(params: Mapping[str, Any]) -> Iterator[Any]:
    """The programs inside an operation, such as a loop's body."""
    for value in params.values():
        for each in value if isinstance(value, list | tuple) else [value]:
            inner = getattr(each, "jaxpr", each)
            if hasattr(inner, "eqns"):
                yield inner


def words(size: int | float) -> str:
    """Bytes as people say them."""
    for unit, power in (("EiB", 60), ("PiB", 50), ("TiB", 40), ("GiB", 30)):
        if size >= 2**power:
            return f"{size / 2**power:.3g} {unit}" if size < 2**70 else f"{size / 2**60:.1e} EiB"
    return f"{size / 2**20:.3g} MiB"


def refuse_too_large(what: str, needs: Mapping[str, int | float], lower: Callable[[], str]) -> None:
    """An error where the parts of something do not fit together: how much it is, how much there is, what to lower."""
    total, there = sum(needs.values()), available()
    if total <= there:
        return
    parts = sorted(((size, name) for name, size in needs.items() if size > 0.01 * total), reverse=True)
    listed = f" ({', '.join(f'{name} {words(size)}' for size, name in parts)})" if len(parts) > 1 else ""
    raise UserError(
        f"{what} would take {words(total)} of memory{listed}, and there is {words(there)}: lower {lower()}"
    )
