"""Reads what clients saw of a recorded load: when each stream started, every chunk, how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from midstream.lab._lines import RecordingError, RecordingLine, read_lines


@dataclass(frozen=True, slots=True)
class ObservedStream:
    """One stream as its client saw it. Times are seconds from the start of the load."""

    id: int
    start_s: float
    times_s: tuple[float, ...]
    end_s: float
    finish: str
    prompt_tokens: int
    answer_tokens: int

    @property
    def longest_gap_s(self) -> float:
        """The longest gap between two chunks; 0 if there were fewer than two."""
        return max((b - a for a, b in zip(self.times_s, self.times_s[1:], strict=False)), default=0.0)


@dataclass(frozen=True, slots=True)
class ObservedLoad:
    """All streams of one load, in the order in which they started."""

    name: str
    streams: tuple[ObservedStream, ...]

    @property
    def wall_s(self) -> float:
        """When the last stream ended."""
        return max(stream.end_s for stream in self.streams)


def read_load(file: Path) -> ObservedLoad:
    """Read a `*.jsonl` file with one stream a line; raises RecordingError if it cannot be used."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RecordingError(f"there is no file {file}; check the path") from None
    except UnicodeDecodeError:
        raise RecordingError(f"{file} is not text in UTF-8; recordings are files of JSON lines") from None
    except OSError as error:
        raise RecordingError(f"{file} cannot be read: {error.strerror}") from error
    streams = [_stream(line) for line in read_lines(text, str(file))]
    return ObservedLoad(file.stem, tuple(sorted(streams, key=lambda stream: (stream.start_s, stream.id))))


def _stream(line: RecordingLine) -> ObservedStream:
    start = line.seconds("start")
    given = line.fields.get("times")
    if not isinstance(given, list) or not given:
        raise line.wrong(
            "`times` must list the arrival of every content chunk; leave out a stream without any"
        )
    times: list[float] = []
    for value in given:
        times.append(line.in_order("times", value, times[-1] if times else start))
    usage = line.fields.get("usage")
    if not isinstance(usage, list) or len(usage) != 2 or not all(type(n) is int and n > 0 for n in usage):
        raise line.wrong("`usage` must be [prompt tokens, completion tokens], both above 0")
    number = line.fields.get("i")
    if type(number) is not int:
        raise line.wrong("`i` must be the stream's number")
    return ObservedStream(
        id=number,
        start_s=start,
        times_s=tuple(times),
        end_s=line.seconds("end", not_before=times[-1]),
        finish=line.text("finish"),
        prompt_tokens=usage[0],
        answer_tokens=usage[1],
    )
