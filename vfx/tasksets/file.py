"""Prompts and answers from a JSONL or CSV file: an evaluation without any code."""

import csv
import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from vfx.authoring.hooks import reward
from vfx.authoring.task import Task
from vfx.authoring.taskset import Taskset
from vfx.authoring.text import numbers
from vfx.errors import ConfigError, Mistake
from vfx.trace.record import Trace

__all__ = ["File", "FileTask", "Match"]

Match = Literal["exact", "contains", "number"]
Row = tuple[int, Mapping[str, Any]]
"""The number of a line, from 1, and what it holds."""

MAX_FIELD_CHARS = 2**31 - 1


class FileTask(Task):
    """One row."""

    answer: str
    match: Match
    case_sensitive: bool

    @reward
    def correct(self, trace: Trace) -> float:
        """1 when the reply matches the answer."""
        return float(self.matches(trace.last_reply))

    def matches(self, reply: str) -> bool:
        """Whether a reply is the answer, has it as words of its own, or ends with it as its last number."""
        if self.match == "number":
            given, [expected, *_] = numbers(reply), numbers(self.answer)
            return bool(given) and math.isclose(given[-1], expected, rel_tol=1e-9)
        reply, answer = reply.strip(), self.answer.strip()
        if not self.case_sensitive:
            reply, answer = reply.casefold(), answer.casefold()
        if self.match == "exact":
            return reply == answer
        return re.search(rf"(?<!\w){re.escape(answer)}(?!\w|[.,]\d)", reply) is not None


class File(Taskset[FileTask]):
    """Rows of a file: `vfx eval file --taskset.path data.jsonl`. Columns that are not named here are left alone."""

    path: Path
    """A UTF-8 file: `.jsonl` with an object on each line, `.csv` or `.tsv` with a header."""
    prompt_column: str = "prompt"
    """The column with the prompt: text, or in JSONL also a list of messages."""
    answer_column: str = "answer"
    """The column with the answer: text, or in JSONL also a number."""
    id_column: str = "id"
    """The column with a name for each task; it may be missing."""
    match: Match = "exact"
    """How a reply is compared: it is the answer, it contains it as words of its own, or its last number is equal."""
    case_sensitive: bool = False
    """Whether capital letters differ from small ones."""

    def load(self) -> Iterator[FileTask]:
        """The rows as tasks, read as they are needed.

        Raises:
            ConfigError: The file can't be read, or a row is not as expected.
        """
        try:
            for line, row in self._rows():
                yield self._task(line, row)
        except OSError as error:
            raise ConfigError(Mistake(f"can't be read: {error.strerror}", f"--taskset.path {self.path}")) from error

    def _rows(self) -> Iterator[Row]:
        kind = self.path.suffix.lower()
        if kind in (".jsonl", ".ndjson"):
            return self._json_rows()
        if kind in (".csv", ".tsv"):
            return self._csv_rows("\t" if kind == ".tsv" else ",")
        expected = f"expected a file that ends in .jsonl, .csv or .tsv, found {self.path.name!r}"
        raise ConfigError(Mistake(expected, "--taskset.path"))

    def _json_rows(self) -> Iterator[Row]:
        # As bytes, since only the newline ends a line of JSON: text may hold other separators.
        with self.path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                    row: Any = json.loads(text) if text.strip() else None
                except UnicodeDecodeError as error:
                    raise self._mistake(number, f"expected UTF-8, found byte {raw[error.start]:#04x}") from error
                except ValueError as error:
                    raise self._mistake(number, f"expected a JSON object: {error}") from error
                if isinstance(row, dict):
                    yield number, cast("dict[str, Any]", row)
                elif text.strip():
                    raise self._mistake(number, f"expected a JSON object, found {_shown(row)}")

    def _csv_rows(self, delimiter: str) -> Iterator[Row]:
        csv.field_size_limit(MAX_FIELD_CHARS)
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter=delimiter, strict=True)
            start = 1
            try:
                for row in reader:
                    number, start = max(start, 2), reader.line_num + 1
                    if None in row:
                        raise self._mistake(number, f"expected {len(reader.fieldnames or ())} columns, found more")
                    if None in row.values():
                        raise self._mistake(number, f"expected {len(reader.fieldnames or ())} columns, found fewer")
                    yield number, row
            except UnicodeDecodeError as error:
                raise self._mistake(start, "expected UTF-8, found something else here or below") from error
            except csv.Error as error:
                raise self._mistake(start, f"expected CSV: {error}") from error

    def _task(self, line: int, row: Mapping[str, Any]) -> FileTask:
        prompt, answer = self._cell(line, row, self.prompt_column), self._cell(line, row, self.answer_column)
        if isinstance(answer, bool) or not isinstance(answer, str | int | float):
            raise self._mistake(line, f"{self.answer_column}: expected text or a number, found {_shown(answer)}")
        answer = str(answer)
        if self.match == "number" and len(numbers(answer)) != 1:
            raise self._mistake(line, f"{self.answer_column}: expected one number, found {_shown(answer)}")
        if self.match == "contains" and not answer.strip():
            raise self._mistake(line, f"{self.answer_column}: expected text, found none, which every reply contains")
        if not isinstance(prompt, str | list):
            raise self._mistake(line, f"{self.prompt_column}: expected text or messages, found {_shown(prompt)}")
        name = row.get(self.id_column)
        fields: dict[str, Any] = {"answer": answer, "match": self.match, "case_sensitive": self.case_sensitive}
        try:
            task = FileTask(prompt=cast("Any", prompt), id=None if name in (None, "") else str(name), **fields)
            task.messages()
        except ValueError as error:
            expected = f"{self.prompt_column}: expected text or a list of messages"
            raise self._mistake(line, f"{expected}: {str(error).splitlines()[0]}") from error
        return task

    def _cell(self, line: int, row: Mapping[str, Any], column: str) -> Any:
        if column in row:
            return row[column]
        near = difflib.get_close_matches(column, row, n=1)
        option = "prompt" if column == self.prompt_column else "answer"
        columns = f"did you mean {near[0]}?" if near else f"it has: {', '.join(map(str, row))}"
        raise self._mistake(line, f"has no {column!r}", f"{columns}; --taskset.{option}-column names another")

    def _mistake(self, line: int, what: str, hint: str = "") -> ConfigError:
        return ConfigError(Mistake(what, f"{self.path}, line {line}", hint))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f"{value[:60]!r}"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return "null" if value is None else f"{value!r:.60}"
