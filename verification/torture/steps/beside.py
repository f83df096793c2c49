"""What happens in the lake while rounds run: maintenance, and a user who deletes rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torture.makers.predicates import Question
from torture.plan import Step
from torture.steps.deletes import delete_statement
from torture.steps.running import Running


@dataclass
class Beside:
    """A command for the driver, which it does while rounds run.

    Attributes:
        run: The plan that runs.
        table: The name of the table.
        command: The command, with its arguments.
        question: Which rows of the table are deleted; None if it is maintenance.
    """

    run: Running
    table: str
    command: dict[str, Any]
    question: Question | None = None

    @property
    def changes_rows(self) -> bool:
        """Whether rounds of the table may fail for it and have to be repeated."""
        return self.question is not None

    def happened(self, answer: dict[str, Any]) -> None:
        """Tell the model of what the command did.

        Args:
            answer: What the driver answered; with an error, nothing was done.
        """
        tally = self.run.tally
        if answer["error"]:
            # Each of the two may lose against the other.
            tally.refused[f"{self.command['do']} beside a round: {answer['error'][:90]}"] += 1
        else:
            tally.counts[f"{self.command['do']} beside a round"] += 1
        if self.question is not None and not answer["error"]:
            self.run.models[self.table].deleted_in_lake(self.question.holds, beside_round=True)


def beside_of(run: Running, step: Step) -> Beside | None:
    """Return what a step wants beside its rounds; None for nothing, or if the lake table does not exist."""
    planned = step.get("beside")
    if planned is None or planned["table"] not in run.lake_exists:
        return None
    name = planned["table"]
    if planned["what"] != "delete":
        return Beside(run, name, {"do": "maintain", "table": run.path(name), "what": planned["what"]})
    chosen = delete_statement(run, name, planned["seed"])
    if chosen is None:
        return None
    question, text = chosen
    return Beside(run, name, {"do": "change", "table": run.path(name), "text": text}, question)
