"""Every step in order, so that another agent can go on where a table cannot. Equal observations are kept once."""

from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from e3rl.envs.encoding import Encoding
from e3rl.runs.handover import Steps

LARGEST = 2**30
"""Bytes of observations that are kept."""


class Log:
    """Steps by the numbers of their observations."""

    def __init__(self, encoding: Encoding):
        self._encoding = encoding
        self._index: dict[bytes, int] = {}
        self._frames: list[bytes] = []
        self._steps: Float[np.ndarray, "n 6"] = np.zeros((64, 6))
        self.size = 0
        """Steps so far."""

    @property
    def full(self) -> bool:
        return bool(self._frames) and len(self._frames) * len(self._frames[0]) > LARGEST

    def add(self, obs: Any, action: int, time: int, reward: float, next_obs: Any, terminated: bool) -> None:
        if self.size == len(self._steps):
            self._steps = np.concatenate([self._steps, np.zeros_like(self._steps)])
        step = (self._number(obs), action, time, reward, self._number(next_obs), terminated)
        self._steps[self.size] = step
        self.size += 1

    def _number(self, obs: Float[np.ndarray, "*obs"]) -> int:
        frame = compact(self._encoding, obs)
        number = self._index.setdefault(frame, len(self._frames))
        if number == len(self._frames):
            self._frames.append(frame)
        return number

    def steps(self) -> Steps:
        frames = np.stack([restored(self._encoding, frame) for frame in self._frames])
        obs, action, time, reward, following, terminated = self._steps[: self.size].T
        before, after = (frames[numbers.astype(int)] for numbers in (obs, following))
        numbers = action.astype(np.int32), time.astype(np.int32), reward.astype(np.float32)
        return Steps(before, *numbers, after, terminated.astype(bool))

    def arrays(self) -> dict[str, np.ndarray]:
        size = len(self._frames[0]) if self._frames else 0
        frames = np.frombuffer(b"".join(self._frames), np.uint8).reshape(len(self._frames), size)
        return {"log_frames": frames, "log_steps": self._steps[: self.size].copy()}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        self._frames = [frame.tobytes() for frame in arrays.pop("log_frames")]
        self._index = {frame: number for number, frame in enumerate(self._frames)}
        self._steps = np.concatenate([steps := arrays.pop("log_steps"), np.zeros((64, 6))])
        self.size = len(steps)


def compact(encoding: Encoding, obs: Float[np.ndarray, "*obs"]) -> bytes:
    """An observation in few bytes: the number of a category, a bit for a bit, four bytes for a number."""
    flat, parts = obs.reshape(-1), []
    for kind, start, stop in encoding.parts:
        if kind == "categorical":
            parts.append(np.int32(np.argmax(flat[start:stop])).tobytes())
        elif kind == "binary":
            parts.append(np.packbits(flat[start:stop] > 0.5).tobytes())
        else:
            parts.append((flat[start:stop].astype(np.float32) + np.float32(0.0)).tobytes())
    return b"".join(parts)


def restored(encoding: Encoding, frame: bytes) -> Float[np.ndarray, "*obs"]:
    flat, place = np.zeros(encoding.parts[-1].stop, np.float32), 0
    data: UInt8[np.ndarray, " n"] = np.frombuffer(frame, np.uint8)
    for kind, start, stop in encoding.parts:
        size = (
            4
            if kind == "categorical"
            else -(-(stop - start) // 8)
            if kind == "binary"
            else 4 * (stop - start)
        )
        part, place = data[place : place + size], place + size
        if kind == "categorical":
            flat[start + int(part.view(np.int32)[0])] = 1.0
        elif kind == "binary":
            flat[start:stop] = np.unpackbits(part)[: stop - start]
        else:
            flat[start:stop] = part.copy().view(np.float32)
    return flat.reshape(encoding.shape)
