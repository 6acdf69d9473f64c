from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan.configurations import WHOLE

from interlock.model.durations import spelled_duration
from interlock.model.plan import EnvGroup, SecretSource
from interlock.plan.config import Config, merge_config
from interlock.plan.config_check import check_config
from interlock.plan.config_parse import MAX_BYTES, masked, parse_config
from interlock.plan.diagnose import render
from interlock.plan.durations import parse_duration


def faults(text: str) -> str:
    return "\n".join(map(render, parse_config(text.encode(), "interlock.toml")[1]))


def test_a_whole_configuration_is_read() -> None:
    config, diagnostics = parse_config(WHOLE, "interlock.toml")
    assert diagnostics == ()
    assert check_config(config, lambda: ("claude", "pi"))[1] == ()
    assert config.run.python == (".venv/bin/python",)
    assert (config.run.timeout_ms, config.run.idle_timeout_ms) == (90_000, None)
    assert config.engines["fast"].api_key == "FAST_KEY"
    assert config.models == {"deep": {"claude": "claude-opus-5", "*": "big-1"}}
    assert config.env["staging"] == EnvGroup(
        name="staging",
        vars=("DEPLOY_REGION",),
        dotenv=(".env.staging",),
        secrets=(
            SecretSource(name="DEPLOY_TOKEN", command=("pass", "show", "deploy")),
            SecretSource(name="API_KEY", var="STAGING_API_KEY"),
        ),
    )
    limits = config.plan_limits()
    assert (limits.max_result_bytes, limits.max_concurrency, limits.max_items) == (2048, 8, 100_000)


def test_an_empty_file_is_an_empty_configuration() -> None:
    assert parse_config(b"", "interlock.toml") == (Config(), ())


def test_an_unknown_key_is_pointed_at_with_the_nearest_one() -> None:
    assert faults('[run]\npyton = "x"\n') == (
        "interlock.toml:2:1: error: unknown key 'pyton' in [run]\n"
        '    2 | pyton = "x"\n'
        "      | ^~~~~\n"
        "hint: did you mean 'python'?"
    )


def test_several_faults_are_reported_at_once() -> None:
    _, found = parse_config(b"[run]\nmax_concurrency = 0\n[limit]\n[env.a]\nvars = 3\n[engines.x]\n", "f")
    assert [(d.line, d.column, d.code, d.message) for d in found] == [
        (2, 19, "wrong-type", "'max_concurrency' must be a whole number from 1 to 256, not the number 0"),
        (3, 2, "unknown-key", "unknown key 'limit' in the configuration"),
        (
            5,
            8,
            "wrong-type",
            "'vars' must be a list of names of variables, none of them INTERLOCK_..., not the number 3",
        ),
        (6, 10, "missing-key", "[engines.x] needs 'kind'"),
    ]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("run = 3", "'run' must be a table, not the number 3", ""),
        ("[run]\nengine = true", "'engine' must be text, not true", ""),
        ('[run]\nengine = ""', "'engine' must be text, not an empty text", ""),
        ("[run]\nengine = 1979-05-27", "'engine' must be text, not a date or time", ""),
        ("[run]\nengine = {}", "'engine' must be text, not a table", ""),
        ("[run]\nengine = []", "'engine' must be text, not a list", ""),
        (
            '[run]\ntimeout = "5 minutes"',
            "'timeout' must be a duration such as '90s', '10m' or 'none', not '5 minutes'",
            "",
        ),
        ("[run]\ntimeout = 0", "'timeout' must be a duration such as '90s', '10m' or 'none', not the number 0", ""),
        ("[env]\nx = 3", "[env.x] must be a table, not the number 3", ""),
        ('[env."a b"]', "'a b' can't be a name in [env]", "use letters, digits, '_' and '-'"),
        ('[env.a]\nvars = ["A B"]', "'vars' must be a list of names of variables, none of them INTERLOCK_...", ""),
        (
            '[env.a]\nvars = ["INTERLOCK_RUN_ID"]',
            "'vars' must be a list of names of variables, none of them INTERLOCK_...",
            "",
        ),
        ('[env.a.secrets]\n"A B" = { var = "X" }', "'A B' can't be the name of a secret's variable", ""),
        (
            "[env.a.secrets]\nA = {}",
            "secret 'A' needs either 'command' or 'var'",
            'write A = { command = ["program", "argument"] } or A = { var = "NAME" }',
        ),
        (
            '[env.a.secrets]\nA = { var = "X", command = ["y"] }',
            "secret 'A' needs either 'command' or 'var'",
            'write A = { command = ["program", "argument"] } or A = { var = "NAME" }',
        ),
        ('[env.a.secrets]\nA = { vra = "X" }', "unknown key 'vra' in secret 'A'", "did you mean 'var'?"),
        (
            '[engines.a]\nkind = "llm"\napi = "opnai"',
            "'api' must be 'anthropic', 'gemini' or 'openai', not 'opnai'",
            "did you mean 'openai'?",
        ),
        ('[engines.a]\nkind = "llm"', "[engines.a] needs 'api'", "'api' is 'anthropic', 'gemini' or 'openai'"),
        (
            '[engines.a]\nkind = "agent"\nagent = "command"',
            "[engines.a] needs 'command', since its agent is 'command'",
            'write command = ["program", "argument"]',
        ),
        (
            '[engines.a]\nkind = "llm"\napi = "openai"\nagnt = 1',
            "unknown key 'agnt' in [engines.a]",
            "use 'kind', 'model', 'api_key', 'base_url', 'concurrency', 'reserve_tokens' or 'api'",
        ),
        (
            '[engines.a]\nkind = "agent"\nagent = "pi"\noutput = "json"',
            "'output' is for agent 'command'; what 'pi' answers is known",
            "remove it",
        ),
        (
            '[engines.a]\nkind = "llm"\napi = "openai"\nbase_url = "localhost:80"',
            "'base_url' must be an http:// or https:// address without a user, a password or a query, not 'localhost:80'",
            "",
        ),
        (
            "[run]\njudge_clip_chars = 5",
            "'judge_clip_chars' must be a whole number from 100 to 1,000,000, not the number 5",
            "",
        ),
        ("[models.deep]\nclaude = 5", "'claude' must be text, not the number 5", ""),
        (
            "[limits]\nmax_items = 100001",
            "'max_items' must be a whole number from 1 to 100,000, not the number 100001",
            "",
        ),
        (
            '[run]\njournal = "$JOURNAL_URL"',
            "this version keeps its journal in SQLite only",
            'write journal = "sqlite", or leave it out',
        ),
        (
            '[run]\nexecutor = "ray"',
            "this version runs work on the local machine only",
            'write executor = "local", or leave it out',
        ),
        ('[run]\njournal = "sqlit"', "'journal' must be 'sqlite', not 'sqlit'", "did you mean 'sqlite'?"),
        ('[run]\nexecutor = "locl"', "'executor' must be 'local', not 'locl'", "did you mean 'local'?"),
        ("a = ", "not TOML: invalid value", ""),
        ("a = 1\na = 2", "not TOML: cannot overwrite a value", ""),
        ("x = " + "[" * 50_000, "nested too deeply", ""),
    ],
)
def test_each_fault_says_what_was_wanted(text: str, message: str, hint: str) -> None:
    _, found = parse_config(text.encode(), "interlock.toml")
    assert [(d.message, d.hint) for d in found] == [(message, hint)]


def test_what_has_faults_is_left_out_and_the_rest_is_kept() -> None:
    config, _ = parse_config(b'[run]\nengine = 3\njudge = "fast"\n[engines.x]\nkind = "no"\n', "f")
    assert config.run.judge == "fast"
    assert config.engines == {}


def test_an_api_key_that_is_no_variable_is_refused_and_never_shown() -> None:
    text = '[engines.fast]\nkind = "llm"\napi = "openai"\napi_key = "sk-very-secret"\n'
    assert faults(text) == (
        "interlock.toml:4:1: error: 'api_key' must be a variable's name with a '$' before it, never a value\n"
        '    4 | api_key = "..."\n'
        "      | ^~~~~~~\n"
        'hint: keep the key in a variable and write api_key = "$FAST_KEY"'
    )


@pytest.mark.parametrize(
    "text",
    [
        '[engines.a]\nkind = "llm"\napi = "openai"\napikey = "hunter22"',
        '[engines.a]\nkind = "llm"\napi = "openai"\napi_key = hunter22',
        'api_key = "hunter22',
        "TOKEN = 'hunter22",
        "password = '''hunter22'''\nb = ",
        '[run]\njournal = "postgresql://user:hunter22@host/db"',
        '[engines.a]\nkind = "llm"\napi = "openai"\nbase_url = "https://me:hunter22@host/v1"',
        '[engines.a]\nkind = "llm"\napi = "openai"\nbase_url = "https://host/v1?api_key=hunter22"',
        '[env.a]\nsecrets = { X = "hunter22" }',
        '[env.a]\nsecrets = { X = "hunter22", Y = 1 }\nz = 1',
        '[env]\na = { secrets = { X = "hunter22" }, zz = 1 }',
        "[env.a.secrets]\nX = 'hunter22'",
        '[env.a.secrts]\nX = "hunter22"',
        '[env.a]\nsecrts = { X = "hunter22" }',
        '[evn.a.secrets]\nX = "hunter22"',
        '[env.a]\nX = "hunter22"',
        '[env]\nX = "hunter22"',
        '[env.a.secrets]\nX = ["hunter22"]',
        '[env.a.secrets]\nX = { vra = "hunter22" }',
        '[env.a.secrets]\nX = { var = "hunter22-" }',
        '[settings]\nX = "hunter22"',
        'X = "hunter22"',
        'settings = { X = "hunter22" }',
        '[engines.a]\nkind = "agent"\nagent = "claude"\nenv = { X = "hunter22" }',
    ],
)
def test_no_diagnostic_shows_a_secret(text: str) -> None:
    shown = faults(text)
    assert "error" in shown
    assert "hunter22" not in shown


def test_the_name_of_a_variable_is_shown() -> None:
    assert masked('api_key = "$KEY"') == 'api_key = "$KEY"'
    assert masked('secrets = { API_KEY = { var = "X" } }') == 'secrets = { API_KEY = { var = "X" } }'


def test_files_that_are_no_text_are_refused() -> None:
    assert faults("") == ""
    _, (found,) = parse_config(b"#" * (MAX_BYTES + 1), "f")
    assert found.code == "too-large"


@pytest.mark.parametrize(
    ("text", "line", "column", "source_line"),
    [
        (b"a = 1\nb = '\xff'\n", 2, 6, "b = '\N{REPLACEMENT CHARACTER}'"),
        (
            b'\xef\xbb\xbfa = 1\r\n\r\nname = "caf\xc3\xa9 caf\xe9" # y\n',
            3,
            17,
            'name = ".... ...\N{REPLACEMENT CHARACTER}" . .',
        ),
        (b'api_key = "sk-\xff"\n', 1, 15, 'api_key = "...\N{REPLACEMENT CHARACTER}"'),
        (b"# caf\xe9\n", 1, 6, "# caf\N{REPLACEMENT CHARACTER}"),
        (b"t = [\n'secret\xe9'\n]", 2, 8, "'......\N{REPLACEMENT CHARACTER}'"),
        (b"[r\xfcn]\n", 1, 3, "[r\N{REPLACEMENT CHARACTER}n]"),
    ],
)
def test_a_byte_that_is_not_utf8_is_shown_at_its_place_but_no_value_is(
    text: bytes, line: int, column: int, source_line: str
) -> None:
    config, (found,) = parse_config(text, "f")
    assert (found.line, found.column, found.source_line) == (line, column, source_line)
    assert (found.code, found.hint) == ("not-utf8", "save the file as UTF-8")
    assert found.message.startswith("not UTF-8: byte 0x")
    assert config.doubts("engines.any")


def test_a_configuration_in_utf16_is_named_as_such() -> None:
    _, (found,) = parse_config("[run]\n".encode("utf-16"), "f")
    assert (found.line, found.column, found.hint) == (1, 1, "the file is UTF-16; save it as UTF-8")


def test_a_bom_and_crlf_change_nothing() -> None:
    plain, _ = parse_config(b"[limits]\nmax_items = 3\n", "f")
    windows, _ = parse_config(b"\xef\xbb\xbf[limits]\r\nmax_items = 3\r\n", "f")
    assert plain == windows


def test_the_project_lies_over_the_user_key_by_key_and_table_by_table() -> None:
    user, _ = parse_config(
        b'[run]\nengine = "a"\nmax_concurrency = 3\n[engines.a]\nkind = "llm"\napi = "openai"\nmodel = "m"\n'
        b"[limits]\nmax_items = 5\n",
        "user.toml",
    )
    project, _ = parse_config(
        b'[run]\nengine = "b"\n[engines.a]\nkind = "agent"\nagent = "codex"\n[limits]\nmax_result_bytes = 9\n', "p.toml"
    )
    both = merge_config(user, project)
    assert (both.run.engine, both.run.max_concurrency) == ("b", 3)
    assert (both.engines["a"].agent, both.engines["a"].model) == ("codex", None)
    assert both.limits == {"max_items": 5, "max_result_bytes": 9}
    assert {key: origin.file for key, origin in both.origins.items()} == {
        "run.engine": "p.toml",
        "run.max_concurrency": "user.toml",
        "engines.a.kind": "p.toml",
        "engines.a.agent": "p.toml",
        "limits.max_items": "user.toml",
        "limits.max_result_bytes": "p.toml",
    }


def test_the_vendors_own_endpoint_has_a_key_in_the_vendors_own_variable() -> None:
    def key_of(more: str) -> str | None:
        return parse_config(f'[engines.a]\nkind = "llm"\n{more}'.encode(), "f")[0].engines["a"].api_key

    assert key_of('api = "openai"') == "OPENAI_API_KEY"
    assert key_of('api = "anthropic"') == "ANTHROPIC_API_KEY"
    assert key_of('api = "gemini"\nmodel = "m"') == "GEMINI_API_KEY"
    assert key_of('api = "openai"\napi_key = "$MINE"') == "MINE"
    assert key_of('api = "openai"\nbase_url = "http://127.0.0.1:1"') is None
    assert parse_config(b'[engines.a]\nkind = "agent"\nagent = "codex"', "f")[0].engines["a"].api_key is None


@given(st.one_of(st.none(), st.integers(1, 2**53)))
def test_a_duration_is_spelled_as_it_is_read(duration_ms: int | None) -> None:
    assert parse_duration(spelled_duration(duration_ms)) == duration_ms


_WORDS = st.sampled_from(
    [
        "[run]",
        "[engines.a]",
        "[env.x]",
        "\n",
        "=",
        '"',
        "'",
        "engine",
        "kind",
        "api_key",
        "vars",
        "[",
        "]",
        "{",
        "}",
        "3",
        ",",
        ".",
        "#",
        " ",
        "secrets",
        '"""',
        "\\",
        "é",
    ]
)


@given(st.one_of(st.binary(max_size=60), st.lists(_WORDS, max_size=30).map(lambda parts: "".join(parts).encode())))
def test_no_bytes_raise(text: bytes) -> None:
    for found in parse_config(text, "f")[1]:
        assert render(found)
