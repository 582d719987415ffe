"""Sessions end at their limits and are bounded."""

from __future__ import annotations

from streamad.web.login.sessions import Sessions
from tests.support.web.logins import Seconds


def sessions_of(clock: Seconds) -> Sessions:
    return Sessions(idle_s=10.0, whole_s=100.0, clock=clock)


def test_one_ends_without_use_and_a_renewal_is_none(clock: Seconds) -> None:
    sessions = sessions_of(clock)
    token = sessions.begin("kim", "hash")
    clock.now_s += 9.0
    assert sessions.find(token, is_use=True) is not None
    clock.now_s += 9.0
    assert sessions.find(token, is_use=False) is not None
    clock.now_s += 1.0
    assert sessions.find(token, is_use=True) is None
    assert len(sessions) == 0


def test_one_ends_however_much_it_is_used(clock: Seconds) -> None:
    sessions = sessions_of(clock)
    token = sessions.begin("kim", "hash")
    for _ in range(99):
        clock.now_s += 1.0
        assert sessions.find(token, is_use=True) is not None
    clock.now_s += 1.0
    assert sessions.find(token, is_use=True) is None


def test_tokens_are_new_and_long_and_not_kept(clock: Seconds) -> None:
    sessions = sessions_of(clock)
    tokens = {sessions.begin("kim", "hash") for _ in range(20)}
    assert len(tokens) == 20
    assert min(map(len, tokens)) >= 43
    assert not any(token in repr(vars(sessions)) for token in tokens)


def test_a_user_has_twenty_and_the_one_used_longest_ago_ends(clock: Seconds) -> None:
    sessions = sessions_of(clock)
    other = sessions.begin("lee", "hash")
    tokens = []
    for _ in range(20):
        clock.now_s += 0.1
        tokens.append(sessions.begin("kim", "hash"))
    sessions.find(tokens[0], is_use=True)
    sessions.begin("kim", "hash")
    assert sessions.find(tokens[1], is_use=False) is None
    assert sessions.find(tokens[0], is_use=False) is not None
    assert sessions.find(other, is_use=False) is not None


def test_all_together_are_bounded_and_ended_ones_make_room(clock: Seconds) -> None:
    sessions = sessions_of(clock)
    for i in range(1_100):
        sessions.begin(f"user {i}", "hash")
    assert len(sessions) == 1_000
    clock.now_s += 10.0
    sessions.begin("kim", "hash")
    assert len(sessions) == 1
