"""A connection that is not defined, and one that cannot be looked up while Airflow's API server is away."""

from __future__ import annotations

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_provider_fluss.hooks.fluss import FlussHook

AWAY = ErrorResponse(error=ErrorType.API_SERVER_ERROR)
NOT_FOUND = ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND)


class Supervisor:
    """Answers a task as its supervisor does: some errors are answers, and some are raised."""

    def __init__(self, answer: ErrorResponse | Exception) -> None:
        self._answer = answer

    def send(self, message: object) -> ErrorResponse:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.fixture
def supervisor(monkeypatch):
    def answers(answer: ErrorResponse | Exception) -> None:
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(answer), raising=False)

    return answers


@pytest.mark.parametrize("answer", [AWAY, AirflowRuntimeError(AWAY), EOFError("the supervisor is gone")])
def test_an_outage_of_the_api_server_is_tried_again(supervisor, answer):  # D61, D67
    supervisor(answer)
    with pytest.raises(AirflowException, match=r"^Connection 'other' cannot be looked up at present: ") as raised:
        FlussHook("other").get_client()
    assert not isinstance(raised.value, AirflowFailException)


@pytest.mark.parametrize("answer", [NOT_FOUND, AirflowRuntimeError(NOT_FOUND)])
def test_a_connection_that_is_not_defined_is_not_tried_again(supervisor, answer):  # D67
    supervisor(answer)
    with pytest.raises(AirflowFailException, match=r"^Connection 'other' is not defined: "):
        FlussHook("other").get_client()
