"""One line of the table: our figure, a rival's in the same run, and the bar for their ratio."""

from __future__ import annotations

from typing import NamedTuple, Union


class Row(NamedTuple):
    """``ours / theirs`` must be at least (``>=``) or at most (``<=``) the limit."""

    name: str
    ours: float
    unit: str
    against: str
    theirs: float
    sign: str  # ">=" for speeds, "<=" for durations and sizes
    limit: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs if self.theirs else float("inf")

    @property
    def bar(self) -> str:
        return f"{self.sign} {self.limit:g}"

    @property
    def holds(self) -> bool:
        if self.sign not in {">=", "<="}:
            raise ValueError(f"{self.name}: a bar is >= or <=, not {self.sign}")
        return self.ratio >= self.limit if self.sign == ">=" else self.ratio <= self.limit

    def cells(self) -> tuple[str, ...]:
        """The row as the table shows it."""
        ours, theirs = (f"{shown(value)} {self.unit}" for value in (self.ours, self.theirs))
        holds = "yes" if self.holds else "NO"
        return (self.name, ours, self.against, theirs, f"{self.ratio:.2f}", self.bar, holds)

    def as_json(self) -> dict[str, Union[str, float, bool]]:
        """The row as --json writes it."""
        return {
            "name": self.name,
            "ours": self.ours,
            "unit": self.unit,
            "against": self.against,
            "theirs": self.theirs,
            "ratio": round(self.ratio, 4),
            "bar": self.bar,
            "holds": self.holds,
        }


def shown(value: float) -> str:
    """A number with the digits that matter."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
