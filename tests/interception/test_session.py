import pytest

from tests.interception.stage import new_session
from vfx.errors import DriftError, InterceptionError, ProviderError, TaskError
from vfx.interception.session import Limits, Refusal, Session, Turn
from vfx.messages import Completion, Message, Usage


def answer(text: str = "ok", usage: Usage | None = None) -> Completion:
    return Completion((Message("assistant", text),), ("stop",), usage or Usage(10, 5))


def admitted(session: Session, text: str = "hi") -> Turn:
    turn = session.admit()
    assert isinstance(turn, Turn)
    turn.prompt = [Message("user", text)]
    return turn


def test_limit_counts_turns_under_way() -> None:
    session = new_session(limits=Limits(max_turns=3))
    turns = [admitted(session) for _ in range(3)]
    assert session.admit() == Refusal("max_turns")
    for turn in turns:
        session.commit(turn, answer())
    assert session.trace.num_turns == 3


def test_turns_are_left_until_a_limit_is_reached() -> None:
    session = new_session(limits=Limits(max_turns=2))
    session.commit(admitted(session), answer())
    assert session.has_turns_left()
    session.commit(admitted(session), answer())
    assert not session.has_turns_left()
    assert session.trace.stop_condition == "max_turns"


@pytest.mark.parametrize("settle", ["fail", "hang_up", "abandon"])
def test_turn_that_came_to_nothing_is_not_counted(settle: str) -> None:
    session = new_session(limits=Limits(max_turns=1))
    turn = admitted(session)
    if settle == "fail":
        session.fail(turn, ProviderError("no"))
    elif settle == "hang_up":
        session.hang_up(turn)
    else:
        session.abandon(turn)
    session.commit(admitted(session), answer())
    assert session.admit() == Refusal("max_turns")


@pytest.mark.parametrize(
    ("limits", "condition"),
    [
        (Limits(max_input_tokens=20), "max_input_tokens"),
        (Limits(max_output_tokens=10), "max_output_tokens"),
        (Limits(max_total_tokens=30), "max_total_tokens"),
    ],
)
def test_token_limits_count_what_was_billed(limits: Limits, condition: str) -> None:
    session = new_session(limits=limits)
    session.commit(admitted(session), answer())
    turn = admitted(session)
    # A stream that broke off was billed too, though it is no turn.
    session.fail(turn, ProviderError("cut"), partial=answer())
    assert session.admit() == Refusal(condition)
    assert session.trace.stop_condition == condition


def test_unknown_usage_reaches_no_limit() -> None:
    session = new_session(limits=Limits(max_total_tokens=1))
    session.commit(admitted(session), answer(usage=Usage()))
    assert isinstance(session.admit(), Turn)


def test_first_settlement_counts() -> None:
    session = new_session()
    turn = admitted(session)
    session.commit(turn, answer())
    session.fail(turn, ProviderError("late"))
    session.hang_up(turn)
    session.commit(turn, answer())
    assert len(session.trace.calls) == session.trace.num_turns == 1
    assert session.error is None


def test_program_that_goes_away_is_no_cause_and_hides_none() -> None:
    session = new_session()
    session.hang_up(admitted(session), text="par")
    assert session.error is None
    error = ProviderError("HTTP 500")
    session.fail(admitted(session), error)
    session.hang_up(admitted(session))
    assert session.error is error
    assert [call.error and call.error.kind for call in session.trace.calls] == [
        "interception",
        "provider",
        "interception",
    ]
    assert session.trace.calls[0].partial == "par"


def test_interception_error_that_is_ours_is_a_cause() -> None:
    session = new_session()
    session.fail(admitted(session), error := InterceptionError("bug"))
    assert session.error is error


def test_overlong_prompt_is_a_stop_and_no_error() -> None:
    session = new_session()
    session.fail(admitted(session), ProviderError("too long", truncated=True))
    assert session.error is None
    assert session.admit() == Refusal("context_length")


def test_given_up_rollout_refuses_and_is_not_stopped() -> None:
    session = new_session()
    session.give_up(TaskError("stop 'x': KeyError"))
    refusal = session.admit()
    assert isinstance(refusal, Refusal)
    assert refusal.message == "rollout failed: stop 'x': KeyError"
    assert session.trace.stop_condition is None


def test_drift_is_for_good_whatever_is_answered_after_it() -> None:
    session = new_session()
    drifting, other = admitted(session), admitted(session, "asked at the same time")
    session.fail(drifting, drift := DriftError("drift: it differs", is_final=True))
    session.commit(other, answer())
    assert session.error is drift
    assert session.admit() == Refusal("drift: it differs", is_stop=False)


def test_first_stop_condition_stays() -> None:
    session = new_session()
    first, second = admitted(session), admitted(session)
    assert session.stop("solved", first) == session.stop("bored", second) == Refusal("solved")
    assert session.admit() == Refusal("solved")


def test_nothing_changes_after_the_end() -> None:
    session = new_session()
    turn, other = admitted(session), admitted(session)
    session.close()
    session.commit(turn, answer())
    session.fail(other, ProviderError("late"))
    assert session.trace.calls == []
    assert session.error is None
    assert isinstance(session.admit(), Refusal)


def test_secrets_are_long_and_differ() -> None:
    secrets = {new_session().api_key for _ in range(50)}
    assert len(secrets) == 50
    assert min(map(len, secrets)) >= 32


def failed(session: Session, status: int = 500, *, attempts: int = 2, turn: Turn | None = None) -> None:
    turn = turn or admitted(session)
    turn.attempts = attempts
    session.fail(turn, ProviderError("no", status=status))


def test_the_same_failure_again_and_again_is_taken_for_the_next_one_too() -> None:
    session = new_session()
    for _ in range(3):
        assert not session.fails_for_good
        failed(session)
    assert session.fails_for_good
    session.commit(admitted(session), answer())
    assert not session.fails_for_good


def test_failures_that_differ_or_were_not_tried_again_or_came_together_may_pass() -> None:
    session = new_session()
    for status in (500, 503, 500):
        failed(session, status)
    assert not session.fails_for_good
    session = new_session()
    for _ in range(3):
        failed(session, attempts=1)
    assert not session.fails_for_good
    session = new_session()
    for turn in [admitted(session) for _ in range(3)]:
        failed(session, turn=turn)
    assert not session.fails_for_good
