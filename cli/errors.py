"""Errors that the command line shows in plain words, with exit code 1.

CliError
├── NotReachable     the coordinator does not answer
├── ProblemAnswer    the coordinator answered with a problem (RFC 9457)
├── InvalidFile      a file that the user named cannot be used
├── SettingMissing   a URL or token that a command needs was not given
└── RunNotCompleted  a watched run ended in another way than completed

What is wrong on the command line itself is click's UsageError, exit code 2.
"""

from typing import Any


class CliError(Exception):
    """Root of the tree; the message is for the user."""

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {"type": f"/problems/{type(self).__name__}", "detail": str(self)}


class NotReachable(CliError):
    """The coordinator does not answer."""


class InvalidFile(CliError):
    """A file that the user named cannot be used."""


class SettingMissing(CliError):
    """A URL or token that a command needs was not given."""


class RunNotCompleted(CliError):
    """A watched run ended in another way than completed."""


class ProblemAnswer(CliError):
    """The coordinator answered with a problem document."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(describe_problem(status, problem))
        self.status = status
        self.problem = problem

    @property
    def name(self) -> str:
        """The last part of the problem's type, such as `plan-refused`."""
        return str(self.problem.get("type", "")).rsplit("/", 1)[-1]

    def document(self) -> dict[str, Any]:
        """Return the coordinator's own document."""
        return self.problem


def describe_problem(status: int, problem: dict[str, Any]) -> str:
    """Write a problem document as text: what, got, expected, ids, reasons, one a line."""
    head = problem.get("detail") or problem.get("title") or "no details were given"
    reasons = [str(reason) for reason in problem.get("reasons") or []]
    if reasons and head == "; ".join(reasons):
        head = problem.get("title") or "refused"
    name = str(problem.get("type", "")).rsplit("/", 1)[-1] or "unnamed"
    lines = [f"{head} ({status} {name})"]
    lines += [
        f"  {key}: {problem[key]}" for key in ("got", "expected") if problem.get(key) is not None
    ]
    lines += [f"  {key}: {value}" for key, value in (problem.get("ids") or {}).items()]
    lines += [f"  - {reason}" for reason in reasons]
    return "\n".join(lines)
