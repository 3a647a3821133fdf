"""What can go wrong between us and a cluster, sorted by what the caller can do about it.

An answer of the API server that is not a success is an `ApiError` with its status and reason: the caller knows which
of them are expected. No answer at all is a `TransientClusterError`: whether the request was carried out is unknown.
Settings with which no answer can ever come are a `PermanentClusterError`, said in one line.
"""

from __future__ import annotations

import re
from http import HTTPStatus

from fairbind.model.errors import FairbindError

_RETRYABLE = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,  # the credentials are read anew after it
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)

MAX_RETRY_AFTER_SECONDS = 20.0
"""No server makes anyone wait longer at once, whatever it asks for: a mistyped header must not cost a day."""

_RIGHT_MISSING = re.compile(r'User "[^"]*" cannot \S+ resource ')


class TransientClusterError(FairbindError):
    """No answer: a connection refused, lost or timed out. The request may or may not have been carried out."""


class NotSentError(TransientClusterError):
    """No answer, and certainly nothing was carried out: the request never left us."""


class AnswerTooLargeError(TransientClusterError):
    """A page of a list is larger than one may be; it was not read to its end. A page of fewer objects is smaller."""


class PermanentClusterError(FairbindError):
    """The settings cannot work, whatever time passes. The message is one line that names the setting."""


class ApiError(FairbindError):
    """An answer of the API server that is not a success.

    status: the HTTP status. reason: the machine-readable word of the Status object ("Conflict", "Expired"), or the
    HTTP phrase when the body was something else. message: for people. retry_after: seconds that the server asks us to
    wait, at most `MAX_RETRY_AFTER_SECONDS`; None when it asks for nothing, or for no positive number.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = min(retry_after, MAX_RETRY_AFTER_SECONDS) if retry_after and retry_after > 0 else None

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed later without any change."""
        return self.status in _RETRYABLE


def is_namespace_ending(error: ApiError) -> bool:
    """Tell whether something could not be made because its namespace is being deleted; only the message says so."""
    return error.status == HTTPStatus.FORBIDDEN and "is being terminated" in error.message


def is_webhook_refusing(error: ApiError) -> bool:
    """Tell whether an admission webhook gave this answer, which may have any status; it is about this object only."""
    return "admission webhook" in error.message


def is_right_missing(error: ApiError) -> bool:
    """Tell whether we lack a right; what a quota or an admission policy forbids has the same status and reason."""
    return error.status == HTTPStatus.FORBIDDEN and _RIGHT_MISSING.search(error.message) is not None
