"""One writer for each run folder: a file with the writer's process id, held locked for as long as that lives."""

import os
import socket
from pathlib import Path

from e3rl.types import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


class FolderLock:
    """The lock of one folder. The system lets go of it when its process ends, however that comes about; where a file
    system has no such locks, the process id in the file says whether its writer still lives."""

    def __init__(self, folder: Path):
        self.path = folder / NAME
        self._file: int | None = None

    def acquire(self) -> None:
        while self._file is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                opened = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            except OSError as error:
                raise UserError(f"cannot write {self.path}: {error.strerror or error}") from error
            try:
                if not self._is_free(opened):
                    raise UserError(
                        f"{self.path.parent} is in use by {_writer(opened)}: wait for it, or give another --out"
                    )
                os.ftruncate(opened, 0)
                os.pwrite(opened, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
            except BaseException as error:
                os.close(opened)
                if isinstance(error, OSError):
                    raise UserError(f"cannot write {self.path}: {error.strerror or error}") from error
                raise
            if self._is_there(opened):
                self._file = opened
            else:  # the writer before has removed it just now
                os.close(opened)

    def _is_free(self, opened: int) -> bool:
        if fcntl is not None:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                return False
            except OSError:  # a file system without locks
                pass
        pid, host = _read(opened)
        return pid is None or host != socket.gethostname() or not _lives(pid)

    def _is_there(self, opened: int) -> bool:
        try:
            return os.path.samestat(os.fstat(opened), self.path.stat())
        except OSError:
            return False

    def release(self) -> None:
        if self._file is None:
            return
        opened, self._file = self._file, None
        try:
            self.path.unlink(missing_ok=True)
        except OSError:  # such as a mount that is gone: unlocked all the same
            pass
        finally:
            os.close(opened)

    def __del__(self) -> None:
        self.release()


def _read(opened: int) -> tuple[int | None, str]:
    words = os.pread(opened, 500, 0).decode(errors="replace").split()
    if not words or not words[0].isdecimal():
        return None, ""
    return int(words[0]), words[1] if len(words) > 1 else ""


def _writer(opened: int) -> str:
    pid, host = _read(opened)
    if pid is None:
        return "another process"
    return f"process {pid}" if host == socket.gethostname() else f"process {pid} on {host}"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True
