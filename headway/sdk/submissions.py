"""A submission from what people write: plain values by key, checked against what a submission may contain."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headway.core.task import Submission
from headway.sdk.errors import SubmissionError

KEYS = tuple(field.name for field in msgspec.structs.fields(Submission))


def submission(said: Mapping[str, object]) -> Submission:
    """The submission said by key; raises SubmissionError that says which key is wrong."""
    try:
        return msgspec.convert(dict(said), Submission)
    except msgspec.ValidationError as error:
        raise SubmissionError(f"{wrong_key(said) or 'the submission'}: {error}") from None


def wrong_key(said: Mapping[str, object]) -> str | None:
    """The first key whose value cannot be."""
    for key, value in said.items():
        try:
            msgspec.convert({key: value}, Submission)
        except msgspec.ValidationError:
            return key
    return None
