from __future__ import annotations

import pytest

from interlock.model.secret import named_secret, secret_keys, secret_texts, without_secrets


def test_each_text_of_a_named_param_is_told_with_its_name_wherever_it_lies() -> None:
    params = {
        "token": "correct-horse",
        "keys": {"first": ["one", {"deep": "two"}], "number": 1.5, "flag": True, "none": None},
        "pin": 12345,
        "open": "everybody knows",
    }
    assert secret_texts(["token", "keys", "pin", "not given"], params) == [
        ("token", "correct-horse"),
        ("keys", "one"),
        ("keys", "two"),
        ("keys", "1.5"),
        ("pin", "12345"),
    ]


def test_without_names_there_is_no_secret() -> None:
    assert secret_texts([], {"token": "correct-horse"}) == []


CFG = {
    "host": "db.example",
    "password": "hunter2-hunter2",
    "users": [{"name": "ann", "apiKey": "key-of-ann"}, {"name": "bob", "api-key": 1234567}],
    "max_tokens": 99,
    "token": None,
}


def test_keys_within_a_param_that_look_like_secrets_are_told_by_their_paths() -> None:
    assert secret_texts([], {"cfg": CFG, "list": [[{"secret": {"deep": "value"}}]]}) == [
        ("cfg.password", "hunter2-hunter2"),
        ("cfg.users.apiKey", "key-of-ann"),
        ("cfg.users.api-key", "1234567"),
        ("list.secret", "value"),
    ]
    assert list(secret_keys("cfg", CFG)) == ["cfg.password", "cfg.users.apiKey", "cfg.users.api-key"]


def test_what_such_keys_hold_is_left_out_and_the_rest_stays() -> None:
    assert without_secrets("cfg", CFG) == {
        "host": "db.example",
        "password": "[redacted:cfg.password]",
        "users": [
            {"name": "ann", "apiKey": "[redacted:cfg.users.apiKey]"},
            {"name": "bob", "api-key": "[redacted:cfg.users.api-key]"},
        ],
        "max_tokens": 99,
        "token": None,
    }


@pytest.mark.parametrize(
    ("name", "secret"), [("dbPassword", True), ("DB_TOKEN", True), ("max_tokens", False), ("key", False)]
)
def test_a_name_tells_whether_it_is_that_of_a_secret(name: str, secret: bool) -> None:  # noqa: FBT001 - a column of the table
    assert named_secret(name) is secret
