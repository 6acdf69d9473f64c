from __future__ import annotations

from interlock.model.secret import secret_texts


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
