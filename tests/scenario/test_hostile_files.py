"""Scenario files that somebody made to break, or that a machine made: refused in a few lines, or read."""

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sim.cli.commands import app
from sim.errors import UserError
from sim.scenario import refusals
from sim.scenario.scenario import load_scenario
from sim.scenario.sections.run import NAME_BYTES_MAX
from tests.scenario.texts import SMALL, changed, write

GOSSIP = 'name = "gossip"\nperiod = "500 ms"'


def check(path: Path | str, *options: str) -> Result:
    return CliRunner().invoke(app, ["check", str(path), *options])


def refusal(path: Path | str, *options: str) -> str:
    """What a refused scenario is answered with, on how few lines it may be."""
    result = check(path, *options)
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), result.exception
    assert max(map(len, result.output.splitlines())) < 1100
    return result.output


def counted(digits: str) -> str:
    return changed(SMALL, "count = 4", f"count = {digits}")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"x = {'[' * 50_000}{']' * 50_000}\n{SMALL}", "not valid TOML: maximum recursion depth"),
        (counted("9" * 5000), "not valid TOML: Exceeds the limit"),
        (counted("9" * 4000), "clients.count: a whole number must have at most 64 bits"),
        (changed(SMALL, '"20 ms"', f'"{"9" * 5000} ms"'), 'network.latency = "999'),
        (changed(SMALL, '"20 ms"', f'"{"ab " * 100_000}"'), 'network.latency = "ab ab'),
        (changed(SMALL, "[run]", f'[run]\nname = "{"x" * 300}"'), 'run.name = "xxx'),
        (changed(SMALL, GOSSIP, 'name = "a\\u0000\\u001b[31m.py:X"'), 'protocol.name = "'),
        (f'{SMALL}"a\\n{"b" * 10_000}" = 1\n', "devices.a\\nbbb"),
    ],
)  # fmt: skip
def test_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = write(tmp_path, text)
    answer = refusal(path)
    assert answer.startswith(f"{path}: {complaint}")
    assert answer.count("\n") == 1
    assert answer[:-1].isprintable()


WORD, WORDS = "y" * 100_000, "y y' " * 20_000


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (changed(SMALL, '"20 ms"', f'"{WORD}"'), 'write a number and one of us, ms, s,'),
        (changed(SMALL, '"20 ms"', f'"3 {WORD}"'), 'write a number and one of us, ms, s,'),
        (changed(SMALL, '"1 min"', f'"{WORDS}"'), 'is not a duration; write a number and one of us,'),
        (changed(SMALL, "count = 4", f'count = "{WORD}"'), "must be a whole number"),
        (changed(SMALL, "count = 4", f"count = 4\n{WORD} = 4"), "unknown key; allowed: count, "),
        (changed(SMALL, "count = 4", f"count = 4\n\"{WORDS}\" = 4"), "unknown key; allowed: count, "),
        (changed(SMALL, '"gossip"', f'"{WORDS}"'), "package.module:Class, or my_file.py:Class"),
        (changed(SMALL, '"gossip"', f'"{WORD}.py:Own"'), f"{WORD[:46]}.py"),
        (changed(SMALL, '"gossip"', f'"coterie_{WORD}:Own"'), "No module named 'coterie_yyy"),
        (changed(SMALL, '"digits"', f'"{WORD}"'), "adult, synthetic-regression, quadratic, arrays, table"),
    ],
)  # fmt: skip
def test_what_is_allowed_is_told_behind_a_value_of_any_length(
    tmp_path: Path, text: str, allowed: str
) -> None:
    answer = refusal(write(tmp_path, text))
    assert allowed in answer
    assert max(map(len, answer.splitlines())) < 700


@pytest.mark.parametrize("folder", ["/", ".", "..", ""])
def test_a_folder_is_no_scenario(folder: str) -> None:
    assert f"{Path(folder)}: cannot be read: it is a folder; name a scenario file in it\n" == refusal(folder)


def test_text_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "utf16.toml"
    path.write_bytes(SMALL.encode("utf-16"))
    assert refusal(path) == f"{path}: cannot be read: must be text in UTF-8, but byte 0 is 0xff\n"


def test_a_terabyte_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.touch()
    os.truncate(path, 1 << 40)
    assert refusal(path) == f"{path}: cannot be read: exceeds 4 MiB; must be smaller\n"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", ["check", "run", "schema"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, command: str) -> None:
    path = tmp_path / "pipe.toml"
    os.mkfifo(path)
    result = CliRunner().invoke(app, [command, str(path)])
    assert result.exit_code == 2
    assert result.output == (
        f"{path}: cannot be read: must be a regular file, not a folder, pipe or device\n"
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_a_device_is_not_read(tmp_path: Path, device: str) -> None:
    path = tmp_path / "link.toml"
    path.symlink_to(device)
    assert "cannot be read: must be a regular file" in refusal(path)


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "link.toml"
    path.symlink_to(write(tmp_path, SMALL))
    assert load_scenario(path).question.startswith("Does a small")


@pytest.mark.parametrize(
    ("before", "line"),
    [
        (f"{'.'.join('a' * 2000)} = 1\n", 1),
        (f"x = 1\n[{'.'.join('a' * 2000)}]\n", 2),
        ("\n\nx = { " + " . ".join(['"a b"'] * 40) + " = 1 }\n", 3),
    ],
)
def test_keys_of_very_many_parts_are_refused_before_they_are_parsed(
    tmp_path: Path, before: str, line: int
) -> None:
    path = write(tmp_path, before + SMALL)
    assert refusal(path).startswith(f"{path}: line {line}: not valid TOML: a key has more than 32 parts: ")


def test_dots_in_texts_are_no_parts_of_keys(tmp_path: Path) -> None:
    dots = f"{'...'.join('a' * 99)} {'. '.join(['a b'] * 99)}"
    assert dots in load_scenario(write(tmp_path, f"# {dots}\n{SMALL}")).question


@pytest.mark.parametrize("before", [f"x = {'{a = ' * 40}1{'}' * 40}\n", f"x = {'[' * 100}{']' * 100}\n"])
def test_what_is_nested_too_deeply_is_refused(tmp_path: Path, before: str) -> None:
    assert "tables or lists are nested too deeply" in refusal(write(tmp_path, before + SMALL))


def test_an_override_of_too_many_parts_is_refused(tmp_path: Path) -> None:
    answer = refusal(write(tmp_path, SMALL), "--set", f"{'.'.join('a' * 40)}=1")
    assert "the key has 40 parts; must have at most 32" in answer
    assert "nested too deeply" in refusal(write(tmp_path, SMALL), "--set", f"run.x={'[' * 40}{']' * 40}")


def test_only_the_mistakes_that_are_shown_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explained = []
    explain = refusals._explain

    def counting(*given: Any) -> Any:
        explained.append(given)
        return explain(*given)

    monkeypatch.setattr(refusals, "_explain", counting)
    answer = refusal(write(tmp_path, SMALL + "\n[[churn]]\n" * 3000))
    assert answer.endswith(": and 5,980 more problems\n")
    assert answer.count("\n") - 1 == 20 and len(explained) <= 40


def test_a_mark_of_utf8_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SMALL.encode())
    scenario = load_scenario(path)
    assert scenario == load_scenario(write(tmp_path, SMALL))
    assert scenario.question.startswith("Does a small")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("my scenario.toml", "my-scenario"),
        ("日本.toml", "日本"),
        ("cafe\u0301 (2).toml", "caf\u00e9-2"),
        ("a=b;c.toml", "a-b-c"),
        ("-.toml", "scenario"),
        ("_x.1.toml", "_x.1"),
    ],
)
def test_any_file_name_makes_a_name(tmp_path: Path, file: str, name: str) -> None:
    assert load_scenario(write(tmp_path, SMALL, file)).name == name


@pytest.mark.parametrize("name", ["", "a b", "../x", ".x", "-x", "a/b", "a\n", "x" * (NAME_BYTES_MAX + 1)])
def test_stated_names_are_refused_rather_than_changed(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, changed(SMALL, "[run]", "[run]\nname = '''" + name + "'''"))
    with pytest.raises(UserError, match=r"run\.name = .*must (be letters, digits|have at most)"):
        load_scenario(path)


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        (f"model.hidden={'[' * 3000}", "must be a list"),
        ("run.seed=1\nrun.compare_alone=true", "must be one value; use one --set for each key"),
        ("run.name=a\nb", "must be one value on one line; use one --set for each key"),
        ("run.duration.x=1 s", 'run.duration is "1 min", which has no keys'),
        ("model.hidden.3=1", "model.hidden is a list; its index must be 0"),
        ("model.hidden.0.x=1", "model.hidden.0 is 8, which has no keys"),
        ("network.loss", 'must be section.key=value, such as --set run.duration="5 min"'),
        ("run.name=", "has no value; use --unset to remove a key, or '\"\"' for empty text"),
        ("..=1", 'must be section.key=value, such as --set run.duration="5 min"'),
    ],
)
def test_overrides_are_refused_in_one_line(tmp_path: Path, override: str, complaint: str) -> None:
    answer = refusal(write(tmp_path, SMALL), "--set", override)
    assert answer.endswith(f"{complaint}\n")
    assert answer.count("\n") == 1


def test_overrides_may_quote_keys_and_break_lines_inside_of_a_value(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, SMALL), ["\"run\".'seed'=3", "model.hidden=[8,\n4]"])
    assert (scenario.run.seed, scenario.model.hidden) == (3, (8, 4))  # type: ignore[union-attr]
