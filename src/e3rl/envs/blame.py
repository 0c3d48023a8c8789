"""Where in somebody else's code an error arose, in a few words."""

import contextlib
import sysconfig
import traceback
from pathlib import Path

HERE = str(Path(__file__).parents[1])
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
RAISED = (Exception, SystemExit)
"""What an environment may raise without ending the process of whoever plays it."""


def told(error: BaseException) -> str:
    """Kind and text of an error on one line, with the file and line of the author's own code that it came from."""
    text = " ".join(str(error).split())
    named = f"{type(error).__name__}: {text}" if text else type(error).__name__
    place = None if isinstance(error, SyntaxError) else _place(error)  # which names its place itself
    return f"{named} ({place})" if place else named


def _place(error: BaseException) -> str | None:
    """Of the frames that an error came through, the innermost that is neither ours nor a library's; where an
    environment is itself a library, the innermost that is not ours."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename[:1] != "<"]
    theirs = [frame for frame in frames if not frame.filename.startswith(HERE)]
    own = [frame for frame in theirs if not frame.filename.startswith(LIBRARIES)]
    if not theirs:
        return None
    frame = (own or theirs)[-1]
    path = Path(frame.filename)
    with contextlib.suppress(ValueError, OSError):
        path = path.relative_to(Path.cwd())
    return f"{path}, line {frame.lineno}"
