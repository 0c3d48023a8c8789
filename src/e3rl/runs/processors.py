"""The processors of this machine that a process may use, and who gets which."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def processors() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def shares(available: Sequence[int], workers: int) -> list[set[int]]:
    """Processors for every worker: of their own, where there are enough."""
    if workers >= len(available):
        return [{available[i % len(available)]} for i in range(workers)]
    return [set(available[i::workers]) for i in range(workers)]


@contextmanager
def bound_to(own: set[int]) -> Iterator[None]:
    """Processes that are started inside, by this thread, may use these processors alone: from their first moment on,
    since libraries ask but once how many there are."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, own)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
