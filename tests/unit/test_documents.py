"""The examples in the documents work: files load, commands parse, programs compile, and links have targets."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from balajoin import cli
from balajoin.config.loading import load

REPOSITORY = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
PACKAGE = REPOSITORY / "streaming" / "balajoin"
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")])
MAKEFILE = (REPOSITORY / "Makefile").read_text()

# A fenced block. Its content is not Markdown, so its links and headings do not count.
FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
IN_LINE = re.compile(r"`(?P<text>[^`\n]+)`")
SUBSTITUTED = {"KAFKA_PASSWORD": "a password"}


@dataclass(frozen=True)
class Excerpt:
    document: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(REPOSITORY)}:{self.line}"


def excerpt(document: Path, text: str, found: re.Match[str], group: str) -> Excerpt:
    return Excerpt(document, text.count("\n", 0, found.start(group)) + 1, found[group])


def blocks(language: str) -> list[Excerpt]:
    return [
        excerpt(document, text, found, "text")
        for document in DOCUMENTS
        for text in [document.read_text()]
        for found in FENCED.finditer(text)
        if found["language"] == language
    ]


def prose(document: Path) -> str:
    """The document without its code blocks. Lines keep their numbers."""
    return FENCED.sub(lambda found: "\n" * found[0].count("\n"), document.read_text())


def found_in_prose(pattern: re.Pattern[str], group: str) -> list[Excerpt]:
    return [
        excerpt(document, text, found, group)
        for document in DOCUMENTS
        for text in [prose(document)]
        for found in pattern.finditer(text)
    ]


def command_lines() -> list[Excerpt]:
    """Every line of a shell block, without its comment, and every command in a sentence."""
    in_blocks = [
        Excerpt(block.document, block.line + number, line.partition(" # ")[0].strip())
        for block in blocks("")
        for number, line in enumerate(block.text.splitlines())
    ]
    return [*in_blocks, *found_in_prose(IN_LINE, "text")]


def joins() -> list[Excerpt]:
    return [one for one in command_lines() if one.text.startswith("balajoin ")]


def first_join() -> Excerpt:
    return next(block for block in blocks("toml") if block.document.name == "README.md")


def merged(whole: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    return whole | {
        name: merged(whole[name], value) if isinstance(value, dict) and name in whole else value
        for name, value in part.items()
    }


def to_toml(table: dict[str, Any], prefix: str = "") -> str:
    """Writes tables of texts, numbers and booleans as TOML."""
    plain = {name: value for name, value in table.items() if not isinstance(value, dict)}
    lines = [f"[{prefix}]"] if prefix else []
    for name, value in plain.items():
        lines.append(f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {str(value).lower()}")
    for name, value in table.items():
        if isinstance(value, dict):
            lines.append(to_toml(value, f"{prefix}.{name}" if prefix else name))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_a_file_that_is_shown_loads(block: Excerpt, tmp_path: Path) -> None:
    """A block that names no brokers is only a part of a file, so it is put into the file of the README."""
    settings, text = tomllib.loads(block.text), block.text
    if "bootstrap_servers" not in settings.get("kafka", {}):
        text = to_toml(merged(tomllib.loads(first_join().text), settings))
    file = tmp_path / "join.toml"
    file.write_text(text)
    load(file, SUBSTITUTED)


@pytest.mark.parametrize("file", sorted((REPOSITORY / "examples").rglob("*.toml")), ids=lambda file: file.parent.name)
def test_an_example_loads(file: Path) -> None:
    load(file, {})


def test_the_first_join_is_the_commented_example() -> None:
    """The README shows the same join in fewer lines, and serves its page."""
    shown = tomllib.loads(first_join().text)
    example = tomllib.loads((REPOSITORY / "examples" / "join.toml").read_text())
    assert merged(example, shown) == example | {"page": shown["page"]}


@pytest.mark.parametrize("command", joins(), ids=str)
def test_a_command_that_is_shown_parses(command: Excerpt, capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence may name a command without its options."""
    arguments = shlex.split(command.text)[1:]
    try:
        cli._parser().parse_args(arguments)
    except SystemExit:
        told = capsys.readouterr().err
        named_only = "the following arguments are required" in told or "one of the arguments" in told
        assert named_only, f"{command}: {told}"
        assert not is_in_a_block(command), f"{command}: {told}"


def is_in_a_block(command: Excerpt) -> bool:
    return command.text not in prose(command.document).splitlines()[command.line - 1]


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_a_program_that_is_shown_compiles(block: Excerpt) -> None:
    compile(block.text, str(block), "exec", ast.PyCF_ONLY_AST)


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_a_program_imports_what_there_is(block: Excerpt) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("balajoin"):
            exec(compile(ast.Module([node], []), str(block), "exec"), {})  # raises if a name is missing


def users_tests() -> list[Excerpt]:
    return [block for block in blocks("python") if block.document.name == "library.md" and "def test_" in block.text]


def test_a_users_test_is_shown() -> None:
    assert users_tests()


@pytest.mark.parametrize("block", users_tests(), ids=str)
def test_a_users_test_that_is_shown_passes(block: Excerpt) -> None:
    shown: dict[str, Any] = {}
    exec(compile(block.text, str(block), "exec"), shown)
    for name in [*shown]:
        if name.startswith("test_"):
            shown[name]()


def slug(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    words = re.sub(r"[^\w\s-]", "", heading.strip().lower())
    return re.sub(r"\s", "-", words)


def anchors(document: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)}


@pytest.mark.parametrize("link", found_in_prose(LINK, "target"), ids=str)
def test_a_link_leads_somewhere(link: Excerpt) -> None:
    if re.match(r"[a-z]+:", link.text):
        return
    path, _, anchor = link.text.partition("#")
    target = (link.document.parent / path).resolve() if path else link.document
    assert target.exists(), f"{link}: {target} does not exist"
    if anchor:
        assert anchor in anchors(target), f"{link}: {target.name} has no heading {anchor}"


def pointers_in_code() -> Iterator[Excerpt]:
    """References from code, settings and dashboards to a document or to one of its headings."""
    folders = ("streaming", "tests", "benchmarks", "dashboards", "examples")
    for folder in folders:
        for file in sorted((REPOSITORY / folder).rglob("*")):
            if file.suffix in {".py", ".yml", ".toml"}:
                text = file.read_text()
                for found in re.finditer(r"(?P<target>docs/[\w-]+\.md(#[\w-]+)?)", text):
                    yield excerpt(file, text, found, "target")


@pytest.mark.parametrize("pointer", [*pointers_in_code()], ids=str)
def test_code_points_to_documents_that_exist(pointer: Excerpt) -> None:
    path, _, anchor = pointer.text.partition("#")
    assert (REPOSITORY / path).exists(), str(pointer)
    assert not anchor or anchor in anchors(REPOSITORY / path), str(pointer)


def named_files() -> list[Excerpt]:
    named = re.compile(r"(?P<text>[\w./-]+/[\w.-]+\.(py|toml|yml|xml|json|png|svg)|[a-z_]+\.py)")
    return [one for one in found_in_prose(IN_LINE, "text") if named.fullmatch(one.text.split(" ")[0])]


@pytest.mark.parametrize("named", named_files(), ids=str)
def test_a_file_that_is_named_exists(named: Excerpt) -> None:
    """A file is named by its path in repository or package. For tests and repeated modules a name is enough."""
    name = named.text.split(" ")[0]
    if f"Create `{name}`" in named.document.read_text():
        return
    anywhere = [] if "/" in name else [*PACKAGE.rglob(name), *(REPOSITORY / "tests").rglob(name)]
    assert anywhere or (REPOSITORY / name).exists() or (PACKAGE / name).exists(), f"{named}: there is no {name}"


@pytest.mark.parametrize("command", [one for one in command_lines() if one.text.startswith("make ")], ids=str)
def test_a_target_of_make_exists(command: Excerpt) -> None:
    named = re.findall(r"\bmake ([a-z]+)", command.text)
    assert named, str(command)
    for target in named:
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), f"{command}: make has no target {target}"


def test_the_readme_fits_on_two_screens_before_its_links() -> None:
    before, _, links = (REPOSITORY / "README.md").read_text().partition("\n## Read on\n")
    assert links
    assert before.count("\n") <= 115


def test_every_page_says_first_who_needs_it() -> None:
    silent = [
        page.name
        for page in (REPOSITORY / "docs").glob("*.md")
        if not re.match(r"# .+\n\n\*For ", page.read_text()) and page.name != "settings.md"
    ]
    assert silent == []


def test_every_page_is_reached_from_the_readme() -> None:
    linked = {
        link.text.partition("#")[0] for link in found_in_prose(LINK, "target") if link.document.name == "README.md"
    }
    pages = {page.relative_to(REPOSITORY).as_posix() for page in DOCUMENTS} - {"README.md"}
    assert pages <= linked
