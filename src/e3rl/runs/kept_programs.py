"""Compiled programs, kept from one process to the next: compiling takes longer than a short run.

JAX does the keeping; here is where, how much, and a word about it. Nothing of this happens on import: `e3rl train`,
`e3rl reproduce` and `agent.learn` ask for it. What the user has said of JAX's own cache stays as it is.
"""

import contextlib
import os
from collections import Counter
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

LARGEST = 1_000_000_000
"""Bytes that are kept; beyond, what was not used for longest goes first."""
LONG_ENOUGH, JAX_LONG_ENOUGH = 0.0, 1.0
"""Seconds of compiling that are worth a file, here and by JAX's own default."""
HIT, ASKED = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/compile_requests_use_cache"

_counted: Counter[str] = Counter()


def keep_compiled_programs() -> None:
    """From now on in this process, unless JAX_ENABLE_COMPILATION_CACHE=false or there is no place for it."""
    if not _setting("enable_compilation_cache"):
        return
    if _setting("compilation_cache_dir") is None:
        folder = _own_folder()
        if folder is None:
            return
        _make_room(folder)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        compilation_cache.reset_cache()  # otherwise nothing changes once something was compiled
    if _setting("persistent_cache_min_compile_time_secs") == JAX_LONG_ENOUGH:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", LONG_ENOUGH)
    if ASKED not in _counted:
        _counted[ASKED] = 0
        jax.monitoring.register_event_listener(_count)


def compiled_so_far() -> Counter[str]:
    """In this process and those that it counts, since programs are kept."""
    return _counted.copy()


def also_compiled(more: Counter[str]) -> None:
    """By a process that works for this one."""
    _counted.update(more)


def what_became_of_compiling(before: Counter[str]) -> str:
    """Whether programs since then came from those that are kept, for people; nothing where none are."""
    folder, since = _setting("compilation_cache_dir"), _counted - before
    if folder is None or not since[ASKED]:
        return ""
    if since[HIT] > since[ASKED] // 2:
        return f"programs were taken from {folder}, where they had been kept"
    return f"compiled; programs are kept in {folder} for the next time"


def _setting(name: str) -> Any:
    return getattr(jax.config, f"jax_{name}")  # by name: JAX has no types for these


def _count(event: str, **_: object) -> None:
    if event in (HIT, ASKED):
        _counted[event] += 1


def _own_folder() -> Path | None:
    """Where e3rl keeps them; None for a user without a home, as in some containers, or who may not write there."""
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home) / "e3rl" / "jax"
        folder.mkdir(parents=True, exist_ok=True)
    except (RuntimeError, OSError):
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def _make_room(folder: Path) -> None:
    """Forget what was not used for longest, and what a full disk has left empty. Another process that looks for it at
    the same time compiles it again."""
    with contextlib.suppress(OSError):  # somebody else is at it
        found = [(path, path.stat()) for path in folder.iterdir()]
        found.sort(key=lambda file: max(file[1].st_atime, file[1].st_mtime), reverse=True)
        total = 0
        for path, about in found:
            total += about.st_size
            if total > LARGEST or about.st_size == 0:
                path.unlink(missing_ok=True)
